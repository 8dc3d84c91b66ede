"""What a container holds, in a few lines: types, dates, titles and meta fields of its documents."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from latent_core.db.connection import Connection

MAX_TITLES: Final = 8
MAX_META_KEYS: Final = 40
MAX_SAMPLED: Final = 2_000
"""Documents whose meta fields are counted: the newest."""

TYPES: Final = """
SELECT source_type, count(*) AS documents, min(coalesce(source_modified_at, first_fetched_at)) AS oldest,
       max(coalesce(source_modified_at, first_fetched_at)) AS newest
FROM documents
WHERE container_id = %(id)s AND deleted_at IS NULL AND live_generation IS NOT NULL AND source_type IS NOT NULL
GROUP BY source_type ORDER BY documents DESC, source_type
"""

NEWEST: Final = """
WITH newest AS MATERIALIZED (
    SELECT id, title, meta, updated_at FROM documents
    WHERE container_id = %(id)s AND deleted_at IS NULL AND live_generation IS NOT NULL
    ORDER BY updated_at DESC, id LIMIT %(sampled)s
)
SELECT ARRAY(SELECT title FROM newest WHERE title IS NOT NULL ORDER BY updated_at DESC, id LIMIT %(titles)s) AS titles,
       ARRAY(SELECT key FROM newest, jsonb_object_keys(meta) key GROUP BY key
             ORDER BY count(*) DESC, key LIMIT %(keys)s) AS meta_keys
"""


@dataclass(frozen=True, slots=True)
class ContainerContents:
    source_types: dict[str, int]
    """Number of documents, the largest first."""
    oldest: datetime | None
    """When the source was modified, else first fetched."""
    newest: datetime | None
    titles: list[str]
    """Of the newest documents."""
    meta_keys: list[str]
    """Of the newest documents, the commonest first."""


async def contents(conn: Connection, container_id: str) -> ContainerContents:
    """Of the live documents of a container."""
    rows = await (await conn.execute(TYPES, {"id": container_id})).fetchall()
    limits = {"sampled": MAX_SAMPLED, "titles": MAX_TITLES, "keys": MAX_META_KEYS}
    newest = await (await conn.execute(NEWEST, {"id": container_id, **limits})).fetchone()
    if newest is None:
        raise RuntimeError("a query of two arrays returned no row")
    return ContainerContents(
        source_types={row["source_type"]: row["documents"] for row in rows},
        oldest=min((row["oldest"] for row in rows if row["oldest"]), default=None),
        newest=max((row["newest"] for row in rows if row["newest"]), default=None),
        titles=newest["titles"],
        meta_keys=newest["meta_keys"],
    )
