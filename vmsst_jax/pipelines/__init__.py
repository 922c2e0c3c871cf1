"""Pipelines: commands of ours one after another, each one's work the next one's input, resumed where they stopped."""
