"""The keyword index in Postgres: one statement, one snapshot, then arithmetic (FACTS §1)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from latent_core.bm25.packing import PackedPostings
from latent_core.bm25.port import KeywordHits
from latent_core.bm25.scoring import Snapshot, rank
from latent_core.db.connection import Database
from latent_core.domain.errors import TimedOut

READ: Final = """
SELECT live_chunks, live_length, languages, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea
FROM keyword_stats WHERE container_id = %(container_id)s
UNION ALL
SELECT NULL, NULL, NULL, NULL, chunk_nos, NULL, NULL
FROM dead_chunk_nos WHERE container_id = %(container_id)s
UNION ALL
SELECT NULL, NULL, NULL, term, chunk_nos, tfs, lens
FROM postings WHERE container_id = %(container_id)s AND term = ANY(%(terms)s)
UNION ALL
SELECT NULL, NULL, NULL, term, chunk_nos, tfs, lens
FROM unmerged_postings WHERE container_id = %(container_id)s AND term = ANY(%(terms)s)
"""

INLINE_POSTINGS: Final = 50_000
"""Fewer postings are scored in the event loop, because a thread would take longer."""


class PostgresKeywordIndex:
    """``KeywordIndex`` over ``postings``, ``unmerged_postings``, ``dead_chunk_nos`` and ``keyword_stats``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(
        self,
        container_id: str,
        terms: Sequence[str],
        k: int,
        *,
        timeout_seconds: float,
        allowed: NDArray[np.uint32] | None = None,
    ) -> KeywordHits:
        try:
            # Past the deadline psycopg cancels the statement on the server, too.
            async with asyncio.timeout(timeout_seconds):
                snapshot = await self._read(container_id, terms)
                if snapshot.postings <= INLINE_POSTINGS:
                    return rank(snapshot, terms, k, allowed)
                return await asyncio.to_thread(rank, snapshot, terms, k, allowed)
        except TimeoutError as exc:
            raise TimedOut(
                f"the keyword search in {container_id} took longer than {timeout_seconds:g} s"
            ) from exc

    async def _read(self, container_id: str, terms: Sequence[str]) -> Snapshot:
        parameters = {"container_id": container_id, "terms": list(dict.fromkeys(terms))}
        async with self._database.reading() as conn:
            cursor = conn.cursor(row_factory=tuple_row, binary=True)
            await cursor.execute(READ, parameters)
            return _snapshot(await cursor.fetchall())


def _snapshot(rows: Sequence[tuple[Any, ...]]) -> Snapshot:
    stats: tuple[int, int, dict[str, int]] = (0, 0, {})
    dead: list[bytes] = []
    postings: defaultdict[str, list[PackedPostings]] = defaultdict(list)
    for *counts, term, chunk_nos, tfs, lens in rows:
        if term is not None:
            postings[term].append(PackedPostings(chunk_nos, tfs, lens))
        elif chunk_nos is not None:
            dead.append(chunk_nos)
        else:
            stats = (counts[0], counts[1], counts[2])
    return Snapshot(*stats, dead, postings)
