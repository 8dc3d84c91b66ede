"""Page images of every source: PDF pages as they are, text, Markdown and code laid out on pages."""
