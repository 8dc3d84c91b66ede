"""Rights that a request was judged by, noted while it is answered: who keeps the answer asks later whether they still hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

Relied = dict[str, bool]
"""Containers that were judged, each with whether the right was an owner's; else a reader's."""

_NOTED: Final[ContextVar[Relied | None]] = ContextVar("rights_noted", default=None)


@contextmanager
def noted() -> Iterator[Relied]:
    """What is judged while the block lasts. Tasks that it starts note here, too."""
    relied: Relied = {}
    before = _NOTED.set(relied)
    try:
        yield relied
    finally:
        _NOTED.reset(before)


def note(container_id: str, *, owns: bool) -> None:
    """The request may go on by this right; does nothing when nobody keeps its answer."""
    relied = _NOTED.get()
    if relied is not None:
        relied[container_id] = owns or relied.get(container_id, False)
