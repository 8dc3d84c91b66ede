"""Pictures that cannot be embedded: when a job goes on without them, and when it does not.

A picture that a server refuses, or whose bytes are lost, costs its page one way of being found, not the document.
A server that refuses every picture is another matter: then something is wrong that a person must mend.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from latent_core.domain.errors import (
    IngestFailed,
    Invalid,
    LatentError,
    NotFound,
    OutOfSpace,
    TimedOut,
    TooLarge,
    Unavailable,
)

PLAINLY: Final = 32
"""So many refused, and none taken: whoever refuses them refuses all. More than are asked for side by side, since
who refuses answers sooner than who embeds."""
_OF_THE_PICTURE: Final = (IngestFailed, Invalid, NotFound, TooLarge)


def is_about_the_picture(error: LatentError, *, last_attempt: bool) -> bool:
    """Whether ``error`` says something of the one picture. That a server fails whenever it is shown it is believed
    when no other attempt follows; an outage never is about a picture."""
    if isinstance(error, _OF_THE_PICTURE):
        return True
    fails = isinstance(error, Unavailable | TimedOut) and not isinstance(error, OutOfSpace)
    return last_attempt and fails and error.transient and error.counts_as_attempt


class SkippedImages:
    """The pictures that one job goes on without, by the hash of their bytes, and why."""

    def __init__(self, *, last_attempt: bool = False) -> None:
        self._last = last_attempt
        self._causes: dict[str, LatentError] = {}
        self._taken = 0

    def take(self, pictures: int) -> None:
        """So many have their vectors."""
        self._taken += pictures

    def concerns(self, error: LatentError) -> bool:
        """Whether a job may go on without the picture that ``error`` came of."""
        return is_about_the_picture(error, last_attempt=self._last)

    def add(self, sha256: str, error: LatentError) -> None:
        """Go on without a picture. Raises ``error`` when it is not about the picture, and ``IngestFailed`` when
        plainly all are refused."""
        if not self.concerns(error):
            raise error
        # Its frames hold the picture, and what was sent: a thousand of them are all of the memory.
        error.__cause__ = error.__context__ = None
        self._causes[sha256] = error.with_traceback(None)
        if not self._taken and len(self._causes) >= PLAINLY:
            raise self._refused()

    def check(self, *, others: int) -> None:
        """At the end of a document with so many vectors of texts: ``IngestFailed`` when none of its pictures was
        taken, unless it is one alone that may be to blame itself."""
        lost = len(self._causes)
        if lost and not self._taken and (lost > 1 or not others):
            raise self._refused()

    def why(self, sha256: str | None) -> LatentError | None:
        """Why a picture was left out; None of one that was not."""
        return None if sha256 is None else self._causes.get(sha256)

    def __len__(self) -> int:
        return len(self._causes)

    def __iter__(self) -> Iterator[tuple[str, LatentError]]:
        return iter(self._causes.items())

    def _refused(self) -> IngestFailed:
        first = next(iter(self._causes.values()))
        subject = f"none of {len(self)} pictures" if len(self) > 1 else "the only picture"
        verb = "could be embedded" if len(self) > 1 else "could not be embedded"
        return IngestFailed(
            f"{subject} {verb}: {first.message}. Check the embedder and its limits (a smaller pdf.render_dpi "
            "or image.thumbnail_max_edge makes pictures smaller), then requeue the job",
            **first.details,
        )
