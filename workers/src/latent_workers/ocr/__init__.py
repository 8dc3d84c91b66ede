"""Reading pictures of text. One page is one task of the sandbox; a bad one costs only itself."""
