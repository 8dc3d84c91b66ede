"""The writing protocol (docs/architecture.md): the one place where the stores meet in a transaction."""
