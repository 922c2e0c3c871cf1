"""Models of other projects, in and out: joins weights (``interop``), tokenizers (``data``) and checkpoints."""
