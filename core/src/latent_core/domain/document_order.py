"""The orders of a list of documents, and the position at which a page of the list ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from latent_core.domain import cursors
from latent_core.domain.document import DocumentView
from latent_core.domain.errors import Invalid


class DocumentOrder(StrEnum):
    ID = "id"
    NEWEST = "newest"
    """By the time at which the content was added, as ``oldest``."""
    OLDEST = "oldest"
    PATH = "path"
    """By the source URI, in the byte order of its characters."""
    PATH_DOWN = "path_down"
    LARGEST = "largest"
    """By the bytes of the original; documents without one count as the smallest."""
    SMALLEST = "smallest"
    TYPE = "type"
    """By source type, then the newest; documents that were not read yet come first."""
    FAILED = "failed"
    """Documents whose newest content failed, then the others, each with the newest first."""


@dataclass(frozen=True, slots=True)
class ListPosition:
    """The document after which the next page begins, with the values by which the list is ordered."""

    order: DocumentOrder
    doc_id: UUID
    written_at: datetime | None = None
    bytes: int | None = None
    source_type: str | None = None
    failed: bool = False

    @staticmethod
    def of(document: DocumentView, order: DocumentOrder) -> ListPosition:
        return ListPosition(
            order,
            document.doc_id,
            document.written_at if order in _TIMED else None,
            document.bytes if order in _SIZED else None,
            document.source_type if order is DocumentOrder.TYPE else None,
            order is DocumentOrder.FAILED and document.failure is not None,
        )

    def cursor(self) -> str:
        at = self.written_at.isoformat() if self.written_at else ""
        size = "" if self.bytes is None else self.bytes
        parts = (self.order, self.doc_id.hex, at, size, self.source_type or "", int(self.failed))
        return cursors.encode("|".join(map(str, parts)))


_SIZED = frozenset({DocumentOrder.LARGEST, DocumentOrder.SMALLEST})
_TIMED = frozenset(
    {DocumentOrder.NEWEST, DocumentOrder.OLDEST, DocumentOrder.TYPE, DocumentOrder.FAILED}
)


def position(cursor: str | None, order: DocumentOrder) -> ListPosition | None:
    """The position in a cursor; ``Invalid`` for one of another order or another list."""
    if cursor is None:
        return None
    parts = cursors.decode(cursor).split("|")
    try:
        named, doc_id, at, size, source_type, failed = parts
        found = ListPosition(
            DocumentOrder(named),
            UUID(doc_id),
            datetime.fromisoformat(at) if at else None,
            int(size) if size else None,
            source_type or None,
            failed == "1",
        )
    except ValueError as exc:
        raise _foreign() from exc
    in_range = found.bytes is None or 0 <= found.bytes < 2**63
    if found.order is not order or not in_range:
        raise _foreign()
    return found


def _foreign() -> Invalid:
    return Invalid(
        "invalid cursor: it does not come from this list, or from another order of it. Start again without a cursor"
    )
