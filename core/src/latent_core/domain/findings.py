"""The report of doctor (differences between the stores, repairs, notes), and images that were skipped."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final
from uuid import UUID

from pydantic import BaseModel

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


class Remedy(StrEnum):
    """What ``latent doctor --repair`` does about a difference."""

    REINGEST = "reingest"
    """A job ingests the document again from its stored original or web page."""
    EMBED = "embed"
    """A job embeds the document's generated texts again."""
    REBUILD = "rebuild"
    """Derived data of the container is written again: its keyword index from the stored term vectors, or its
    live space, dimensions, etag and languages."""
    DROP = "drop"
    """Data without a reference is removed: points and rows of dead generations, blobs, collections, exports without a
    file, documents without any stored data."""
    NONE = "none"
    """Only a person can repair it: the message says how."""


class StoreDifference(BaseModel):
    """A difference between a store and the rows."""

    kind: str
    object: str
    message: str
    repair: Remedy = Remedy.NONE
    doc_id: UUID | None = None
    generation: int | None = None


class ContainerReport(BaseModel):
    """Counts and differences of one container."""

    counts: dict[str, int] = {}
    differences: list[StoreDifference] = []
    notes: list[StoreDifference] = []
    """Other notes: dead letters, a manifest file that differs."""


class RepairResult(BaseModel):
    """The result of one repair."""

    kind: str
    object: str
    repair: Remedy
    done: bool
    message: str


class DoctorReport(BaseModel):
    clean: bool = True
    containers: dict[str, ContainerReport] = {}
    stores: list[StoreDifference] = []
    """Differences outside of all containers."""
    notes: list[StoreDifference] = []
    """Collections that another installation may have made, and bytes that an adopted dump may lack; they are no
    differences."""
    checks: dict[str, str | bool] = {}
    """Other notes on this installation."""
    repairs: list[RepairResult] = []
    """Repairs of these differences, if requested."""


PLAINLY: Final = 32
"""After so many refusals without a success, all images count as refused. More than the number of concurrent requests,
since a refusal is faster than an embedding."""
_OF_THE_PICTURE: Final = (IngestFailed, Invalid, NotFound, TooLarge)


def is_about_the_picture(error: LatentError, *, last_attempt: bool) -> bool:
    """Whether ``error`` is about this one image. A server error counts as such only on the last attempt; an outage
    never does."""
    if isinstance(error, _OF_THE_PICTURE):
        return True
    fails = isinstance(error, Unavailable | TimedOut) and not isinstance(error, OutOfSpace)
    return last_attempt and fails and error.transient and error.counts_as_attempt


class RefusedInputs:
    """The images that one job skips, by the hash of their bytes, with their errors; and texts that the embedder refuses."""

    def __init__(self, *, last_attempt: bool = False) -> None:
        self._last = last_attempt
        self._causes: dict[str, LatentError] = {}
        self._texts: dict[str, LatentError] = {}
        self._taken = 0

    def take(self, pictures: int) -> None:
        """Count images that have their vectors."""
        self._taken += pictures

    def concerns(self, error: LatentError) -> bool:
        """Whether a job may skip the image that raised ``error``."""
        return is_about_the_picture(error, last_attempt=self._last)

    def add(self, sha256: str, error: LatentError) -> None:
        """Skip an image. Raises ``error`` when it is not about the image, and ``IngestFailed`` when all images
        are refused."""
        if not self.concerns(error):
            raise error
        # Its frames keep the image and the request alive: a thousand of them would fill the memory.
        error.__cause__ = error.__context__ = None
        self._causes[sha256] = error.with_traceback(None)
        if not self._taken and len(self._causes) >= PLAINLY:
            raise self._refused()

    def add_text(self, sha256: str, error: LatentError) -> None:
        """Skip a text. Raises ``error`` when it is not about the text."""
        if not isinstance(error, _OF_THE_PICTURE):
            raise error
        error.__cause__ = error.__context__ = None
        self._texts[sha256] = error.with_traceback(None)

    def check_texts(self, *, vectors: int) -> None:
        """At the end of a document with so many vectors: raise the refusal of a text if there are none at all, since then
        the embedder and not the text may be the cause."""
        if self._texts and not vectors:
            raise next(iter(self._texts.values()))

    def check(self, *, others: int) -> None:
        """At the end of a document with ``others`` text vectors: raise ``IngestFailed`` when all its images were
        refused, except for a single image, which may be the cause itself."""
        lost = len(self._causes)
        if lost and not self._taken and (lost > 1 or not others):
            raise self._refused()

    def why(self, sha256: str | None) -> LatentError | None:
        """Why an image or a text was skipped; None if it was not."""
        if sha256 is None:
            return None
        return self._causes.get(sha256) or self._texts.get(sha256)

    def __len__(self) -> int:
        return len(self._causes)

    def __bool__(self) -> bool:
        """Whether anything is skipped."""
        return bool(self._causes or self._texts)

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
