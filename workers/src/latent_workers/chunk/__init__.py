"""``Parsed`` becomes chunks: the units that are retrieved. Pure functions, no I/O."""
