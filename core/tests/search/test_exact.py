"""The exact channel against plain substring and pattern search over the same texts."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import pytest

from latent_core.bm25.analyser import analyse
from latent_core.bm25.exact import CandidateText, ExactIndex
from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.db.documents import documents
from latent_core.db.documents.documents import LiveGeneration, SourceInfo
from latent_core.domain.chunk import BlockType, DraftChunk, SourcePlace, SourceType, number
from latent_core.domain.errors import Invalid
from latent_core.domain.ids import content_hash
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest.publish import StagedChunk, StagedGeneration, publish
from latent_core.search.exact import ExactQuery, Match, Matcher, exact_matches

NOW = datetime(2026, 11, 21, tzinfo=UTC)
WAIT = 30.0
LINEAGE = {
    "handler": "test",
    "handler_version": "1",
    "embedder": "local",
    "embedder_version": "1",
}


async def found_container(database: Database) -> None:
    async with database.transaction() as conn:
        await containers.insert(conn, Manifest(id="code", name="Code"), "etag")
        await containers.insert_space(conn, "code", "local", "1", 4)


async def publish_texts(database: Database, path: str, texts: Sequence[str]) -> list[int]:
    """A generation of one document whose chunks are ``texts``, a line each; their chunk_nos."""
    source = SourceInfo("code", f"file:///{path}", "text/plain")
    async with database.transaction() as conn:
        request = await documents.accept(conn, source)
        attempts = await documents.take_generations(conn, [source.doc_id], request)
        first = await containers.take_chunk_nos(conn, "code", len(texts))
        assert first is not None
        drafts = [_draft(text, line) for line, text in enumerate(texts, start=1)]
        made = number(source.doc_id, drafts, range(first, first + len(drafts)))
        live = LiveGeneration("T", "code", "0" * 64, 1, "simple", "p", len(made), "text/plain", {})
        staged = StagedGeneration(
            doc_id=source.doc_id,
            generation=attempts[source.doc_id].generation,
            live=live,
            chunks=[StagedChunk.of(c, analyse(c.draft.text, "simple"), 1) for c in made],
            provenance=LINEAGE,
            request=request,
            fetched_at=NOW,
        )
        await publish(conn, "code", [staged])
    return [c.chunk_no for c in made]


def _draft(text: str, line: int) -> DraftChunk:
    place = SourcePlace(0, len(text), line_start=line, line_end=line + text.count("\n"))
    return DraftChunk(
        text, text, place, SourceType.CODE, BlockType.CODE, content_hash(text), len(text.split())
    )


async def matches(database: Database, query: ExactQuery) -> list[Match]:
    found = await exact_matches(ExactIndex(database), "code", Matcher(query), timeout_seconds=WAIT)
    assert found.complete
    return found.ranked()


def oracle(query: ExactQuery, text: str) -> bool:
    flags = re.IGNORECASE if query.ignore_case else 0
    terms = all(re.search(re.escape(t), text, flags) for t in query.must_terms)
    return terms and (
        not query.regexes or any(re.search(r, text, flags | re.MULTILINE) for r in query.regexes)
    )


async def test_it_finds_exactly_the_chunks_that_hold_the_query(database: Database) -> None:
    await found_container(database)
    rng = random.Random(5)
    words = [
        "getUserName",
        "get_user",
        "Straße",
        "日本語",
        "x",
        "HTTPServer2",
        "foo.bar()",
        "\n",
        "  ",
    ]
    texts = ["".join(rng.choices(words, k=rng.randint(1, 300))) for _ in range(60)]
    chunk_nos = await publish_texts(database, "src/a.py", texts)
    queries = [
        ExactQuery(must_terms=("getUser",)),
        ExactQuery(must_terms=("getuser",), ignore_case=True),
        ExactQuery(must_terms=("x", "日本")),
        ExactQuery(regexes=(r"foo\.bar\(\)get_\w+", r"^x$")),
        ExactQuery(must_terms=("Server2x",), regexes=(r"[A-Z]{4}S\w+r2Straße",)),
        ExactQuery(must_terms=("NAME日",), ignore_case=True),
    ]
    for query in queries:
        expected = {o for o, text in zip(chunk_nos, texts, strict=True) if oracle(query, text)}
        assert {m.chunk_no for m in await matches(database, query)} == expected, query


async def test_what_was_replaced_is_not_found_and_what_replaced_it_is(database: Database) -> None:
    await found_container(database)
    await publish_texts(database, "a.py", ["old_secret_name = 1"])
    (new,) = await publish_texts(database, "a.py", ["new_secret_name = 2"])
    assert await matches(database, ExactQuery(must_terms=("old_secret",))) == []
    assert [
        m.chunk_no for m in await matches(database, ExactQuery(must_terms=("secret_name",)))
    ] == [new]


async def test_lines_are_those_of_the_source(database: Database) -> None:
    await found_container(database)
    await publish_texts(database, "a.py", ["one\r\ntwo needle\rthree\nneedle needle"])
    (match,) = await matches(database, ExactQuery(must_terms=("needle",)))
    assert match.found[0].lines == (2, 4)
    assert match.count == 3


def test_lines_leave_out_a_repeated_header() -> None:
    text = CandidateText(
        1, content_doc(), "| name |\n|---|\n| a name |\n| b |\n", 40, 15, "file:///t.md"
    )
    match = Matcher(ExactQuery(must_terms=("name",))).judge(text)
    assert match is not None
    assert match.found[0].lines == (40,)
    only_header = dataclasses.replace(text, text="| name |\n|---|\n| a |\n")
    assert Matcher(ExactQuery(must_terms=("name",))).judge(only_header) is not None


def content_doc() -> UUID:
    return SourceInfo("code", "file:///t.md", "text/plain").doc_id


async def test_paths_are_globs_or_parts_of_paths(database: Database) -> None:
    await found_container(database)
    chunk_nos = {
        path: (await publish_texts(database, path, ["shared words"]))[0]
        for path in ("root/src/app.py", "root/src/app.ts", "root/100%/_x.py")
    }

    async def paths(path_like: str) -> set[str]:
        found = {m.chunk_no for m in await matches(database, ExactQuery(path_like=path_like))}
        return {path for path, chunk_no in chunk_nos.items() if chunk_no in found}

    assert await paths("SRC/app") == {"root/src/app.py", "root/src/app.ts"}
    assert await paths("*.py") == {"root/src/app.py", "root/100%/_x.py"}
    assert await paths("100%") == {"root/100%/_x.py"}
    assert await paths("src/app.?s") == {"root/src/app.ts"}


@pytest.mark.parametrize(
    "pattern", ["(", r"(a)\1", "(?=x)", "x{1001}", r"((((a{30}){30}){30}){30})"]
)
def test_a_pattern_that_cannot_be_used_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(Invalid, match="cannot be used"):
        Matcher(ExactQuery(regexes=(pattern,)))


def test_a_catastrophic_pattern_takes_linear_time() -> None:
    text = CandidateText(1, content_doc(), "a" * 50_000 + "b", None, 0, "file:///t.md")
    assert Matcher(ExactQuery(regexes=("(a+)+$",))).judge(text) is None
