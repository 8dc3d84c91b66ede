"""Exact search in Postgres: candidates by trigram signatures, judged by whoever asked, over their text.

Texts come in batches: the caller reads texts in the order of their chunk_nos, judges them outside (a regular
expression never runs in Postgres), and stops when it has enough or its time is up.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Composed, Literal

from latent_core.bm25.signature import SIZES, places
from latent_core.db.connection import Connection, Database

BATCH: Final = 512

# By itself, since nobody can tell beforehand how many pass: joined in one statement, a guess of half of all
# has every chunk and document read.
SIGNED: Final = SQL("""
SELECT s.chunk_no
FROM signatures s
WHERE s.container_id = %(container_id)s
  AND (%(chunk_nos)s::bigint[] IS NULL OR s.chunk_no = ANY(%(chunk_nos)s::bigint[]))
  AND CASE length(s.bits) WHEN 8192 THEN {small} WHEN 32768 THEN {middle} ELSE {large} END
ORDER BY s.chunk_no
""")
# One bit after the other: the first turns away three texts of four, where a mask reads all bits of each.
HAS: Final = SQL("get_bit(s.bits, {place}) = 1")

TEXTS: Final = """
SELECT c.chunk_no, c.doc_id, c.text, c.line_start, c.meta->'repeated_chars', d.uri
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation AND d.deleted_at IS NULL
WHERE c.container_id = %(container_id)s
  AND (%(chunk_nos)s::bigint[] IS NULL OR c.chunk_no = ANY(%(chunk_nos)s::bigint[]))
  AND (%(path)s::text IS NULL OR d.uri ILIKE %(path)s)
ORDER BY c.chunk_no
"""


@dataclass(frozen=True, slots=True)
class SubstringQuery:
    """What a text must hold to be worth reading."""

    all_of: tuple[str, ...] = ()
    any_of: tuple[tuple[str, ...], ...] = ()
    """Of one of these everything; empty: no matter."""
    path: str | None = None
    """A LIKE pattern on the source uri, in any case."""

    @property
    def narrows(self) -> bool:
        """Whether signatures tell anything: an alternative without literals may be anywhere."""
        return bool(self.all_of) or bool(self.any_of and all(self.any_of))


@dataclass(frozen=True, slots=True)
class CandidateText:
    """A candidate's raw text, with where its lines begin."""

    chunk_no: int
    doc_id: UUID
    text: str
    line_start: int | None
    repeated_chars: int
    """At its beginning, a table's header that stands elsewhere in the source."""
    uri: str


class ExactIndex:
    """Over ``signatures`` and the chunks' texts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def candidates(
        self,
        container_id: str,
        query: SubstringQuery,
        *,
        chunk_nos: NDArray[np.int64] | None = None,
    ) -> AsyncGenerator[list[CandidateText], None]:
        """Visible chunks that may hold what is wanted, by chunk_no, in batches; of ``chunk_nos`` alone when given.

        The deadline is the caller's; close the generator when it is not read to its end.
        """
        if not query.narrows:
            async with aclosing(self._all(container_id, query.path, chunk_nos)) as batches:
                async for batch in batches:
                    yield batch
            return
        async with self._database.reading() as conn:
            passed = await _signed(conn, container_id, query, chunk_nos)
            for start in range(0, len(passed), BATCH):
                values = {
                    "container_id": container_id,
                    "path": query.path,
                    "chunk_nos": passed[start : start + BATCH],
                }
                async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
                    await cursor.execute(TEXTS, values)
                    yield _texts(await cursor.fetchall())

    async def _all(
        self, container_id: str, path: str | None, chunk_nos: NDArray[np.int64] | None
    ) -> AsyncGenerator[list[CandidateText], None]:
        """Visible chunks by chunk_no, streamed: every text has to be read."""
        async with (
            self._database.transaction(read_only=True) as conn,
            conn.cursor("exact", row_factory=tuple_row) as cursor,
        ):
            await cursor.execute(
                TEXTS, {"container_id": container_id, "path": path, "chunk_nos": chunk_nos}
            )
            while rows := await cursor.fetchmany(BATCH):
                yield _texts(rows)


def _texts(rows: Sequence[tuple[Any, ...]]) -> list[CandidateText]:
    return [CandidateText(o, d, t, line, repeated or 0, u) for o, d, t, line, repeated, u in rows]


async def _signed(
    conn: Connection, container_id: str, query: SubstringQuery, chunk_nos: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """The chunk_nos whose signatures let through what is wanted."""
    conditions = [_passing(query, size) for size in SIZES]
    statement = SIGNED.format(**dict(zip(("small", "middle", "large"), conditions, strict=True)))
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        values = {"container_id": container_id, "chunk_nos": chunk_nos}
        await cursor.execute(statement, values, prepare=False)
        return np.fromiter((chunk_no for (chunk_no,) in await cursor.fetchall()), np.int64)


def _passing(query: SubstringQuery, size: int) -> Composed:
    """Signatures of ``size`` bits with everything of ``all_of`` and of one of the alternatives."""
    alternatives = query.any_of if all(query.any_of) else ()
    place_sets = {tuple(places((*query.all_of, *one), size)): None for one in alternatives or ((),)}
    tests = [_has(one) for one in place_sets]
    return SQL("({})").format(SQL(" OR ").join(tests))


def _has(place_sets: Sequence[int]) -> Composed:
    """All of those bits; literals of less than three characters ask for none."""
    tests = [HAS.format(place=Literal(place)) for place in place_sets]
    return SQL("({})").format(SQL(" AND ").join(tests) if tests else SQL("true"))
