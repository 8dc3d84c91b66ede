"""How many documents of a container have each value of a field, among its matching chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from latent_core.db.conditions import FieldValues, FilterCondition, field_values
from latent_core.db.connection import Connection
from latent_core.domain.filters.model import CHUNK_META, Column, MetaField

MAX_FETCHED: Final = 1000
"""Values of one field and container that are read, the most frequent first."""
MAX_VALUE_BYTES: Final = 512
"""A longer value, such as a text, and an object are counted and not listed."""

VISIBLE: Final = SQL("""c.container_id = %(container_id)s AND {among} AND d.container_id = %(container_id)s
      AND d.deleted_at IS NULL AND (d.superseded_at IS NULL OR %(superseded)s)
      AND (d.expires_at IS NULL OR d.expires_at > now()) AND {condition}""")
AMONG: Final = SQL("c.chunk_no = ANY(%(chunk_nos)s::bigint[])")

# Documents first: a document has many chunks, and its values are read once.
COUNT: Final = SQL("""
WITH matched AS MATERIALIZED (
    SELECT DISTINCT c.doc_id
    FROM chunks c
    JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
    WHERE {visible}
), valued AS MATERIALIZED (
    SELECT d.id{values}
    FROM documents d
    WHERE d.container_id = %(container_id)s AND d.id IN (SELECT doc_id FROM matched)
)
SELECT NULL::int AS field, NULL::text AS value, count(*) AS documents, NULL::bigint AS counted,
       NULL::bigint AS distinct_values
FROM valued
{counts}
""")
VALUE: Final = SQL(", {value} AS {name}")

# Values first, items of arrays then: there are few values and many documents.
OF_DOCUMENTS: Final = SQL("""
UNION ALL
(WITH same AS MATERIALIZED (
    SELECT {name} AS value, count(*) AS documents FROM valued GROUP BY 1
 ), items AS (
    SELECT value AS item, documents FROM same WHERE jsonb_typeof(value) NOT IN ('array', 'null')
    UNION ALL
    SELECT item, documents
    FROM same
    CROSS JOIN LATERAL (
        SELECT DISTINCT jsonb_array_elements(CASE jsonb_typeof(value) WHEN 'array' THEN value ELSE '[]' END) AS item) AS each
    WHERE item <> 'null'
 ), frequent AS (
    SELECT CASE WHEN jsonb_typeof(item) NOT IN ('object', 'array') AND octet_length(item::text) <= %(value_bytes)s
                THEN item END AS value,
           sum(documents)::bigint AS documents
    FROM items
    GROUP BY 1
 ), listed AS (
    SELECT value::text, documents, sum(documents) OVER ()::bigint AS counted, count(*) OVER () AS distinct_values
    FROM frequent
    ORDER BY frequent.documents DESC, frequent.value
    LIMIT %(limit)s
 )
 SELECT {number}, * FROM listed
 UNION ALL
 SELECT {number}, NULL, coalesce(sum(documents), 0)::bigint, NULL, NULL
 FROM same
 WHERE jsonb_typeof(value) <> 'null' AND value <> '[]')
""")

OF_CHUNKS: Final = SQL("""
UNION ALL
(WITH items AS MATERIALIZED (
    SELECT DISTINCT c.doc_id, item
    FROM chunks c
    JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
    CROSS JOIN LATERAL {value} AS given(value)
    CROSS JOIN LATERAL jsonb_array_elements(
        CASE jsonb_typeof(value) WHEN 'array' THEN value ELSE jsonb_build_array(value) END) AS each(item)
    WHERE item <> 'null' AND {visible}
 ), frequent AS (
    SELECT CASE WHEN jsonb_typeof(item) NOT IN ('object', 'array') AND octet_length(item::text) <= %(value_bytes)s
                THEN item END AS value,
           count(*) AS documents
    FROM items
    GROUP BY 1
 ), listed AS (
    SELECT value::text, documents, sum(documents) OVER ()::bigint AS counted, count(*) OVER () AS distinct_values
    FROM frequent
    ORDER BY frequent.documents DESC, frequent.value
    LIMIT %(limit)s
 )
 SELECT {number}, * FROM listed
 UNION ALL
 SELECT {number}, NULL, count(DISTINCT doc_id), NULL, NULL FROM items)
""")


@dataclass(frozen=True, slots=True)
class FieldCounts:
    """The values of one field in one container."""

    values: dict[str, int] = field(default_factory=dict)
    """Documents by value (as JSON): the most frequent ``MAX_FETCHED``."""
    counted: int = 0
    """Sum over all values."""
    distinct: int = 0
    with_value: int = 0
    """Documents that have a value."""


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """Documents of one container that match, by the values of several fields."""

    documents: int
    fields: tuple[FieldCounts, ...]


async def count(
    conn: Connection,
    container_id: str,
    fields: Sequence[Column | MetaField],
    condition: FilterCondition,
    chunk_nos: NDArray[np.int64] | None,
    *,
    superseded: bool = False,
) -> DocumentCounts:
    """Count the visible documents that have a chunk that passes ``condition``, and is one of ``chunk_nos`` if given."""
    values = field_values(fields)
    statement = _statement(fields, values, condition, limited=chunk_nos is not None)
    parameters = {
        "container_id": container_id,
        "chunk_nos": chunk_nos,
        "superseded": superseded,
        "value_bytes": MAX_VALUE_BYTES,
        "limit": MAX_FETCHED,
        **condition.values,
        **values.parameters,
    }
    async with conn.cursor(row_factory=tuple_row, binary=True) as cursor:
        await cursor.execute(statement, parameters, prepare=False)
        rows = await cursor.fetchall()
    documents = next(n for number, _, n, _, _ in rows if number is None)
    return DocumentCounts(documents, tuple(_counts(rows, n) for n in range(len(fields))))


def _statement(
    fields: Sequence[Column | MetaField],
    values: FieldValues,
    condition: FilterCondition,
    *,
    limited: bool,
) -> Composed:
    visible = VISIBLE.format(
        among=AMONG if limited else SQL("true"), condition=condition.where or SQL("true")
    )
    selected: list[Composable] = []
    counts: list[Composable] = []
    for n, (one, value) in enumerate(zip(fields, values.of, strict=True)):
        if _is_of_chunk(one):
            counts.append(OF_CHUNKS.format(value=value, visible=visible, number=Literal(n)))
        else:
            name = Identifier(f"value_{n}")
            selected.append(VALUE.format(value=value, name=name))
            counts.append(OF_DOCUMENTS.format(name=name, number=Literal(n)))
    return COUNT.format(visible=visible, values=SQL("").join(selected), counts=SQL("").join(counts))


def _is_of_chunk(one: Column | MetaField) -> bool:
    return isinstance(one, MetaField) and not CHUNK_META.isdisjoint(
        (one.name, one.name.partition(".")[0])
    )


def _counts(rows: Sequence[tuple[Any, ...]], number: int) -> FieldCounts:
    own = [row for row in rows if row[0] == number]
    listed = [row for row in own if row[3] is not None]
    return FieldCounts(
        values={value: n for _, value, n, _, _ in listed if value is not None},
        counted=listed[0][3] if listed else 0,
        distinct=listed[0][4] if listed else 0,
        with_value=next(n for _, _, n, counted, _ in own if counted is None),
    )
