"""Filters judged by Postgres: the very chunks that a naive reading of the filter names, whatever they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from psycopg.sql import SQL
from psycopg.types.json import Jsonb

from latent_core.db import containers
from latent_core.db.conditions import FilterCondition, condition, glob_pattern
from latent_core.db.connection import Database
from latent_core.db.documents import chunks
from latent_core.domain.filters.model import UNDECLARED, MetaFields
from latent_core.domain.filters.syntax import parse
from latent_core.domain.manifest.custom_schema import CustomSchema
from latent_core.domain.manifest.model import Manifest
from tests.support.oracles.filter_oracle import (
    DATES,
    GLOBS,
    KEY_PATHS,
    NASTY,
    USUAL,
    VALUES,
    FilterJudge,
    FilterRow,
    filters,
    fits,
    random_rows,
)

T = TypeVar("T")

NOW: Final = datetime.now(UTC)
ROWS: Final = random_rows(150, NOW, seed=11)
WITH_DATES: Final = MetaFields(CustomSchema.of({"when": "date"}).rules)

DOCUMENT: Final = """
INSERT INTO documents (id, container_id, uri, live_generation, language, source_modified_at, first_fetched_at,
                       fetched_at, meta)
VALUES (%(id)s, 'lamps', %(uri)s, 1, %(language)s, %(modified)s, %(first_fetched)s, %(fetched)s, %(meta)s)
ON CONFLICT DO NOTHING
"""
CHUNK: Final = """
INSERT INTO chunks (doc_id, generation, position, id, container_id, chunk_no, modality, source_type, block_type, text,
                    embed_text, page, page_end, key_path, heading_path, parent_section, table_id, offset_start, offset_end, content_hash, token_count,
                    windows, tsv, length, provenance, meta, generated)
VALUES (%(doc_id)s, 1, %(chunk_no)s, gen_random_uuid(), 'lamps', %(chunk_no)s, %(modality)s, %(source_type)s,
        %(block_type)s,
        'x', 'x', %(page)s, %(page_end)s, %(key_path)s, %(headings)s, %(parent)s, %(table_id)s, 0, 1, '0', 1, 1, '', 1, '{}', %(meta)s, %(generated)s)
"""

# Wide rows, as chunks are: 10 of each of 1000 documents.
MORE_DOCUMENTS: Final = """
INSERT INTO documents (id, container_id, uri, live_generation)
SELECT md5(n::text)::uuid, 'lamps', 'file:///more/' || n, 1 FROM generate_series(1, 1000) n
"""
MORE_CHUNKS: Final = """
INSERT INTO chunks (doc_id, generation, position, id, container_id, chunk_no, source_type, block_type, text, embed_text,
                    offset_start, offset_end, content_hash, token_count, windows, tsv, length, provenance)
SELECT md5(n::text)::uuid, 1, k, gen_random_uuid(), 'lamps', 1000 + n * 10 + k, 'text', 'paragraph', repeat('x', 1500),
       'x', 0, 1, '0', 1, 1, '', 1, '{}'
