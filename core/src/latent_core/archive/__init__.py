"""One file that holds a container: a tar, compressed by zstd, written and read as a stream (docs/adr)."""
