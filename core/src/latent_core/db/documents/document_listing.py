"""Lists of a container's documents: filtered, in the order that one chooses, in pages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from latent_core.db.conditions import glob_pattern
from latent_core.db.connection import Connection
from latent_core.db.documents.documents import STATE, VIEW, as_view
from latent_core.domain.document import DocumentState, DocumentView
from latent_core.domain.document_order import DocumentOrder, ListPosition

WHERE: Final = f"""
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL
  AND (%(uri_prefix)s::text IS NULL OR starts_with(d.uri, %(uri_prefix)s))
  AND (%(path)s::text IS NULL
       OR (CASE WHEN d.uri ^@ 'file:///' THEN substr(d.uri, 9) ELSE d.uri END COLLATE "C") ~ %(path)s)
  AND (%(source_types)s::text[] IS NULL OR d.source_type = ANY(%(source_types)s))
  AND (%(state)s::text IS NULL OR %(state)s = {STATE})
  AND (%(origins)s::text[] IS NULL OR d.origin = ANY(%(origins)s))
  AND (%(written_by)s::text IS NULL OR d.written_by = %(written_by)s)
  AND (%(session)s::text IS NULL OR d.session = %(session)s)
  AND (%(since)s::timestamptz IS NULL OR d.written_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR d.written_at < %(until)s)
  AND (%(superseded)s OR d.superseded_at IS NULL)
"""

# The jobs of the container first: an index has its failed ones. A failure from before the live generation is ignored, as
# in ``NEWEST_JOB``.
FAILED: Final = """
(SELECT j.doc_id FROM jobs j
 JOIN documents o ON o.id = j.doc_id AND o.container_id = j.container_id
 WHERE j.container_id = %(container_id)s AND j.state IN ('failed', 'cancelled') AND j.kind IN ('ingest', 'corpus')
   AND o.parent_id IS NULL AND (j.state = 'failed' OR o.live_generation IS NULL)
   AND (o.live_generation IS NULL OR (j.payload ->> 'request')::bigint >= o.floor_request)
   AND NOT EXISTS (SELECT 1 FROM jobs n WHERE n.doc_id = j.doc_id AND n.kind IN ('ingest', 'corpus') AND n.id > j.id)
 UNION ALL
 SELECT o.id FROM documents o
 WHERE o.container_id = %(container_id)s AND o.deleted_at IS NULL AND o.live_generation IS NULL AND o.parent_id IS NULL
   AND NOT EXISTS (SELECT 1 FROM jobs n WHERE n.doc_id = o.id AND n.kind IN ('ingest', 'corpus')))
"""

IS_FAILED: Final = f"(CASE WHEN d.id IN {FAILED} THEN 1 ELSE 0 END)"


def _paged(condition: str, order: str) -> str:
    """The statement for one order; ``condition`` skips to the position of the cursor."""
    return f"{VIEW}{WHERE}\n  AND (%(after)s::uuid IS NULL OR {condition})\nORDER BY {order}\nLIMIT %(limit)s\n"


# The uri is unique in its container. Its index has the byte order of the operators with tildes.
_URI_BEFORE: Final = "(SELECT a.uri FROM documents a WHERE a.id = %(after)s)"

STATEMENTS: Final[Mapping[DocumentOrder, str]] = {
    DocumentOrder.ID: _paged("d.id > %(after)s", "d.id"),
    DocumentOrder.NEWEST: _paged(
        "(d.written_at, d.id) < (%(written_at)s::timestamptz, %(after)s::uuid)",
        "d.written_at DESC, d.id DESC",
    ),
    DocumentOrder.OLDEST: _paged(
        "(d.written_at, d.id) > (%(written_at)s::timestamptz, %(after)s::uuid)",
        "d.written_at, d.id",
    ),
    DocumentOrder.PATH: _paged(f"d.uri ~>~ {_URI_BEFORE}", "d.uri USING ~<~"),
    DocumentOrder.PATH_DOWN: _paged(f"d.uri ~<~ {_URI_BEFORE}", "d.uri USING ~>~"),
    DocumentOrder.LARGEST: _paged(
        "(coalesce(d.bytes, -1), d.id) < (coalesce(%(bytes)s::bigint, -1), %(after)s::uuid)",
        "coalesce(d.bytes, -1) DESC, d.id DESC",
    ),
    DocumentOrder.SMALLEST: _paged(
        "(coalesce(d.bytes, -1), d.id) > (coalesce(%(bytes)s::bigint, -1), %(after)s::uuid)",
        "coalesce(d.bytes, -1), d.id",
    ),
    DocumentOrder.TYPE: _paged(
        """(coalesce(d.source_type, '') COLLATE "C" > coalesce(%(source_type)s::text, '')
       OR coalesce(d.source_type, '') = coalesce(%(source_type)s::text, '')
       AND (d.written_at, d.id) < (%(written_at)s::timestamptz, %(after)s::uuid))""",
        """coalesce(d.source_type, '') COLLATE "C", d.written_at DESC, d.id DESC""",
    ),
    DocumentOrder.FAILED: _paged(
        f"({IS_FAILED}, d.written_at, d.id) < (%(failed)s::integer, %(written_at)s::timestamptz, %(after)s::uuid)",
        f"{IS_FAILED} DESC, d.written_at DESC, d.id DESC",
    ),
}


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Which documents of a container are listed; None means any."""

    uri_prefix: str | None = None
    path: str | None = None
    """A glob; without a wildcard, a part of the path."""
    source_types: Sequence[str] | None = None
    state: DocumentState | None = None
    origins: Sequence[str] | None = None
    written_by: str | None = None
    session: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    superseded: bool = True
    """Include documents that a newer one replaces."""


def _pattern(path: str) -> str:
    """A glob as it is; else any path that contains the text."""
    return glob_pattern(path) if set(path) & set("*?") else re.escape(path)


def _values(container_id: str, chosen: DocumentFilter, limit: int) -> dict[str, Any]:
    path = None if chosen.path is None else _pattern(chosen.path)
    return {
        "container_id": container_id,
        "uri_prefix": chosen.uri_prefix,
        "path": path,
        "source_types": None if chosen.source_types is None else list(chosen.source_types),
        "state": chosen.state,
        "origins": None if chosen.origins is None else list(chosen.origins),
        "written_by": chosen.written_by,
        "session": chosen.session,
        "since": chosen.since,
        "until": chosen.until,
        "superseded": chosen.superseded,
        "limit": limit,
    }


async def listed(
    conn: Connection,
    container_id: str,
    chosen: DocumentFilter,
    order: DocumentOrder = DocumentOrder.ID,
    *,
    after: ListPosition | None = None,
    limit: int,
) -> list[DocumentView]:
    """Documents in that order, after the position."""
    values = {
        **_values(container_id, chosen, limit),
        "after": after.doc_id if after else None,
        "written_at": after.written_at if after else None,
        "bytes": after.bytes if after else None,
        "failed": int(after.failed) if after else 0,
        "source_type": after.source_type if after else None,
    }
    cursor = await conn.execute(STATEMENTS[order], values)
    return [as_view(row) for row in await cursor.fetchall()]
