"""Texts that a model wrote about a document: their kinds, who wrote them, and their positions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID, uuid5

from pydantic import BaseModel, ConfigDict

from latent_core.domain.errors import Invalid
from latent_core.domain.ids import ChunkId


class GeneratedKind(StrEnum):
    SUMMARY = "summary"
    """Of a whole document."""
    PAGE = "page"
    """The full text of a page."""
    VISUAL = "visual"
    """Description of a chart, picture, diagram or table of a page."""
    CAPTION = "caption"
    TRANSCRIPT = "transcript"
    """What is said in a recording."""


class GeneratedGroup(StrEnum):
    """What is made, and dropped, together; named as the block of the manifest that permits it."""

    SUMMARIES = "summaries"
    EXTRACTION = "extraction"
    CAPTIONS = "captions"

    @property
    def kinds(self) -> tuple[GeneratedKind, ...]:
        return _KINDS[self]


_KINDS: Final = {
    GeneratedGroup.SUMMARIES: (GeneratedKind.SUMMARY,),
    GeneratedGroup.EXTRACTION: (GeneratedKind.PAGE, GeneratedKind.VISUAL),
    GeneratedGroup.CAPTIONS: (GeneratedKind.CAPTION,),
}


class GeneratedBy(BaseModel):
    """``provenance.generated`` of a chunk."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    kind: GeneratedKind
    model: str
    """<provider>/<model>"""
    prompt_version: str
    created_at: datetime

    @classmethod
    def of(cls, provenance: dict[str, Any]) -> GeneratedBy | None:
        """From the provenance of a chunk; None for one of the source."""
        stored = provenance.get("generated")
        return None if stored is None else cls.model_validate(stored)


FIRST_POSITION: Final = 10_000_000
"""Generated chunks have this position or a higher one; those of a source never do, and neither do those of a recording,
whose transcript is its own text."""
_FIRST: Final = {
    GeneratedKind.PAGE: FIRST_POSITION,
    GeneratedKind.VISUAL: 500_000_000,
    GeneratedKind.SUMMARY: 1_000_000_000,
    GeneratedKind.CAPTION: 1_100_000_000,
    GeneratedKind.TRANSCRIPT: 1_600_000_000,
}
MAX_POSITION: Final = 2**31
CHUNKS_PER_PAGE: Final = 1000
MAX_PAGE: Final = 400_000
MAX_CHUNKS_WITHOUT_PAGE: Final = 100_000


def positions(kind: GeneratedKind, page: int | None, count: int) -> Iterator[int]:
    """The positions of the ``count`` chunks of a page, or of a document without pages. ``Invalid`` for too many."""
    limit = MAX_CHUNKS_WITHOUT_PAGE if page is None else CHUNKS_PER_PAGE
    if count > limit or (page or 0) > MAX_PAGE:
        raise Invalid(
            f"{count} generated chunks for page {page or 'of the whole document'}: at most {limit} per page, "
            f"and {MAX_PAGE} pages",
            kind=kind.value,
        )
    first = _FIRST[kind] + CHUNKS_PER_PAGE * (page or 0)
    return iter(range(first, first + count))


def generated_chunk_id(
    doc_id: UUID, kind: GeneratedKind, content_hash: str, chunk_no: int
) -> ChunkId:
    """Never the id of a chunk of the source, nor of another attempt: ``chunk_no`` is never used again."""
    return ChunkId(uuid5(doc_id, f"generated\n{kind}\n{content_hash}\n{chunk_no}"))
