"""Exact search in Postgres: candidates by trigram signatures, judged by whoever asked, over their text.

The statement streams: the caller reads texts in the order of their ords, judges them outside (a regular
expression never runs in Postgres), and stops when it has enough or its time is up.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from latent_core.keywords.signature import SIZES, mask
from latent_core.registry.connection import Database

BATCH: Final = 256

CANDIDATES: Final = """
SELECT c.ord, c.doc_id, c.text, c.line_start, c.meta->'repeated_chars', d.uri
FROM signatures s
JOIN chunks c ON c.container_id = s.container_id AND c.ord = s.ord
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation AND d.deleted_at IS NULL
WHERE s.container_id = %(container_id)s
  AND (%(ords)s::bigint[] IS NULL OR s.ord = ANY(%(ords)s::bigint[]))
  AND CASE length(s.bits)
      WHEN 4096 THEN s.bits & %(all_4096)s::bit varying = %(all_4096)s::bit varying
      WHEN 16384 THEN s.bits & %(all_16384)s::bit varying = %(all_16384)s::bit varying
      ELSE s.bits & %(all_65536)s::bit varying = %(all_65536)s::bit varying END
  AND (%(any_4096)s::bit varying[] IS NULL OR EXISTS (
      SELECT 1 FROM unnest(CASE length(s.bits) WHEN 4096 THEN %(any_4096)s::bit varying[]
                           WHEN 16384 THEN %(any_16384)s::bit varying[] ELSE %(any_65536)s::bit varying[] END) AS one(bits)
      WHERE s.bits & one.bits = one.bits))
  AND (%(path)s::text IS NULL OR d.uri ILIKE %(path)s)
ORDER BY s.ord
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a text must hold to be worth reading."""

    all_of: tuple[str, ...] = ()
    any_of: tuple[tuple[str, ...], ...] = ()
    """Of one of these everything; empty: no matter."""
    path: str | None = None
    """A LIKE pattern on the source uri, in any case."""


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
        parameters = _parameters(container_id, wanted, ords)
        async with (
            self._database.transaction(read_only=True) as conn,
            conn.cursor("exact", row_factory=tuple_row) as cursor,
        ):
            await cursor.execute(CANDIDATES, parameters)
            while rows := await cursor.fetchmany(BATCH):
                yield [Text(o, d, t, line, repeated or 0, u) for o, d, t, line, repeated, u in rows]


def _parameters(
    container_id: str, wanted: Wanted, ords: NDArray[np.int64] | None
) -> dict[str, Any]:
    values: dict[str, Any] = {
        "container_id": container_id,
        "path": wanted.path,
        "ords": None if ords is None else ords.tolist(),
    }
    told = all(wanted.any_of)  # an alternative without literals may be anywhere
    for size in SIZES:
        values[f"all_{size}"] = mask(wanted.all_of, size)
        values[f"any_{size}"] = (
            [mask(one, size) for one in wanted.any_of] if wanted.any_of and told else None
        )
    return values
