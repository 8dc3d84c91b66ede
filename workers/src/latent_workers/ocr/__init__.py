"""OCR. Each page is one task of the sandbox, so that a bad page costs only itself."""
