"""Source files become ``Parsed``: text, blocks with their exact place, pages. One file a source type."""
