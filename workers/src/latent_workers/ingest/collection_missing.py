"""A collection that is not there just now: a refresh empties it, or it was lost and is made by the next start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from latent_core.domain.errors import NotFound, Unavailable


@contextmanager
def requeued(as_: type[Unavailable] = Unavailable) -> Iterator[None]:
    """``NotFound`` of the collection of what is searched becomes ``as_``, which is tried again later."""
    try:
        yield
    except NotFound as exc:
        raise as_(f"{exc.message} just now; it is tried again later") from exc
