"""Another embedder for a container (docs/adr/0009)."""
