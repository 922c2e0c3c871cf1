"""Corpora as they are published become what training reads: cleaned, de-duplicated, sampled, shuffled, tokenised.

Apache Beam spreads the work; every step that must see a whole corpus goes through files, so that no memory has to hold
one. docs/preparing_corpora.md is the user's side.
"""
