"""Trained translation models at work: text in, text out, whole files, and BLEU."""
