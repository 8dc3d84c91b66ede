"""What a listing reads: the part of a root it speaks of, and no more than that."""

from __future__ import annotations

import random
import re
from uuid import UUID

from latent_core.db.connection import Database
from latent_core.db.documents import folder_listings
from latent_core.db.documents.folder_listings import VANISHED, UriSpan
from latent_core.domain.ids import document_id

PREFIX = "file:///museum/"
CONTAINER = "INSERT INTO containers (id, manifest, etag) VALUES ('notes', '{}', 'e')"
INSERT = """
INSERT INTO documents (id, container_id, uri)
SELECT id, 'notes', uri FROM unnest(%(ids)s::uuid[], %(uris)s::text[]) AS r (id, uri)
"""
LETTERS = "aäz~/ 𝄞Z.-"


async def store(db: Database, uris: list[str]) -> dict[str, UUID]:
    ids: dict[str, UUID] = {uri: document_id("notes", uri) for uri in uris}
    async with db.transaction() as conn:
        await conn.execute(CONTAINER)
        await conn.execute(INSERT, {"ids": list(ids.values()), "uris": list(ids)})
        await conn.execute("ANALYZE documents")
    return ids


async def test_a_span_holds_in_the_database_what_it_holds_in_python(database: Database) -> None:
    rng = random.Random(7)
    names = sorted({"".join(rng.choices(LETTERS, k=rng.randint(1, 5))) for _ in range(300)})
    others = ["file:///museum", "file:///museums/a", "file:///musea/a", "https://museum/a"]
    uris = [PREFIX + name for name in names] + others
    ids = await store(database, uris)
    kept = set(rng.sample(uris, 40))
    for _ in range(30):
        ends = sorted(rng.sample(names, 2))
        after, through = (None if rng.random() < 0.3 else PREFIX + end for end in ends)
        span = UriSpan(PREFIX, after, through)
        async with database.transaction() as conn:
            found = await folder_listings.vanished(
                conn, "notes", span, [ids[uri] for uri in kept], 1000
            )
        expected = [uri for uri in uris if span.holds(uri) and uri not in kept]
        assert [uri for _, uri in found] == sorted(expected)
        assert [doc_id for doc_id, _ in found] == [ids[uri] for uri in sorted(expected)]


async def test_no_more_is_read_than_the_limit_and_the_part(database: Database) -> None:
    """The index on uris bounds the scan at both ends: a folder of many files is listed in many parts."""
    ids = await store(database, [f"{PREFIX}{n:05}.md" for n in range(20_000)])
    span = UriSpan(PREFIX, f"{PREFIX}00100.md", f"{PREFIX}00200.md")
    kept = [ids[f"{PREFIX}00150.md"]]
    parameters = {
        "container_id": "notes",
        "prefix": span.prefix,
        "after": span.after,
        "through": span.through,
        "ids": kept,
        "limit": 5001,
    }
    async with database.transaction() as conn:
        found = await folder_listings.vanished(conn, "notes", span, kept, 5)
        assert len(found) == 5
        rows = await (
            await conn.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {VANISHED}", parameters)
        ).fetchall()
    plan = str(rows[0]["QUERY PLAN"])
    assert "documents_uri" in plan
    assert set(re.findall(r"'Rows Removed by Filter': (\d+)", plan)) <= {"0"}
