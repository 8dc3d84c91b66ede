"""Checks of the examples in README and docs: nothing is run, and no service is needed."""
