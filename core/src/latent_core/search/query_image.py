"""The picture that a search asks by, as the caller resolved it: its bytes, its text, or why one of them is missing."""

from __future__ import annotations

from dataclasses import dataclass

from latent_core.domain.errors import Issue, IssueCode


@dataclass(frozen=True, slots=True)
class EmbeddedQueryImage:
    """A picture that is asked by."""

    image: bytes
    sha256: str
    words: str
    """What was asked for beside it."""

    @property
    def key(self) -> str:
        """No query holds a NUL."""
        return f"\0{self.sha256}\0{self.words}"


@dataclass(frozen=True, slots=True)
class QueryImage:
    """What is known of the picture."""

    text: str
    """At most ``MAX_CHARS`` (``generations/read_image.py``); empty when it has no words, or when they are not known (yet)."""
    issue: Issue | None = None
    """Why there is no text, or no picture."""
    picture: EmbeddedQueryImage | None = None
    """For embedders that read pictures."""
    milliseconds: float = 0.0

    @property
    def partial(self) -> bool:
        """Whether the answer lacks what the picture says, because that is not known."""
        return self.issue is not None and self.issue.code is not IssueCode.NO_HITS
