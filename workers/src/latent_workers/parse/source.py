"""What a parser is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

from latent_core.domain.chunk import SourceType


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, open for reading, with the name it is called by in messages."""

    name: str
    file: BinaryIO
    source_type: SourceType
    max_pages: int
    """Pages read of a paged source; the rest is left out with a warning."""
    charset: str | None = None
    """What the server said a page is written in."""
    sanitize_rules: tuple[str, ...] = ()
    """Of a page: ``latent_core.domain.manifest.model.SANITIZE_RULES``."""

    def read(self) -> bytes:
        return self.file.read()
