"""Page images of every source: PDF pages as they are; text, Markdown and code in a page layout."""
