"""Turns source files into a ``ParsedDocument``: text, blocks with exact places, pages. One module per source type."""
