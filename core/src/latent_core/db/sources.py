"""Sources of a container: which folder is synced to which root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.domain.source import prefix_of
from latent_core.wire.sources import ListedSource, SourceMatch, SourceView

ALL: Final = """
SELECT id AS source_id, root, host, folder, created_at, synced_at FROM sources
WHERE container_id = %(container_id)s ORDER BY root
"""

WITH_DOCUMENTS: Final = """
SELECT s.id AS source_id, s.root, s.host, s.folder, s.created_at, s.synced_at, m.documents
FROM sources s
CROSS JOIN LATERAL (
    SELECT count(*) AS documents FROM documents d
    WHERE d.container_id = s.container_id AND d.deleted_at IS NULL AND d.parent_id IS NULL
      AND d.uri ^@ ('file:///' || s.root || '/')
) m
WHERE s.container_id = %(container_id)s
ORDER BY s.root
"""

BY_ID: Final = """
SELECT id AS source_id, root, host, folder, created_at, synced_at FROM sources
WHERE container_id = %(container_id)s AND id = %(id)s
"""

DELETE: Final = (
    "DELETE FROM sources WHERE container_id = %(container_id)s AND id = %(id)s RETURNING id"
)

BY_ROOT: Final = "SELECT id FROM sources WHERE container_id = %(container_id)s AND root = %(root)s"

# Documents that belong to no source make a root taken, unless the new source adopts them.
INSERT: Final = """
INSERT INTO sources (container_id, id, root, host, folder)
SELECT %(container_id)s, gen_random_uuid(), %(root)s, %(host)s, %(folder)s
WHERE %(adopt)s OR NOT EXISTS (
    SELECT 1 FROM documents d
    WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.uri ^@ %(prefix)s)
ON CONFLICT (container_id, root) DO NOTHING
RETURNING id AS source_id, root, host, folder, created_at, synced_at
"""

# With another id: the client that synced it before no longer knows it.
TAKE_OVER: Final = """
UPDATE sources SET id = gen_random_uuid(), host = %(host)s, folder = %(folder)s
WHERE container_id = %(container_id)s AND id = %(id)s
RETURNING id AS source_id, root, host, folder, created_at, synced_at
"""

SYNCED: Final = """
UPDATE sources SET synced_at = now() WHERE container_id = %(container_id)s AND id = %(id)s
"""

MATCHES: Final = """
SELECT s.root, s.id AS source_id, s.host, s.folder, s.created_at, s.synced_at, m.documents, m.same
FROM (SELECT id, root, host, folder, created_at, synced_at, 'file:///' || root || '/' AS prefix FROM sources
      WHERE container_id = %(container_id)s
      UNION ALL
      SELECT NULL, %(root)s, NULL, NULL, NULL, NULL, %(prefix)s
      WHERE NOT EXISTS (SELECT 1 FROM sources WHERE container_id = %(container_id)s AND root = %(root)s)) s
CROSS JOIN LATERAL (
    SELECT count(*) AS documents, count(DISTINCT d.sha256) FILTER (WHERE d.sha256 = ANY(%(sha256)s::text[])) AS same
    FROM documents d
    WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.parent_id IS NULL AND d.uri ^@ s.prefix
) m
WHERE s.id IS NOT NULL OR m.documents > 0
ORDER BY s.root
"""

IMPORT: Final = """
INSERT INTO sources (container_id, id, root, host, folder, created_at, synced_at)
SELECT %(container_id)s, r.source_id, r.root, r.host, r.folder, r.created_at, r.synced_at
FROM unnest(%(ids)s::uuid[], %(roots)s::text[], %(hosts)s::text[], %(folders)s::text[], %(created)s::timestamptz[],
            %(synced)s::timestamptz[]) AS r (source_id, root, host, folder, created_at, synced_at)
ON CONFLICT DO NOTHING
"""


async def listed(conn: Connection, container_id: str) -> list[SourceView]:
    cursor = await conn.execute(ALL, {"container_id": container_id})
    return [SourceView(**row) for row in await cursor.fetchall()]


async def with_documents(conn: Connection, container_id: str) -> list[ListedSource]:
    cursor = await conn.execute(WITH_DOCUMENTS, {"container_id": container_id})
    return [ListedSource(**row) for row in await cursor.fetchall()]


async def find(conn: Connection, container_id: str, source_id: UUID) -> SourceView | None:
    cursor = await conn.execute(BY_ID, {"container_id": container_id, "id": source_id})
    return _view(await cursor.fetchone())


async def delete(conn: Connection, container_id: str, source_id: UUID) -> bool:
    """Its documents stay. False if there is no source of this id."""
    cursor = await conn.execute(DELETE, {"container_id": container_id, "id": source_id})
    return await cursor.fetchone() is not None


async def of_root(conn: Connection, container_id: str, root: str) -> UUID | None:
    """The id of the source that has this root."""
    cursor = await conn.execute(BY_ROOT, {"container_id": container_id, "root": root})
    row = await cursor.fetchone()
    return None if row is None else row["id"]


async def insert(
    conn: Connection, container_id: str, root: str, *, host: str, folder: str, adopt: bool
) -> SourceView | None:
    """The new source; None if the root is taken."""
    values = {
        "container_id": container_id,
        "root": root,
        "prefix": prefix_of(root),
        "host": host,
        "folder": folder,
        "adopt": adopt,
    }
    return _view(await (await conn.execute(INSERT, values)).fetchone())


async def take_over(
    conn: Connection, container_id: str, source_id: UUID, *, host: str, folder: str
) -> SourceView | None:
    """The source with its new id and place; None if there is no source of this id."""
    values = {"container_id": container_id, "id": source_id, "host": host, "folder": folder}
    return _view(await (await conn.execute(TAKE_OVER, values)).fetchone())


async def note_synced(conn: Connection, container_id: str, source_id: UUID) -> None:
    await conn.execute(SYNCED, {"container_id": container_id, "id": source_id})


async def matches(
    conn: Connection, container_id: str, root: str, sha256: Sequence[str]
) -> list[SourceMatch]:
    """All sources, and documents below ``root`` without a source, each compared with the distinct hashes."""
    values = {
        "container_id": container_id,
        "root": root,
        "prefix": prefix_of(root),
        "sha256": list(sha256),
    }
    cursor = await conn.execute(MATCHES, values)
    return [
        SourceMatch(
            root=row["root"],
            source=None if row["source_id"] is None else _view(row),
            documents=row["documents"],
            same=row["same"],
        )
        for row in await cursor.fetchall()
    ]


async def bring_in(conn: Connection, container_id: str, found: Sequence[SourceView]) -> None:
    """Insert sources of an archive whose root and id are free."""
    await conn.execute(
        IMPORT,
        {
            "container_id": container_id,
            "ids": [one.source_id for one in found],
            "roots": [one.root for one in found],
            "hosts": [one.host for one in found],
            "folders": [one.folder for one in found],
            "created": [one.created_at for one in found],
            "synced": [one.synced_at for one in found],
        },
    )


def _view(row: dict[str, Any] | None) -> SourceView | None:
    fields = ("source_id", "root", "host", "folder", "created_at", "synced_at")
    return None if row is None else SourceView(**{name: row[name] for name in fields})
