"""Parsers run in children that may crash, hang or swell without harm to anything but their own task.

Nothing is imported here: a child starts through this package and should stay small.
"""
