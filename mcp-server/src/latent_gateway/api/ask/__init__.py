"""Questions that a language model answers from hits."""
