"""Parsers run in children, so that a crash, a hang or excessive memory affects only their own task.

Nothing is imported here: a child starts through this package and should stay small.
"""
