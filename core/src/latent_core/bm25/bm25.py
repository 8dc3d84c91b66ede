"""The keyword index in Postgres: one statement, one snapshot, then arithmetic (FACTS §1)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from latent_core.bm25.packing import PackedPostings, Postings, as_one_term
from latent_core.bm25.port import NO_GROUPS, KeywordHits
from latent_core.bm25.scoring import (
    KeywordStatistics,
    LivePostings,
    ScoredChunks,
    Snapshot,
    live_postings,
    score,
    statistics,
)
from latent_core.bm25.summary_terms import EVERY, summary_groups, summary_query
from latent_core.db.connection import Database
from latent_core.domain.errors import TimedOut

READ: Final = """
SELECT container_id, live_chunks, live_length, languages, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea
FROM keyword_stats WHERE container_id = ANY(%(container_ids)s)
UNION ALL
SELECT container_id, NULL, NULL, NULL, NULL, chunk_nos, NULL, NULL
FROM dead_chunk_nos WHERE container_id = ANY(%(container_ids)s)
UNION ALL
SELECT container_id, NULL, NULL, NULL, term, chunk_nos, tfs, lens
FROM postings WHERE container_id = ANY(%(container_ids)s) AND term = ANY(%(terms)s)
UNION ALL
SELECT container_id, NULL, NULL, NULL, term, chunk_nos, tfs, lens
FROM unmerged_postings WHERE container_id = ANY(%(container_ids)s) AND term = ANY(%(terms)s)
"""

NO_STATISTICS: Final = statistics([])
INLINE_POSTINGS: Final = 50_000
"""Fewer postings are scored in the event loop, because a thread would take longer."""


class PostgresKeywordIndex:
    """``KeywordIndex`` over ``postings``, ``unmerged_postings``, ``dead_chunk_nos`` and ``keyword_stats``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(
        self,
        queries: Mapping[str, Sequence[str]],
        *,
        timeout_seconds: float,
        as_one: Mapping[str, Sequence[str]] = NO_GROUPS,
        of_summaries: bool = False,
    ) -> ReadPostings:
        if of_summaries:
            queries = {one: summary_query(terms) for one, terms in queries.items()}
            as_one = summary_groups(as_one)
        try:
            # Past the deadline psycopg cancels the statement on the server, too.
            async with asyncio.timeout(timeout_seconds):
                terms = list(dict.fromkeys(term for query in queries.values() for term in query))
                in_index = dict.fromkeys(chain([EVERY], terms, *as_one.values()))
                snapshots = await self._snapshots(list(queries), list(in_index))
                if sum(one.postings for one in snapshots.values()) <= INLINE_POSTINGS:
                    return _postings(snapshots, terms, queries, as_one, of_summaries)
                return await asyncio.to_thread(
                    _postings, snapshots, terms, queries, as_one, of_summaries
                )
        except TimeoutError as exc:
            raise TimedOut(
                f"the keyword search in {', '.join(queries)} took longer than {timeout_seconds:g} s"
            ) from exc

    async def search(
        self,
        container_id: str,
        terms: Sequence[str],
        k: int,
        *,
        timeout_seconds: float,
        allowed: NDArray[np.uint32] | None = None,
    ) -> KeywordHits:
        """``read`` and ``best`` of one container."""
        read = await self.read({container_id: terms}, timeout_seconds=timeout_seconds)
        return await read.best(container_id, k, allowed)

    async def _snapshots(
        self, container_ids: Sequence[str], terms: Sequence[str]
    ) -> dict[str, Snapshot]:
        parameters = {"container_ids": list(container_ids), "terms": list(terms)}
        async with self._database.reading() as conn:
            cursor = conn.cursor(row_factory=tuple_row, binary=True)
            await cursor.execute(READ, parameters)
            rows: dict[str, list[tuple[Any, ...]]] = {one: [] for one in container_ids}
            for container_id, *row in await cursor.fetchall():
                rows[container_id].append(tuple(row))
        return {container_id: _snapshot(its) for container_id, its in rows.items()}


@dataclass(frozen=True, slots=True)
class ReadPostings:
    """``KeywordAnswers``: the postings of every term, and the statistics of all containers. A container is scored when
    it is asked for the first time: who needs only ``dfs`` pays for no scores."""

    live: Mapping[str, LivePostings]
    queries: Mapping[str, Sequence[str]]
    own: Mapping[str, KeywordStatistics]
    together: KeywordStatistics
    of_summary: Mapping[str, Postings]
    """One posting for each summary of a container that has any."""
    scored: dict[str, ScoredChunks] = field(default_factory=dict)

    @property
    def dfs(self) -> Mapping[str, int]:
        return self.together.dfs

    async def best(
        self, container_id: str, k: int, allowed: NDArray[np.uint32] | None = None
    ) -> KeywordHits:
        if len(self.live[container_id].found) <= INLINE_POSTINGS:
            return self._best(container_id, k, allowed)
        return await asyncio.to_thread(self._best, container_id, k, allowed)

    def summaries(self, container_id: str) -> NDArray[np.int64]:
        held = self.of_summary.get(container_id)
        return np.empty(0, np.int64) if held is None else held.chunk_nos.astype(np.int64)

    def _best(self, container_id: str, k: int, allowed: NDArray[np.uint32] | None) -> KeywordHits:
        scored = self.scored.get(container_id)
        if scored is None:
            query, own = self.queries[container_id], self.own[container_id]
            scored = score(self.live[container_id], query, own, self.together)
            self.scored[container_id] = scored
        return scored.best(k, allowed)


def _postings(
    snapshots: Mapping[str, Snapshot],
    terms: Sequence[str],
    queries: Mapping[str, Sequence[str]],
    as_one: Mapping[str, Sequence[str]],
    of_summaries: bool,
) -> ReadPostings:
    of_summary = {
        one: live_postings(snapshot, [EVERY]).found
        for one, snapshot in snapshots.items()
        if EVERY in snapshot.rows
    }
    snapshots = {
        one: _counting(snapshot, of_summary.get(one), of_summaries)
        for one, snapshot in snapshots.items()
    }
    if as_one:
        snapshots = {one: _grouped(snapshot, as_one) for one, snapshot in snapshots.items()}
    live = {
        # Of thousands of possible spellings a container holds a few.
        one: live_postings(snapshot, [term for term in terms if term in snapshot.rows])
        for one, snapshot in snapshots.items()
    }
    own = {one: statistics([(snapshots[one], live[one])]) for one in live}
    together = statistics([(snapshots[one], live[one]) for one in live]) if len(own) > 1 else None
    together = together or next(iter(own.values()), NO_STATISTICS)
    return ReadPostings(live, queries, own, together, of_summary)


def _counting(snapshot: Snapshot, of_summary: Postings | None, of_summaries: bool) -> Snapshot:
    """With the number and length of the summaries only, or of all other chunks."""
    if of_summary is None:
        return replace(snapshot, live_chunks=0, live_length=0) if of_summaries else snapshot
    chunks, length = len(of_summary), int(of_summary.lens.sum(dtype=np.int64))
    if not of_summaries:
        chunks, length = snapshot.live_chunks - chunks, snapshot.live_length - length
    return replace(snapshot, live_chunks=max(chunks, 0), live_length=max(length, 0))


def _grouped(snapshot: Snapshot, as_one: Mapping[str, Sequence[str]]) -> Snapshot:
    """With the postings of several terms as those of one, by its name."""
    grouped = {
        name: [as_one_term([row for term in terms for row in snapshot.rows.get(term, ())])]
        for name, terms in as_one.items()
    }
    return replace(snapshot, rows={**snapshot.rows, **grouped})


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
