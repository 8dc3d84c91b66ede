"""Filters in a running installation: on every channel the same chunks, those that a naive reading names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import orjson
import pymupdf
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings, strategies as st

from latent_client import AsyncClient
from latent_core.bm25.names import is_name
from latent_core.domain.filters.model import CHUNK_META, PARSED_META
from latent_core.domain.manifest.model import Manifest, SearchMode
from latent_core.search.constraints import SELECTIVE
from latent_core.wire.search import Hit, SearchRequest, SearchResponse
from tests.conftest import DIMS
from tests.http.test_http_surface import ingest, settled
from tests.support.harness.installation import Installation
from tests.support.oracles.filter_oracle import FilterJudge, FilterRow, filters
from tests.support.oracles.naive_facets import NaiveFacet, assert_counted

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

MODES: Final = (SearchMode.LEXICAL, SearchMode.SEMANTIC, SearchMode.HYBRID)
HEALTH: Final = list(HealthCheck)
FEW: Final = "few"
MANY: Final = "many"
RECORDS: Final = SELECTIVE + 200
RARE: Final = 90
"""Records that say ``beacon``."""


def manifest(container_id: str, **more: Any) -> Manifest:
    return Manifest(id=container_id, name=container_id, embedder="openai/test", dims=DIMS, **more)


def pdf(pages: int) -> bytes:
    with pymupdf.open() as document:
        for n in range(pages):
            document.new_page().insert_text((72, 72), f"The lamp of page {n + 1} is lit at dusk.")
        return bytes(document.tobytes())


def jsonl(records: Sequence[dict[str, Any]]) -> bytes:
    return b"\n".join(orjson.dumps(record) for record in records)


GERMAN: Final = "Die lamp ist nicht an, und das ist für die Schiffe auf dem Meer nicht gut.\n"
YAML: Final = (
    "services:\n  api:\n    lamp: lit\n    ports:\n      - 80\nserv:\n  lamp: out\n"
    + "# lamp\n" * 3
)
FILES: Final[Sequence[tuple[str, str, bytes, dict[str, Any]]]] = (
    ("guide.md", "file:///docs/guide/lamp.md", b"---\nyear: 2020\ntags: [a, b]\nflag: true\nabout: lamp\n---\n# Lamp\n\nThe lamp is lit.\n", {}),
    ("lamp.md", "file:///docs/lamp.md", GERMAN.encode(), {"year": 2021, "when": "2024-01-31"}),
    ("lamp_2.py", "file:///docs/deep/er/lamp_2.py", b"def lamp() -> str:\n    return 'lit'\n", {"a": {"b": 1}}),
    ("lamp.txt", "file:///lamp.txt", b"The lamp is out.\n", {"a.b": "b", "year": "2020"}),
    ("lamp.yaml", "file:///conf/lamp.yaml", YAML.encode(), {"flag": False}),
    ("lamp.pdf", "file:///docs/lamp.pdf", pdf(9), {"year": 2020.5}),
)  # fmt: skip
RECORDED: Final = [
    {
        "_id": f"r{n}",
        "title": "",
        "text": f"The lamp number {n} is lit.",
        "year": 2018 + n % 5,
        "tags": ["a", "b"][: n % 3],
        "when": f"2024-0{1 + n % 6}-01",
    }
    for n in range(30)
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rows(installation: Installation) -> dict[str, FilterRow]:
    """What a filter may ask of the chunks of ``few``, by chunk id; as an unfiltered search shows it."""
    async with installation.client() as client:
        await client.create(manifest(FEW))
        for name, uri, data, meta in FILES:
            await ingest(client, FEW, name, data, source_uri=uri, meta=meta)
        await ingest(client, FEW, "c.jsonl", jsonl(RECORDED))
        await settled(client, FEW)  # drawn pages tell chunks theirs
        documents = {str(d.doc_id): d async for d in client.documents(FEW)}
        parents = {c.chunk_id: c.parent_section async for c in client.chunks(FEW)}
        worded = await search(client, FEW, {}, SearchMode.LEXICAL)
        answer = await search(client, FEW, {}, SearchMode.SEMANTIC)
    assert len(answer.hits) > 40
    assert {h.text for h in worded.hits} == {h.text for h in answer.hits}, "all say lamp"
    return {
        str(hit.chunk_id): _row(n, hit, documents[str(hit.doc_id)], parents[hit.chunk_id])
        for n, hit in enumerate(answer.hits)
    }


def _row(n: int, hit: Hit, document: Any, parent: str | None) -> FilterRow:
    return FilterRow(
        chunk_no=n,
        doc_id=hit.doc_id,
        uri=hit.source_uri,
        source_type=hit.source_type,
        modality=hit.modality,
        language=document.language,
        key_path=hit.place.key_path,
        block_type=hit.block_type,
        headings=tuple(filter(None, hit.place.heading_path.split(" > "))),
        parent=parent,
        table_id=hit.place.table_id,
        page=hit.place.page,
        page_end=hit.place.page_end,
        modified=hit.modified_at,
        first_fetched=document.first_fetched_at,
        fetched=hit.fetched_at,
        doc_meta=hit.meta,
    )


async def search(
    client: AsyncClient,
    container: str,
    filters_given: dict[str, Any],
    mode: SearchMode,
    **more: Any,
) -> SearchResponse:
    """An answer that is whole: on a busy machine a channel may be late."""
    request = {"query": "lamp", "top_k": 100, "dedup": False, "diagnostics": True} | more
    for _ in range(20):
        answer = await client.search(
            SearchRequest(containers=[container], mode=mode, filters=filters_given, **request)
        )
        if not answer.partial:
            return answer
    raise AssertionError(f"no whole answer: {answer.issues}")


@settings(max_examples=40, deadline=None, suppress_health_check=HEALTH)
@given(data=st.data())
async def test_a_filter_lets_the_same_chunks_through_on_every_channel(
    client: AsyncClient, rows: dict[str, FilterRow], data: st.DataObject
) -> None:
    filters_given = data.draw(filters(list(rows.values())))
    judge = FilterJudge(datetime.now(UTC))
    expected = {chunk for chunk, row in rows.items() if judge.passes(filters_given, row)}
    for mode in MODES:
        answer = await search(client, FEW, filters_given, mode)
        found = {str(hit.chunk_id) for hit in answer.hits}
        assert found == expected, (mode, filters_given, answer.issues, found ^ expected)


FACETS: Final = (
    "source_type",
    "language",
    "max_age",
    "meta.year",
    "meta.tags",
    "meta.a",
    "meta.a.b",
    "meta.symbols",
)


@settings(max_examples=25, deadline=None, suppress_health_check=HEALTH)
@given(data=st.data())
async def test_facets_count_the_documents_that_a_naive_reading_counts(
    client: AsyncClient, rows: dict[str, FilterRow], data: st.DataObject
) -> None:
    filters_given = data.draw(st.one_of(st.just({}), filters(list(rows.values()))))
    query = data.draw(st.sampled_from(["lamp", "lit", "number 3", "of page", "zeppelin"]))
    mode = data.draw(st.sampled_from(MODES))
    more: dict[str, Any] = data.draw(
        st.sampled_from([{}, {"must_terms": ["lit"]}, {"path_like": "docs/*"}])
    )
    judge = FilterJudge(datetime.now(UTC))
    words = await search(client, FEW, {}, SearchMode.LEXICAL, query=query)
    exact = await search(client, FEW, {}, SearchMode.SEMANTIC, query=query, **more)
    counted = {str(h.chunk_id) for h in exact.hits}
    if mode is SearchMode.LEXICAL or (words.hits and mode is SearchMode.HYBRID):
        counted &= {str(h.chunk_id) for h in words.hits}
    matching = [rows[chunk] for chunk in counted if judge.passes(filters_given, rows[chunk])]

    fields = list(FACETS)
    answer = await search(client, FEW, filters_given, mode, query=query, facets=fields, **more)

    assert set(answer.facets) == set(FACETS)
    for name, facet in answer.facets.items():
        assert_counted(facet, NaiveFacet.of(name, matching))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("colour", "facets[1]: is an unknown field"),
        ("page", "facets[1]: 'page' cannot be counted; use source_type"),
        ("meta.", "facets[1]: the name of a meta field"),
    ],
)
async def test_a_facet_that_cannot_be_counted_is_a_named_issue(
    http: httpx.AsyncClient, rows: dict[str, FilterRow], name: str, message: str
) -> None:
    body = {"containers": [FEW], "query": "lamp", "top_k": 1, "facets": ["language", name]}
    answer = await http.post("/v1/search", json=body)
    assert answer.status_code == 400
    (issue,) = answer.json()["issues"]
    assert issue["code"] == "INVALID"
    assert message in issue["message"]


async def test_facets_of_several_containers_are_added_and_list_the_frequent_values(
    client: AsyncClient, rows: dict[str, FilterRow]
) -> None:
    for part, days in (("first", range(80)), ("second", range(70, 100))):
        await client.create(manifest(f"facets-{part}"))
        records = [{"_id": f"{n}", "text": "A tern.", "day": n, "odd": n % 2 == 1} for n in days]
        await ingest(client, f"facets-{part}", "c.jsonl", jsonl(records))

    request = SearchRequest(
        containers=["facets-first", "facets-second"],
        query="tern",
        top_k=1,
        mode=SearchMode.LEXICAL,
        facets=["meta.day", "meta.odd", "session", "container"],
        diagnostics=True,
    )
    answer = await client.search(request)

    days_facet, odd, session, container = (answer.facets[name] for name in request.facets)
    assert [(one.value, one.count) for one in container.values] == [
        ("facets-first", 80),
        ("facets-second", 30),
    ]
    assert (container.documents, container.missing, container.other_values) == (110, 0, 0)
    assert answer.diagnostics is not None
    lengths = {
        one.container_id: one.list_lengths["bm25"] for one in answer.diagnostics.container_status
    }
    assert lengths == {"facets-first": 80, "facets-second": 30}
    assert [(one.value, one.count) for one in days_facet.values][:10] == [
        (n, 2) for n in range(70, 80)
    ]
    assert (len(days_facet.values), days_facet.other_values, days_facet.other_count) == (50, 50, 50)
    assert [(one.value, one.count) for one in odd.values] == [(False, 55), (True, 55)]
    assert (session.values, session.documents, session.missing) == ([], 110, 110)
    again = request.model_copy(update={"facets": [], "cursor": answer.next_cursor})
    assert (await client.search(again)).hits, "facets do not belong to the query of a cursor"


async def test_the_applied_filter_is_reported_and_parses_to_itself(
    client: AsyncClient, rows: dict[str, FilterRow]
) -> None:
    filters_given = {
        "path": "docs/**",
        "language": "de",
        "or": [{"meta.year": 2021}, {"max_age": "30d"}],
    }
    answer = await search(client, FEW, filters_given, SearchMode.HYBRID)
    assert answer.diagnostics is not None
    message = answer.diagnostics.applied_filters
    assert message == {
        "path": {"glob": "docs/**"},
        "language": ["german"],
        "or": [{"meta.year": [2021]}, {"max_age": "30d"}],
    }
    again = await search(client, FEW, message, SearchMode.HYBRID)
    assert [h.chunk_id for h in again.hits] == [h.chunk_id for h in answer.hits]
    assert {h.source_path for h in answer.hits} == {"docs/lamp.md"}


async def test_what_parsers_write_of_their_own_accord_is_known(
    client: AsyncClient, rows: dict[str, FilterRow]
) -> None:
    own = {"about", "year", "tags", "flag", "when", "a", "a.b"}
    assert {name for row in rows.values() for name in row.doc_meta} <= PARSED_META | own
    answer = await search(client, FEW, {"meta.symbols": {"contains": "lamp"}}, SearchMode.LEXICAL)
    assert {h.source_path for h in answer.hits} == {"docs/deep/er/lamp_2.py"}
    assert set(answer.hits[0].meta) & CHUNK_META


async def test_a_definition_is_found_by_its_name_and_by_the_names_around_it(
    client: AsyncClient,
) -> None:
    source = (
        b"class Lamp:\n    wick = 1\n\n    def close(self):\n        return 'lamp'\n\n"
        b"class Door:\n    def close(self):\n        return 'lamp'\n\n    def close_all(self): return 'lamp'\n"
    )
    await client.create(manifest("defined"))
    await ingest(client, "defined", "a.py", source)

    async def found(symbol: Any) -> list[int | None]:
        answer = await search(client, "defined", {"symbol": symbol}, SearchMode.HYBRID)
        return sorted(hit.place.line_start or 0 for hit in answer.hits)

    assert await found("close") == [4, 8]
    assert await found("Door.close") == [8]
    assert await found(["wick", "close_all"]) == [11]
    assert await found({"prefix": "Door"}) == [7, 8, 11]
    assert await found({"contains": "_all"}) == [11]
    assert await found("lose") == []
    calls = b"def calls():\n    trim_wick(1)\n    trim_wick(2)\n\n\ndef trim_wick(n):\n    step()\n    step()\n    stop()\n"
    await ingest(client, "defined", "b.py", calls)
    request = SearchRequest(
        containers=["defined"], query="trim wick", top_k=1, mode=SearchMode.LEXICAL
    )
    assert (await client.search(request)).hits[0].place.line_start == 6
    async for chunk in client.chunks("defined", meta={"symbol": "close_all"}):
        assert (chunk.meta["parents"], chunk.place.line_start) == (["Door"], 11)


@pytest.mark.parametrize("query", ["trim lamp", "trimLamp", "where is trim lamp defined"])
async def test_the_words_of_a_name_find_its_definition_before_longer_names_and_uses(
    client: AsyncClient, query: str
) -> None:
    uses = "def trim_lamp_now(lamp):\n    trim_lamp(lamp)\n    trim_lamp(lamp)\n\n\n"
    source = uses + "def trim_lamp(lamp):\n" + "    rest()\n" * 40
    if "named" not in {one.id for one in await client.containers()}:
        await client.create(manifest("named"))
        await ingest(client, "named", "c.py", source.encode())
    request = SearchRequest(
        containers=["named"], query=query, top_k=1, mode=SearchMode.LEXICAL, diagnostics=True
    )
    answer = await client.search(request)
    assert answer.hits[0].meta["symbol"] == "trim_lamp"
    assert answer.diagnostics
    assert not any(map(is_name, answer.diagnostics.terms["named"]))


async def test_names_are_searched_where_all_comments_are_in_another_language(
    client: AsyncClient,
) -> None:
    comment = "# Die Lampe wird nicht mehr gebraucht, wenn sie in der Nacht aus ist und wir sie nicht sehen.\n"
    uses = "def trim_lamp_now(lamp):\n    trim_lamp(lamp)\n    trim_lamp(lamp)\n\n\n"
    source = comment + uses + comment + "def trim_lamp(lamp):\n" + "    rest()\n" * 40
    await client.create(manifest("german"))
    await ingest(client, "german", "c.py", source.encode())
    assert [one.language async for one in client.documents("german")] == ["german"]
    answer = await search(client, "german", {}, SearchMode.LEXICAL, query="trim lamp")
    assert answer.hits[0].meta["symbol"] == "trim_lamp"


async def test_a_schema_limits_the_fields_of_its_container(client: AsyncClient) -> None:
    schema = {"year": "integer", "when": "date"}
    await client.create(manifest("declared", metadata={"custom_schema": schema}))
    await ingest(
        client, "declared", "a.txt", b"The lamp.", meta={"year": 2020, "when": "2024-01-31T10:00"}
    )
    for filters_given in ({"meta.year": {"gte": 2020}}, {"meta.when": {"lte": "2024-01-31"}}):
        assert (await search(client, "declared", filters_given, SearchMode.HYBRID)).hits, (
            filters_given
        )
    assert not (
        await search(client, "declared", {"meta.when": {"gt": "2024-01-31"}}, SearchMode.HYBRID)
    ).hits


def nested(depth: int) -> dict[str, Any]:
    filters_given: dict[str, Any] = {"page": 1}
    for _ in range(depth):
        filters_given = {"not": filters_given}
    return filters_given


@pytest.mark.parametrize(
    ("filters_given", "message"),
    [
        (nested(100), "filters.not.not"),
        ({"meta.a": "b\x00"}, "meta.a: must not contain the control character U+0000"),
        ({"meta.a\x00": 1}, "control character U+0000"),
        ({"meta.a": "\ud800"}, "lone surrogate"),
        ({"meta.a": list(range(10_000))}, "exceeds the limit of 1000 values per filter"),
        ({"colour": "red"}, "colour: is an unknown field"),
        ({"page": "three"}, "page: must be a page number"),
    ],
)
async def test_a_filter_that_cannot_be_read_is_a_named_issue(
    http: httpx.AsyncClient, rows: dict[str, FilterRow], filters_given: dict[str, Any], message: str
) -> None:
    body = {"containers": [FEW], "query": "lamp", "top_k": 1, "filters": filters_given}
    answer = await http.post(
        "/v1/search",
        content=json.dumps(body).encode("ascii"),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 400
    (issue,) = answer.json()["issues"]
    assert issue["code"] == "INVALID"
    assert message in issue["message"]


def record(n: int) -> dict[str, Any]:
    """One that says ``beacon`` says ``lamp`` so often that it comes before all others."""
    rare = n % (RECORDS // RARE) == 0
    text = "beacon lamp lamp lamp lamp" if rare else f"The lamp of the tower number {n} is lit."
    return {"_id": f"r{n}", "title": "", "text": text, "year": 2018 + n % 5, "rare": rare, "n": n}


@pytest.mark.slow
async def test_broad_filters_hold_as_well_and_are_filled_from_further_down(
    installation: Installation, client: AsyncClient
) -> None:
    await client.create(manifest(MANY))
    written = [record(n) for n in range(RECORDS)]
    await ingest(client, MANY, "c.jsonl", jsonl(written))
    rare = {r["_id"] for r in written if r["rare"]}

    for bound, year in ((0, 2018), (40, 2019), (150, 2021), (190, 2023)):
        filters_given = {"or": [{"meta.n": {"gte": bound}}, {"meta.year": year}]}
        passing = {r["_id"] for r in written if r["n"] >= bound or r["year"] == year}
        assert len(passing) > SELECTIVE
        answer = await search(client, MANY, filters_given, SearchMode.LEXICAL, query="beacon")
        assert {hit.external_id for hit in answer.hits} == rare & passing
    for mode in MODES:
        answer = await search(client, MANY, {"meta.rare": False}, mode)
        assert len(answer.hits) == 100, mode
        assert not {hit.external_id for hit in answer.hits} & rare