FROM generate_series(1, 1000) n, generate_series(0, 9) k
"""


async def fill(db: Database, rows: Sequence[FilterRow]) -> None:
    async with db.transaction() as conn:
        await containers.insert(conn, Manifest(id="lamps", name="Lamps"), "1")
        for row in rows:
            document = {
                "id": row.doc_id,
                "uri": row.uri,
                "language": row.language,
                "modified": row.modified,
                "first_fetched": row.first_fetched,
                "fetched": row.fetched,
                "meta": Jsonb(row.doc_meta),
            }
            await conn.execute(DOCUMENT, document)
            names = (
                "doc_id",
                "chunk_no",
                "modality",
                "source_type",
                "page",
                "page_end",
                "key_path",
                "block_type",
                "parent",
                "table_id",
                "generated",
            )
            chunk = {name: getattr(row, name) for name in names}
            chunk["headings"] = list(row.headings)
            await conn.execute(CHUNK, chunk | {"meta": Jsonb(row.chunk_meta)})


@dataclass
class World:
    """A database with the rows, and the loop it lives in."""

    runner: asyncio.Runner
    db: Database

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def judged(self, written: Mapping[str, Any], meta: MetaFields, limit: int) -> set[int]:
        """By ``allowed``, if that is complete, and by ``live``; both must agree."""
        filter_condition = condition(parse(written, meta))
        assert filter_condition
        async with self.db.reading() as conn:
            allowed = await chunks.allowed(conn, "lamps", filter_condition, limit)
            chunk_nos = np.arange(len(ROWS) + 10, dtype=np.int64)
            live = set(await chunks.live(conn, "lamps", chunk_nos, filter_condition))
        assert allowed.complete is (len(live) <= limit)
        assert set(allowed.chunk_nos.tolist()) == (live if allowed.complete else set())
        assert len(allowed.chunk_nos) == len(allowed.point_ids)
        return live


@pytest.fixture
def world(dsn: str) -> Iterator[World]:
    with asyncio.Runner() as runner:
        db = runner.run(Database.open(dsn, name="test"))
        runner.run(fill(db, ROWS))
        yield World(runner, db)
        runner.run(db.close())


def expected(written: Mapping[str, Any], dated: frozenset[str] = frozenset()) -> set[int]:
    judge = FilterJudge(NOW, dated)
    return {row.chunk_no for row in ROWS if judge.passes(written, row)}


def test_postgres_lets_through_what_a_filter_names_and_nothing_else(world: World) -> None:
    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    @given(filters(ROWS), st.sampled_from([10, 60, 1000]))
    @example({"meta.a.b": {"exists": True}}, 1000)
    @example({"not": {"not": {"meta.year": {"gt": 2020}}}}, 1000)
    def judged(written: dict[str, Any], limit: int) -> None:
        assert world.run(world.judged(written, UNDECLARED, limit)) == expected(written)

    judged()


ORDER: Final = ("eq", "ne", "gt", "gte", "lt", "lte")
EACH: Final[list[dict[str, Any]]] = [
    *({"page": {op: page}} for op in ORDER for page in (1, 3, 4, 5)),
    *({name: {op: date}} for name in ("modified", "ingested") for op in ORDER for date in DATES),
    *({"meta.year": {op: year}} for op in ORDER for year in USUAL["year"] if year is not True),
    *({"meta.when": {op: text}} for op in ORDER for text in (DATES[0], DATES[3], "now")),
    *(
        {"meta.symbols": {op: value}}
        for op in ("eq", "ne", "contains")
        for value in VALUES
        if value != ""
    ),
    *(
        {"symbol": {op: name}}
        for op in ("eq", "ne", "prefix")
        for name in ("a", "b", "ab", "ä", "2020", "true", "A", "A.m")
    ),
    *({"path": glob} for glob in GLOBS),
    *({"path": {"prefix": prefix}} for prefix in ("docs/", "docs/l", "https", "L")),
    *({"key_path": path} for path in KEY_PATHS),
    *({"key_path": {"contains": part}} for part in (".", "api", "%")),
    *({"max_age": age} for age in ("1d", "30d", "6w", "1y")),
    *(
        {name: {"exists": there}}
        for name in (
            "page",
            "modified",
            "ingested",
            "language",
            "key_path",
            "meta.year",
            "meta.a.b.c",
            "symbol",
        )
        for there in (True, False)
    ),
]


def test_each_operator_of_each_field_means_what_it_says(world: World) -> None:
    async def judged() -> list[dict[str, Any]]:
        return [
            written
            for written in EACH
            if await world.judged(written, UNDECLARED, 1000) != expected(written)
        ]

    assert world.run(judged()) == []


def test_fields_declared_as_dates_are_compared_as_moments_and_hold_no_trap(world: World) -> None:
    dated = frozenset({"when"})

    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    @given(filters(ROWS, dated).filter(lambda written: "meta.when" in str(written)))
    def judged(written: dict[str, Any]) -> None:
        assert world.run(world.judged(written, WITH_DATES, 1000)) == expected(written, dated)

    judged()


def test_every_field_parts_the_rows_somewhere() -> None:
    """Otherwise the comparison above would say little."""
    for written in (
        {"path": "docs/**"},
        {"key_path": "services.api"},
        {"page": {"gte": 4, "lte": 5}},
        {"max_age": "30d"},
        {"language": "german"},
        {"meta.year": {"gte": 2020}},
        {"meta.tags": {"contains": "a"}},
        {"modified": "2024-01-31"},
        {"meta.a.b": {"exists": True}},
    ):
        assert 0 < len(expected(written)) < len(ROWS), written


@pytest.mark.parametrize("text", NASTY)
def test_what_looks_like_sql_is_a_value_and_a_name_like_any_other(world: World, text: str) -> None:
    for written in (
        {f"meta.{text}": {"exists": True}},
        {f"meta.{text}.{text}": text},
        {"meta.title": [text]},
        {"meta.title": {"gte": text, "contains": text}},
        {"path": {"contains": text}},
        {"path": f"odd/{text}"},
        {"key_path": text},
    ):
        assert world.run(world.judged(written, UNDECLARED, 1000)) == expected(written)


SUMMARISED: Final = """
INSERT INTO summaries (doc_id, generation, state, front_matter, model, prompt_version, input_hash)
VALUES (%(doc_id)s, %(generation)s, %(state)s, %(front_matter)s, 'tests/writer', 'summary-1', '')
"""
FRONT_MATTER: Final = {
    "doc_id": "5f6c",
    "source_path": "guides/pkce.md",
    "language": "english",
    "product_tags": ["Next.js", "Auth.js"],
    "last_updated": "2026-01-31",
    "key_topics": ["PKCE", "code verifier"],
    "api_symbols": ["createVerifier()"],
    "related_files": ["lib/pkce.ts"],
    "suggested_queries": ["How is PKCE configured?"],
}


@pytest.mark.parametrize(
    "holds",
    [
        {"summary.doc_id": "5f6c"},
        {"summary.source_path": {"prefix": "guides/"}},
        {"summary.language": ["english", "german"]},
        {"summary.product_tags": "Auth.js"},
        {"summary.last_updated": "2026-01-31"},
        {"summary.last_updated": {"gte": "2026-01-01", "lt": "2026-02-01"}},
        {"summary.key_topics": {"contains": "verifier"}},
        {"summary.api_symbols": {"eq": "createVerifier()"}},
        {"summary.related_files": {"contains": "pkce"}},
        {"summary.suggested_queries": {"exists": True}},
        {"summary.key_topics": {"ne": "OAuth"}, "summary.product_tags": {"prefix": "Next"}},
    ],
)
@pytest.mark.parametrize("lies", [False, True])
def test_each_field_of_a_summary_filters_the_chunks_of_its_document(
    world: World, holds: dict[str, Any], lies: bool
) -> None:
    done, *others = sorted({row.doc_id for row in ROWS})[:4]
    # Of another generation, failed, and with fields of other types, as an archive may hold them.
    rows = [
        (done, 1, "done", {"key_topics": ["OAuth"]} if lies else FRONT_MATTER),
        (others[0], 2, "done", FRONT_MATTER),
        (others[1], 1, "failed", FRONT_MATTER),
        (others[2], 1, "done", {"key_topics": {"PKCE": 1}, "last_updated": "soon"}),
    ]

    async def judged() -> set[int]:
        async with world.db.transaction() as conn:
            for doc_id, generation, state, fields in rows:
                values = {"doc_id": doc_id, "generation": generation, "state": state}
                await conn.execute(SUMMARISED, values | {"front_matter": Jsonb(fields)})
        return await world.judged(holds, UNDECLARED, 1000)

    found = world.run(judged())
    own = {row.chunk_no for row in ROWS if row.doc_id == done}
    assert own
    assert own & found == (set() if lies else own)
    if "ne" not in str(holds):
        assert found <= own, "nothing of another generation, of a failed one or of another form"


def test_an_invisible_document_is_not_let_through_by_any_filter(world: World) -> None:
    async def hidden() -> set[int]:
        async with world.db.transaction() as conn:
            await conn.execute("UPDATE documents SET deleted_at = now()")
        return await world.judged({"not": {"meta.year": 5}}, UNDECLARED, 1000)

    assert world.run(hidden()) == set()


@pytest.mark.parametrize("written", [{"meta.year": 2020}, {"path": "docs/**"}], ids=str)
def test_chunks_of_matching_documents_are_listed_without_reading_them(
    world: World, written: dict[str, Any]
) -> None:
    async def plan() -> str:
        filter_condition = condition(parse(written))
        assert filter_condition.where is not None
        statement = SQL("EXPLAIN ") + chunks.ALLOWED.format(condition=filter_condition.where)
        async with world.db.reading() as conn:
            for fill in (MORE_DOCUMENTS, MORE_CHUNKS, "VACUUM ANALYZE chunks, documents"):
                await conn.execute(fill)
            values = {
                "container_id": "lamps",
                "limit": 5000,
                "collection_id": None,
                **filter_condition.values,
            }
            lines = await (await conn.execute(statement, values)).fetchall()
        return "\n".join(line["QUERY PLAN"] for line in lines)

    assert "Index Only Scan using chunks_document" in world.run(plan())


def test_no_filter_is_no_condition() -> None:
    assert not condition(None)
    assert condition(None) == FilterCondition()


_WORDS: Final = st.sampled_from(["docs", "lamp.md", "a", "", "Ä", "a+b", "x.y"])
_PATTERNS: Final = st.lists(
    st.text("*?ab.+[", max_size=4) | st.sampled_from(["**", "docs", "*.md"]), min_size=1, max_size=4
).map("/".join)


def test_a_glob_means_the_same_to_postgres_as_to_a_reader(world: World) -> None:
    async def matched(pairs: Sequence[tuple[str, str]]) -> list[bool]:
        async with world.db.reading() as conn:
            cursor = await conn.execute(
                """SELECT path COLLATE "C" ~ pattern AS fits
                FROM unnest(%(paths)s::text[], %(patterns)s::text[]) WITH ORDINALITY AS u(path, pattern, n) ORDER BY n""",
                {"paths": [p for p, _ in pairs], "patterns": [glob_pattern(g) for _, g in pairs]},
            )
            return [row["fits"] for row in await cursor.fetchall()]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(
            st.tuples(
                st.lists(_WORDS | st.text("ab./+", max_size=4), min_size=1, max_size=4).map(
                    "/".join
                ),
                _PATTERNS.filter(
                    lambda glob: not glob.endswith("/") and not glob.startswith("/")
                ).filter(bool)
                | st.sampled_from(
                    [g for g in GLOBS if not g.endswith("/") and not g.startswith("/")]
                ),
            ),
            min_size=1,
            max_size=20,
        )
    )
    def judged(pairs: list[tuple[str, str]]) -> None:
        assert world.run(matched(pairs)) == [fits(glob, path) for path, glob in pairs]

    judged()
