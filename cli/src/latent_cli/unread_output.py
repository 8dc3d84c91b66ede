"""What a sync does not read, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

MAX_SHOWN: Final = 5
"""Nested checkouts, and types that are not read."""


def unread_notes(unread: Mapping[str, int], checkouts: Sequence[str]) -> Iterator[str]:
    """One line on types that are not read, and one on nested checkouts."""
    if unread:
        yield unread_line(unread)
    if checkouts:
        shown = ", ".join(checkouts[:MAX_SHOWN])
        more = len(checkouts) - MAX_SHOWN
        tail = f" and {more} more" if more > 0 else ""
        yield (
            f"nested checkouts are not read: {shown}{tail}; "
            f"!{checkouts[0]} in .latentignore reads one"
        )


def unread_line(unread: Mapping[str, int]) -> str:
    """``3 Keynote files and 1 ZIP file are not read``, the frequent types first."""
    shown = [
        f"{count} {kind} {'file' if count == 1 else 'files'}"
        for kind, count in list(unread.items())[:MAX_SHOWN]
    ]
    rest = sum(list(unread.values())[MAX_SHOWN:])
    shown += [f"{rest} of other types"] if rest else []
    words = " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    return f"{words} {'is' if sum(unread.values()) == 1 else 'are'} not read"
