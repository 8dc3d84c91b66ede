"""What a summary is made from: the document's row, the texts of its source, and the names of other documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Final
from uuid import UUID

from psycopg.rows import class_row

from latent_core.db.connection import Connection

MAX_TEXTS: Final = 20_000
MAX_TEXT_CHARS: Final = 8_000
MAX_CANDIDATES: Final = 500
"""Documents with the name of a file that a summary names."""

DOCUMENT: Final = """
SELECT d.id AS doc_id, d.live_generation AS generation, d.uri, d.title, d.language, d.source_modified_at, d.fetched_at
FROM documents d
WHERE d.id = %(doc_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
"""

TEXTS: Final = """
SELECT c.heading_path, left(c.text, %(chars)s) AS text, c.offset_start, c.offset_end,
       coalesce((c.meta->>'repeated_chars')::integer, 0) AS repeated_chars
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.doc_id = %(doc_id)s AND c.generation = %(generation)s AND c.generated IS NULL
  AND (c.modality = 'text' OR d.source_type = 'image')
ORDER BY c.position
LIMIT %(limit)s
"""

# By whole path or by the name of the file alone.
NAMED: Final = """
SELECT d.uri FROM documents d
WHERE d.container_id = %(container_id)s AND d.id <> %(doc_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
  AND substring(d.uri FROM '[^/]*$') = ANY(%(names)s)
ORDER BY d.uri
LIMIT %(limit)s
"""

UNPROCESSED: Final = """
SELECT d.id AS doc_id, d.live_generation AS generation
FROM documents d LEFT JOIN summaries s ON s.doc_id = d.id AND s.generation = d.live_generation
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
  AND (%(after)s::uuid IS NULL OR d.id > %(after)s) AND (%(all)s OR s.doc_id IS NULL OR s.state = 'failed' AND s.raw IS NULL)
ORDER BY d.id
LIMIT %(limit)s
"""

LIVE: Final = """
SELECT d.id AS doc_id, d.live_generation AS generation
FROM documents d
WHERE d.container_id = %(container_id)s AND d.id = ANY(%(ids)s) AND d.deleted_at IS NULL
  AND d.live_generation IS NOT NULL
"""


def shown_path(uri: str) -> str:
    """The path of a file, or the address."""
    return uri.removeprefix("file:///")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryDocument:
    """A row of ``DOCUMENT``."""

    doc_id: UUID
    generation: int
    uri: str
    title: str | None
    language: str | None
    source_modified_at: datetime | None
    fetched_at: datetime | None

    @property
    def source_path(self) -> str:
        return shown_path(self.uri)


@dataclass(frozen=True, slots=True)
class SummaryText:
    """A row of ``TEXTS``: a chunk of the source."""

    heading_path: tuple[str, ...]
    text: str
    offset_start: int
    offset_end: int
    repeated_chars: int = 0


async def document(conn: Connection, doc_id: UUID) -> SummaryDocument | None:
    """The live document; None if it is deleted or not published."""
    async with conn.cursor(row_factory=class_row(SummaryDocument)) as cursor:
        await cursor.execute(DOCUMENT, {"doc_id": doc_id})
        return await cursor.fetchone()


async def texts(conn: Connection, doc_id: UUID, generation: int) -> list[SummaryText]:
    """The first chunks of the source, in its order, without what a model wrote."""
    values = {
        "doc_id": doc_id,
        "generation": generation,
        "limit": MAX_TEXTS,
        "chars": MAX_TEXT_CHARS,
    }
    rows = await (await conn.execute(TEXTS, values)).fetchall()
    return [SummaryText(**{**row, "heading_path": tuple(row["heading_path"])}) for row in rows]


async def existing_paths(
    conn: Connection, container_id: str, doc_id: UUID, names: Sequence[str]
) -> list[str]:
    """The other documents of the container that ``names`` mean, in their order: by the end of their path, if it is the
    end of one path only."""
    parts = {name: _parts(name) for name in names}
    values = {
        "container_id": container_id,
        "doc_id": doc_id,
        "names": sorted({own[-1] for own in parts.values() if own}),
        "limit": MAX_CANDIDATES,
    }
    rows = await (await conn.execute(NAMED, values)).fetchall()
    known = [shown_path(row["uri"]) for row in rows]
    found: dict[str, None] = {}
    for own in parts.values():
        ending = [path for path in known if own and _parts(path)[-len(own) :] == own]
        if len(ending) == 1:
            found[ending[0]] = None
    return list(found)


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in PurePosixPath(shown_path(name)).parts if part not in ("/", "."))


@dataclass(frozen=True, slots=True)
class LiveDocument:
    doc_id: UUID
    generation: int


async def unprocessed(
    conn: Connection, container_id: str, *, after: UUID | None, limit: int, every: bool
) -> list[LiveDocument]:
    """Documents without a summary of their live generation, or whose summary failed without an answer; with ``every`` all.
    By id."""
    values = {"container_id": container_id, "after": after, "limit": limit, "all": every}
    async with conn.cursor(row_factory=class_row(LiveDocument)) as cursor:
        await cursor.execute(UNPROCESSED, values)
        return await cursor.fetchall()


async def live(
    conn: Connection, container_id: str, doc_ids: Sequence[UUID]
) -> dict[UUID, LiveDocument]:
    """Those of ``doc_ids`` that are live in the container."""
    async with conn.cursor(row_factory=class_row(LiveDocument)) as cursor:
        await cursor.execute(LIVE, {"container_id": container_id, "ids": list(doc_ids)})
        return {row.doc_id: row for row in await cursor.fetchall()}
