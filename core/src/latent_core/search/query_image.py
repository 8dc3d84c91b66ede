"""The query image, as the caller resolved it: its bytes, its text, or why one of them is missing."""

from __future__ import annotations

from dataclasses import dataclass

from latent_core.domain.errors import Issue, IssueCode


@dataclass(frozen=True, slots=True)
class EmbeddedQueryImage:
    """A query image for embedders that read pictures."""

    image: bytes
    sha256: str
    words: str
    """The text of the query."""

    @property
    def key(self) -> str:
        """A cache key; no text query contains a NUL."""
        return f"\0{self.sha256}\0{self.words}"


@dataclass(frozen=True, slots=True)
class QueryImage:
    """Text, picture and issue of an ``image_ref``."""

    text: str
    """At most ``MAX_CHARS`` (``ingest/read_image.py``); empty if the image has no words or was not read yet."""
    issue: Issue | None = None
    """Why there is no text, or no picture."""
    picture: EmbeddedQueryImage | None = None
    """For embedders that read pictures."""
    milliseconds: float = 0.0

    @property
    def partial(self) -> bool:
        """Whether the answer is partial because the text of the image is unknown."""
        return self.issue is not None and self.issue.code is not IssueCode.NO_HITS
