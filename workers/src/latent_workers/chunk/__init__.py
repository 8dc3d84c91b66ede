"""Turns a ``ParsedDocument`` into chunks, the units of retrieval. Pure functions without I/O."""
