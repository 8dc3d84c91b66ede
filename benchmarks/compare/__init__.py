"""Other libraries beside ours, in one run: the same texts, vectors and queries, in turns (``make compare``)."""
