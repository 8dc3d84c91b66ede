"""Office files and books, each read as Markdown: headings, paragraphs, lists and tables in reading order."""
