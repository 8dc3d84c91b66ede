"""Lists of a container's documents: filtered, by id or newest first, in pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from latent_core.db.conditions import glob_pattern
from latent_core.db.connection import Connection
from latent_core.db.documents.documents import STATE, VIEW, as_view
from latent_core.domain.document import DocumentState, DocumentView

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

BY_ID: Final = f"""{VIEW}{WHERE}
  AND (%(after)s::uuid IS NULL OR d.id > %(after)s)
ORDER BY d.id
LIMIT %(limit)s
"""

NEWEST: Final = f"""{VIEW}{WHERE}
  AND (%(before)s::timestamptz IS NULL OR (d.written_at, d.id) < (%(before)s, %(after)s::uuid))
ORDER BY d.written_at DESC, d.id DESC
LIMIT %(limit)s
"""


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


@dataclass(frozen=True, slots=True)
class ListPosition:
    """After which document the next page begins."""

    doc_id: UUID
    written_at: datetime | None = None


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


async def by_id(
    conn: Connection, container_id: str, chosen: DocumentFilter, *, after: UUID | None, limit: int
) -> list[DocumentView]:
    """In id order, after ``after``."""
    values = {**_values(container_id, chosen, limit), "after": after}
    cursor = await conn.execute(BY_ID, values)
    return [as_view(row) for row in await cursor.fetchall()]


async def newest(
    conn: Connection,
    container_id: str,
    chosen: DocumentFilter,
    *,
    after: ListPosition | None,
    limit: int,
) -> list[DocumentView]:
    """Newest content first."""
    place = {
        "before": after.written_at if after else None,
        "after": after.doc_id if after else None,
    }
    cursor = await conn.execute(NEWEST, {**_values(container_id, chosen, limit), **place})
    return [as_view(row) for row in await cursor.fetchall()]
