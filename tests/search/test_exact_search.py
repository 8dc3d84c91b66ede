"""Searches for what is written as it is written: terms, expressions, paths and quoted phrases, alone and beside a query."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import pytest_asyncio

from latent_client import AsyncClient, hybrid_search, retrieve_top_k, search_sources
from latent_core.domain.manifest.model import Fusion, FusionMethod
from latent_core.wire.search import SearchRequest
from tests.http.test_http_surface import ingest, manifest, settled
from tests.mcp.test_mcp import answered, connected

pytestmark = pytest.mark.asyncio(loop_scope="module")

LAMP = """# Lamps

The rotation of the lamp is set in the keeper's configuration.

Set `LAMP_ROTATION_SECONDS` before lighting. The lamp of rotation is another thing.
"""
CODE = """import time


def getLampRotation(seconds):
    return seconds * 2


class LampKeeper:
    def wind(self):
        return getLampRotation(30)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stocked(installation: Any) -> None:
    async with installation.client() as client:
        await client.create(manifest("exact"))
        await ingest(client, "exact", "lamps.md", LAMP.encode(), source_uri="file:///docs/lamps.md")
        await ingest(client, "exact", "lamp.py", CODE.encode(), source_uri="file:///src/lamp.py")
        filler = "\n\n".join(f"Note {n} about fog and rotation of crews." for n in range(30))
        await ingest(client, "exact", "notes.txt", filler.encode(), source_uri="file:///notes.txt")


