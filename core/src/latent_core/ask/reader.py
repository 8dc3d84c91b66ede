"""Reads the answer of a language model while it streams: its refusal, or its text made safe."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from latent_core.ask.sanitise import AnswerSanitiser

MARKER: Final = "NO_ANSWER"
"""The model begins with it if the sources do not answer the question."""
AROUND_MARKER: Final = " \t\r\n*_`:.-"


class AnswerReader:
    """Takes the pieces of one answer. ``refused`` is known before the first text is returned."""

    def __init__(self, sources: Collection[int]) -> None:
        self.refused = False
        self._sanitiser = AnswerSanitiser(sources)
        self._start: str | None = ""
        """What has been read, until it is known whether that is the marker; then None."""
        self._skips = False
        """Of what follows the marker, the punctuation is no text."""

    @property
    def cited(self) -> set[int]:
        return self._sanitiser.cited

    def feed(self, piece: str) -> str:
        return self._sanitiser.feed(self._without_marker(piece))

    def finish(self) -> str:
        start, self._start = self._start, None
        return self._sanitiser.feed(start or "") + self._sanitiser.finish()

    def _without_marker(self, piece: str) -> str:
        if self._start is not None:
            self._start += piece
            begun = self._start.lstrip(AROUND_MARKER)
            if len(begun) < len(MARKER) and MARKER.startswith(begun):
                return ""
            self.refused = self._skips = begun.startswith(MARKER)
            piece = begun[len(MARKER) :] if self.refused else self._start
            self._start = None
        if self._skips:
            piece = piece.lstrip(AROUND_MARKER)
            self._skips = not piece
        return piece
