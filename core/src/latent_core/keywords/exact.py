"""Exact search in Postgres: candidates by trigram signatures, judged by whoever asked, over their text.

Texts come in batches: the caller reads texts in the order of their ords, judges them outside (a regular
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

from latent_core.keywords.signature import SIZES, places
from latent_core.registry.connection import Connection, Database

BATCH: Final = 512

# By itself, since nobody can tell beforehand how many pass: joined in one statement, a guess of half of all
# has every chunk and document read.
SIGNED: Final = SQL("""
SELECT s.ord
FROM signatures s
WHERE s.container_id = %(container_id)s
  AND (%(ords)s::bigint[] IS NULL OR s.ord = ANY(%(ords)s::bigint[]))
  AND CASE length(s.bits) WHEN 8192 THEN {small} WHEN 32768 THEN {middle} ELSE {large} END
ORDER BY s.ord
""")
# One bit after the other: the first turns away three texts of four, where a mask reads all bits of each.
HAS: Final = SQL("get_bit(s.bits, {place}) = 1")

TEXTS: Final = """
SELECT c.ord, c.doc_id, c.text, c.line_start, c.meta->'repeated_chars', d.uri
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation AND d.deleted_at IS NULL
WHERE c.container_id = %(container_id)s
  AND (%(ords)s::bigint[] IS NULL OR c.ord = ANY(%(ords)s::bigint[]))
  AND (%(path)s::text IS NULL OR d.uri ILIKE %(path)s)
ORDER BY c.ord
"""


@dataclass(frozen=True, slots=True)
class Wanted:
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
class Text:
    """A candidate's raw text, with where its lines begin."""

    ord: int
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
        wanted: Wanted,
        *,
        ords: NDArray[np.int64] | None = None,
    ) -> AsyncGenerator[list[Text], None]:
        """Visible chunks that may hold what is wanted, by ord, in batches; of ``ords`` alone when given.

        The deadline is the caller's; close the generator when it is not read to its end.
        """
        if not wanted.narrows:
            async with aclosing(self._all(container_id, wanted.path, ords)) as batches:
                async for batch in batches:
                    yield batch
            return
        async with self._database.reading() as conn:
            passed = await _signed(conn, container_id, wanted, ords)
            for start in range(0, len(passed), BATCH):
                values = {
                    "container_id": container_id,
                    "path": wanted.path,
                    "ords": passed[start : start + BATCH],
                }
                async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
                    await cursor.execute(TEXTS, values)
                    yield _texts(await cursor.fetchall())

    async def _all(
        self, container_id: str, path: str | None, ords: NDArray[np.int64] | None
    ) -> AsyncGenerator[list[Text], None]:
        """Visible chunks by ord, streamed: every text has to be read."""
        async with (
            self._database.transaction(read_only=True) as conn,
            conn.cursor("exact", row_factory=tuple_row) as cursor,
        ):
            await cursor.execute(TEXTS, {"container_id": container_id, "path": path, "ords": ords})
            while rows := await cursor.fetchmany(BATCH):
                yield _texts(rows)


def _texts(rows: Sequence[tuple[Any, ...]]) -> list[Text]:
    return [Text(o, d, t, line, repeated or 0, u) for o, d, t, line, repeated, u in rows]


async def _signed(
    conn: Connection, container_id: str, wanted: Wanted, ords: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """The ords whose signatures let through what is wanted."""
    conditions = [_passing(wanted, size) for size in SIZES]
    statement = SIGNED.format(**dict(zip(("small", "middle", "large"), conditions, strict=True)))
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        values = {"container_id": container_id, "ords": ords}
        await cursor.execute(statement, values, prepare=False)
        return np.fromiter((ord_ for (ord_,) in await cursor.fetchall()), np.int64)


def _passing(wanted: Wanted, size: int) -> Composed:
    """Signatures of ``size`` bits with everything of ``all_of`` and of one of the alternatives."""
    alternatives = wanted.any_of if all(wanted.any_of) else ()
    asked = {tuple(places((*wanted.all_of, *one), size)): None for one in alternatives or ((),)}
    tests = [_has(one) for one in asked]
    return SQL("({})").format(SQL(" OR ").join(tests))


def _has(asked: Sequence[int]) -> Composed:
    """All of those bits; literals of less than three characters ask for none."""
    tests = [HAS.format(place=Literal(place)) for place in asked]
    return SQL("({})").format(SQL(" AND ").join(tests) if tests else SQL("true"))