async def ask(http: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await http.post(
        "/v1/containers/search", json={"containers": ["exact"], "top_k": 10, **body}
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.usefixtures("stocked")
class TestExactSearch:
    async def test_a_term_alone_finds_the_lines_that_hold_it(self, http: httpx.AsyncClient) -> None:
        answer = await ask(http, must_terms=["getLampRotation"], dedup=False)
        assert {hit["source_path"] for hit in answer["hits"]} == {"src/lamp.py"}
        reasons = [reason for hit in answer["hits"] for reason in hit["why"]]
        assert {(r["channel"], r["term"]) for r in reasons} == {("exact", "getLampRotation")}
        assert sorted((r["lines"], r["count"]) for r in reasons) == [([4], 1), ([10], 1)]
        assert not answer["partial"]

    async def test_case_counts_unless_it_is_ignored(self, http: httpx.AsyncClient) -> None:
        assert (await ask(http, must_terms=["getlamprotation"]))["hits"] == []
        assert (await ask(http, must_terms=["getlamprotation"], ignore_case=True))["hits"]

    async def test_an_expression_narrows_a_query_and_is_a_reason_of_its_own(
        self, http: httpx.AsyncClient
    ) -> None:
        answer = await ask(
            http, query="rotation of crews in fog", regexes=[r"LAMP_\w+_SECONDS"], dedup=False
        )
        (hit,) = answer["hits"]
        assert hit["source_path"] == "docs/lamps.md"
        channels = {reason["channel"] for reason in hit["why"]}
        assert "exact" in channels
        assert len(channels) > 1

    async def test_a_path_keeps_everything_else_out(self, http: httpx.AsyncClient) -> None:
        answer = await ask(http, query="lamp rotation", path_like="*.py", dedup=False)
        assert {hit["source_path"] for hit in answer["hits"]} == {"src/lamp.py"}
        assert all(any(r["path"] for r in hit["why"]) for hit in answer["hits"])

    async def test_a_match_on_a_later_page_of_a_chunk_has_that_page_everywhere(
        self, http: httpx.AsyncClient, client: AsyncClient, installation: Any
    ) -> None:
        """A window of code covers two pages; its images are drawn from the text after publication."""
        lines = [f"berth_{n} = {n}" for n in range(150)]
        lines[128] = "redirect_uri = berth_3  # the only one"
        source = "\n".join(lines).encode()
        await ingest(client, "exact", "auth.py", source, source_uri="file:///src/auth.py")
        await settled(client, "exact")
        (hit,) = (await ask(http, must_terms=["redirect_uri"]))["hits"]
        assert (hit["place"]["page"], hit["place"]["page_end"]) == (1, 2)
        (reason,) = hit["why"]
        assert (reason["lines"], reason["page"], hit["provenance"]["page"]) == ([129], 2, 2)
        first, second = hit["page_uris"]
        assert hit["page_uri"] == hit["uri"] == second
        assert "redirect_uri" in hit["snippet"]
        page = (await client.page(hit["doc_id"], 2)).text
        assert "redirect_uri" in page
        (early,) = (await ask(http, must_terms=["berth_7 ="]))["hits"]
        assert (early["provenance"]["page"], early["page_uri"]) == (1, early["page_uris"][0])
        assert early["page_uri"].partition("?")[0] == first.partition("?")[0]
        async with connected(installation, "legacy", path="/mcp/connector") as connector:
            found = await answered(connector, "search", query="redirect_uri")
            result = next(r for r in found["results"] if hit["chunk_id"] in r["id"])
            fetched = await answered(connector, "fetch", id=result["id"])
        assert fetched["metadata"]["page"] == "2"
        assert fetched["url"] == result["url"]
        assert fetched["url"].endswith(f"?chunk={hit['chunk_id']}&page=2")

    async def test_a_quoted_phrase_must_occur_verbatim(self, http: httpx.AsyncClient) -> None:
        for mode in ("lexical", "semantic", "hybrid"):
            given_answer = await ask(http, query='"rotation of the lamp"', mode=mode, dedup=False)
            assert {hit["source_path"] for hit in given_answer["hits"]} == {"docs/lamps.md"}, mode
            assert (await ask(http, query='"crews of fog"', mode=mode))["hits"] == []

    async def test_a_quoted_word_is_found_in_this_form_only_and_without_quotes_in_all(
        self, http: httpx.AsyncClient
    ) -> None:
        for mode in ("lexical", "semantic", "hybrid"):
            for query in ('"rotations"', '"lamps of rotation"', '"lamp rotation"'):
                assert (await ask(http, query=query, mode=mode))["hits"] == [], (query, mode)
            found = await ask(http, query='"ROTATION of the Lamp"', mode=mode)
            (hit,) = found["hits"]
            assert "rotation of the lamp" in [
                hit["snippet"][start:end] for start, end in hit["highlights"]
            ]
        assert (await ask(http, query="rotations", mode="lexical"))["hits"]

    async def test_a_phrase_of_stop_words_is_a_condition_too(self, http: httpx.AsyncClient) -> None:
        found = await ask(http, query='lamp "is another"', dedup=False)
        assert {hit["source_path"] for hit in found["hits"]} == {"docs/lamps.md"}
        assert (await ask(http, query='lamp "of before"'))["hits"] == []

    async def test_the_plan_in_words_says_what_quotes_do(self, http: httpx.AsyncClient) -> None:
        async def plan(query: str) -> str:
            answer = await ask(http, query=query, explain=True)
            return " ".join(answer["diagnostics"]["plan"])

        assert 'contain "rotation" in this form: no stems' in await plan('"rotation"')
        prose = await plan('which of the notes that the keeper wrote tells about "crews" there')
        assert "The quotes have no effect" in prose
        assert "quotes" not in await plan("rotation")

    async def test_quotes_within_prose_ask_nothing_by_themselves(
        self, http: httpx.AsyncClient
    ) -> None:
        question = 'which of the notes that the keeper wrote tells us about "crews of fog" there'
        assert (await ask(http, query=question))["hits"]

    async def test_an_invalid_pattern_is_refused_by_name(self, http: httpx.AsyncClient) -> None:
        for body, word in (
            ({"regexes": ["("]}, "cannot be used"),
            ({"regexes": ["(?=a)"]}, "cannot be used"),
            ({"regexes": ["a"] * 10_000}, "regexes"),
            ({"must_terms": [""]}, "must_terms"),
            ({"must_terms": ["x" * 5000]}, "must_terms"),
            ({}, "query is empty"),
        ):
            answer = await http.post(
                "/v1/containers/search", json={"containers": ["exact"], "top_k": 5, **body}
            )
            assert answer.status_code == 422 or answer.status_code == 400, answer.text
            assert word in answer.text

    async def test_the_client_asks_the_same(self, client: AsyncClient) -> None:
        found = await client.search(
            SearchRequest(containers=["exact"], top_k=3, must_terms=["LampKeeper"])
        )
        assert [hit.source_path for hit in found.hits] == ["src/lamp.py"]

    async def test_the_contract_s_questions_are_answered_by_the_client(
        self, client: AsyncClient
    ) -> None:
        pages = await hybrid_search(client, "lamp", must_terms=["LampKeeper"], containers=["exact"])
        assert [(p.source_path, p.line_start) for p in pages] == [("src/lamp.py", 8)]
        assert pages[0].page_uris
        passages = await retrieve_top_k(client, "lamp", {"source_type": "markdown"}, 3)
        assert {p.source_path for p in passages} == {"docs/lamps.md"}
        code = await search_sources(client, "lamp rotation", ["code"], keyword_only=True)
        assert {hit.source_type for hit in code} == {"code"}
        documents = await client.doc_search("lamp rotation", limit=5)
        assert {hit.source_type for hit in documents.hits} == {"markdown"}

    async def test_hybrid_search_gives_each_document_or_page_once_by_weighted_scores(
        self, client: AsyncClient
    ) -> None:
        query, containers = "rotation of the lamp in fog", ["exact"]
        documents = await hybrid_search(client, query, k=2, containers=containers)
        assert len({found.doc_id for found in documents}) == len(documents) == 2
        pages = await hybrid_search(client, query, containers=containers, per="page")
        assert len({(found.doc_id, found.page) for found in pages}) == len(pages)
        assert {found.source_path for found in pages} >= {d.source_path for d in documents}
        answer = await client.search(
            SearchRequest(
                containers=containers,
                query=query,
                top_k=100,
                fusion=Fusion(method=FusionMethod.WEIGHTED, weights={"vector": 0.6, "bm25": 0.4}),
                dedup=False,
            )
        )
        first: dict[str, float] = {}
        for hit in answer.hits:
            first.setdefault(hit.source_path, hit.score)
        assert [(d.source_path, d.score) for d in documents] == list(first.items())[:2]

    async def test_hybrid_search_without_words_finds_exact_matches(
        self, client: AsyncClient
    ) -> None:
        found = await hybrid_search(client, "", regexes=[r"LAMP_\w+"], path_like="docs/*")
        assert [one.source_path for one in found] == ["docs/lamps.md"]
        assert found[0].why[0].regex == r"LAMP_\w+"

    async def test_a_tag_or_alias_of_front_matter_finds_the_body_and_is_no_hit_itself(
        self, http: httpx.AsyncClient, client: AsyncClient
    ) -> None:
        matter = '+++\ntitle = "Signals"\naliases = ["Blue Peter"]\ntags = ["vexillology"]\n+++\n'
        body = "# Flags\n\nThe flag of departure is hoisted in harbour.\n"
        source = f"{matter}\n{body}".encode()
        await ingest(client, "exact", "flags.md", source, source_uri="file:///docs/flags.md")
        for query in ("vexillology", "Blue Peter", '"blue peter"', "signals"):
            hit = (await ask(http, query=query, mode="lexical"))["hits"][0]
            assert hit["source_path"] == "docs/flags.md", query
            assert hit["text"] == body.strip()
            assert (hit["title"], hit["place"]["line_start"]) == ("Signals", 7)
            assert hit["meta"]["tags"] == ["vexillology"]
            assert "front_matter" not in hit["meta"]
        assert (await ask(http, query='"peter blue"'))["hits"] == []


DOCUMENTS = {"markdown", "text"}


async def posted(http: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def called(http: httpx.AsyncClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a tool."""
    answer = await http.post(
        "/mcp",
        json={
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        },
        headers={"Accept": "application/json, text/event-stream"},
    )
    (data,) = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    found: dict[str, Any] = json.loads(data.removeprefix("data: "))["result"]
    return found


def sources(hits: list[dict[str, Any]]) -> set[str]:
    return {hit["source_path"] for hit in hits}


@pytest.mark.usefixtures("stocked")
class TestDocumentsWithoutCode:
    async def test_doc_search_never_returns_code(self, http: httpx.AsyncClient) -> None:
        for more in (
            {},
            {"formats": []},
            {"formats": ["markdown", "text"]},
            {"source_type": "text"},
        ):
            hits = (await posted(http, "/v1/doc_search", query="getLampRotation lamp", **more))[
                "hits"
            ]
            assert hits, more
            assert {hit["source_type"] for hit in hits} <= DOCUMENTS, more
        result = await called(http, "doc_search", query="getLampRotation lamp")
        found = result["structuredContent"]["hits"]
        assert found
        assert all(hit["untrusted_content"]["source"].startswith("docs/") for hit in found)

    @pytest.mark.parametrize("name", ["formats", "source_type"])
    async def test_code_is_refused_by_name_with_the_search_that_finds_it(
        self, http: httpx.AsyncClient, name: str
    ) -> None:
        body = {"query": "lamp", name: ["markdown", "code"]}
        refused = await http.post("/v1/doc_search", json=body)
        assert refused.status_code == 400
        message = refused.json()["issues"][0]["message"]
        assert message.startswith(f"{name}: doc_search does not search source code")
        assert "source_type: [code]" in message
        result = await called(http, "doc_search", **body)
        assert result["isError"]
        assert "source_type: [code]" in result["content"][0]["text"]

    async def test_formats_under_both_names_are_refused(self, http: httpx.AsyncClient) -> None:
        body = {"query": "lamp", "formats": ["pdf"], "source_type": ["markdown"]}
        refused = await http.post("/v1/doc_search", json=body)
        assert refused.status_code == 400
        assert "give one of them" in refused.text

    async def test_a_search_takes_source_types_and_filters(self, http: httpx.AsyncClient) -> None:
        for path in ("/v1/search", "/v1/containers/search"):
            request = {"containers": ["exact"], "query": "lamp rotation", "top_k": 10}
            code = await posted(http, path, **request, source_type=["code"], diagnostics=True)
            assert "src/lamp.py" in sources(code["hits"])
            assert {hit["source_type"] for hit in code["hits"]} == {"code"}
            assert code["diagnostics"]["applied_filters"] == {"source_type": ["code"]}
            both = {"source_type": ["code", "markdown"], "filters": {"path": "docs/**"}}
            within = sources((await posted(http, path, **request, **both))["hits"])
            assert within
            assert all(source.startswith("docs/") for source in within)
            none = {"source_type": "code", "filters": {"source_type": "markdown"}}
            assert (await posted(http, path, **request, **none))["hits"] == []
        for given in (["code"], "code"):
            result = await called(http, "containers_search", query="lamp", source_type=given)
            found = result["structuredContent"]["hits"]
            assert "src/lamp.py" in {hit["untrusted_content"]["source"] for hit in found}
            assert "docs/lamps.md" not in {hit["untrusted_content"]["source"] for hit in found}
        wrong = await http.post(
            "/v1/search", json={"query": "x", "top_k": 1, "source_type": ["film"]}
        )
        assert wrong.status_code == 400
        assert "source_type.0" in wrong.json()["issues"][0]["message"]

    async def test_a_container_without_its_reranker_does_not_degrade_a_search_of_others(
        self, http: httpx.AsyncClient, client: AsyncClient
    ) -> None:
        rerank = {"enabled": True, "provider": "api", "top_k_out": 1}
        await client.create(manifest("wants", retrieval={"rerank": rerank}))
        await ingest(client, "wants", "lens.md", b"# Lens\n\nThe lamp has a lens.")
        await ingest(client, "wants", "wick.md", b"# Wick\n\nThe lamp has a wick.")
        whole = await posted(http, "/v1/doc_search", query="lamp")
        assert (whole["partial"], whole["issues"]) == (False, [])
        assert {hit["container_id"] for hit in whole["hits"]} == {"exact", "wants"}
        assert len(whole["hits"]) > 1
        both = {"containers": ["wants", "exact"], "query": "lamp", "top_k": 5}
        assert not (await posted(http, "/v1/search", **both))["partial"]
        alone = await posted(http, "/v1/search", **{**both, "containers": ["wants"]})
        named = await posted(http, "/v1/search", **both, mode="rerank")
        for answer in (alone, named):
            assert answer["partial"]
            assert "no rerank server is configured" in answer["issues"][0]["message"]

    async def test_mode_rerank_without_any_reranker_is_the_fused_order_with_one_hint(
        self, http: httpx.AsyncClient
    ) -> None:
        body = {"containers": ["exact"], "query": "lamp", "top_k": 5}
        fused = await posted(http, "/v1/search", **body, mode="hybrid")
        answer = await posted(http, "/v1/search", **body, mode="rerank")
        assert [hit["chunk_id"] for hit in answer["hits"]] == [
            hit["chunk_id"] for hit in fused["hits"]
        ]
        assert not answer["partial"]
        (hint,) = answer["issues"]
        assert "no reranker is configured" in hint["message"]


@pytest.mark.usefixtures("stocked")
class TestModes:
    async def test_the_default_mode_is_the_manifest_s_word_and_else_hybrid(
        self, http: httpx.AsyncClient, client: AsyncClient
    ) -> None:
        await client.create(manifest("worded", retrieval={"mode_default": "lexical"}))
        await ingest(client, "worded", "lens.md", b"# Lens\n\nThe lamp has a lens.")
        for container, more, channels in (
            ("worded", {}, {"bm25"}),
            ("worded", {"mode": None}, {"bm25"}),
            ("worded", {"mode": "hybrid"}, {"bm25", "vector"}),
            ("exact", {}, {"bm25", "vector"}),
        ):
            request = {"containers": [container], "query": "lamp", "top_k": 1, "diagnostics": True}
            answer = await posted(http, "/v1/search", **request, **more)
            scores = answer["diagnostics"]["stage_scores"]
            assert {name for name, found in scores.items() if found} == channels, (container, more)

    async def test_a_cursor_of_the_default_mode_is_none_of_a_named_one(
        self, http: httpx.AsyncClient
    ) -> None:
        request = {"containers": ["exact"], "query": "lamp fog", "top_k": 1}
        cursor = (await posted(http, "/v1/search", **request))["next_cursor"]
        assert (await posted(http, "/v1/search", **request, cursor=cursor))["hits"]
        named = {**request, "mode": "hybrid", "cursor": cursor}
        assert (await http.post("/v1/search", json=named)).status_code == 400

    async def test_multivector_is_refused_by_name_and_listed_nowhere(
        self, http: httpx.AsyncClient
    ) -> None:
        body = {"containers": ["exact"], "query": "x", "top_k": 1}
        refused = await http.post("/v1/search", json={**body, "mode": "multivector"})
        assert refused.status_code == 403
        assert "hybrid, semantic, lexical, rerank, crossmodal" in refused.text
        unknown = await http.post("/v1/search", json={**body, "mode": "magic"})
        assert unknown.status_code == 400
        listing = {
            "method": "tools/list",
            "jsonrpc": "2.0",
            "id": 1,
        }
        accept = {"Accept": "application/json, text/event-stream"}
        lists = (
            unknown,
            await http.get("/openapi.json"),
            await http.get("/mcp/tools"),
            await http.post("/mcp", json=listing, headers=accept),
        )
        for answer in lists:
            assert "hybrid" in answer.text
            assert "multivector" not in answer.text
