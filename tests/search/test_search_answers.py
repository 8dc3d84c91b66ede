"""What an answer holds: pages of hits, neighbours, budgets, freshness, reranked heads, explanations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio

from latent_core.domain.manifest.model import Display, Freshness, Retrieval
from tests.http.test_http_surface import ingest, manifest
from tests.support.harness.installation import Installation
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.rerank_server import RerankServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOTES = 23
TINY = "yd"
RUSSIAN = "гора стол огонь сегодня лес осень небо земля"  # noqa: RUF001 - its letters are meant
DAMAGED = RUSSIAN.encode().decode("latin-1")
"""Two texts whose vectors happen to be near those of ``THIN_QUERY``."""
THIN_QUERY = "harbour lights maintenance"


def own_words(number: int) -> str:
    """Enough of them that no two texts are alike."""
    return " ".join(f"w{number}x{n}" for n in range(40))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reranker() -> AsyncIterator[RerankServer]:
    async with RerankServer() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stocked(
    install_root: Path, embedding_server: EmbeddingServer, reranker: RerankServer
) -> AsyncIterator[Installation]:
    settings = {
        "LLC_EMBED_BASE_URL": embedding_server.base_url,
        "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        "LLC_RERANK_API_URL": reranker.url(),
        "LLC_RERANK_API_KEY": "secret-key",
    }
    one = Installation(install_root / "answers", settings)
    await one.start()
    try:
        async with one.client() as client:
            await client.create(manifest("notes"))
            fresh = Retrieval(freshness=Freshness(enabled=True), mark_weak=True)
            await client.create(manifest("fresh", retrieval=fresh))
            await client.create(manifest("sorted", display=Display(sort="freshness_then_score")))
            for n in range(NOTES):
                text = f"Note {n} says that fog covers the harbour. {own_words(n)}"
                await ingest(client, "notes", f"{n}.txt", text.encode())
            parts = "\n\n".join(
                f"# Part {n}\n\nThe {n}th part tells of herrings." for n in range(5)
            )
            await ingest(client, "notes", "parts.md", parts.encode())
            await client.create(manifest("thin"))
            records = [
                *(f"Note {n} describes ropes. {own_words(n)}" for n in range(20)),
                "The harbour keeps its own tide tables and moorings for ships of every size.",
                TINY,
                DAMAGED,
            ]
            lines = [
                orjson.dumps({"_id": str(n), "title": "", "text": text})
                for n, text in enumerate(records)
            ]
            await ingest(client, "thin", "records.jsonl", b"\n".join(lines))
            for container in ("fresh", "sorted"):
                for year in (2010, 2026, 2018):
                    text = f"The lamp of {year} burns. {own_words(year)}"
                    await ingest(
                        client,
                        container,
                        f"{year}.txt",
                        text.encode(),
                        modified_at=datetime(year, 11, 1, tzinfo=UTC),
                    )
        yield one
    finally:
        await one.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def http(stocked: Installation) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {stocked.token}"}
    async with httpx.AsyncClient(
        base_url=stocked.url, headers=headers, trust_env=False, timeout=30
    ) as opened:
        yield opened


async def ask(http: httpx.AsyncClient, container: str, **body: Any) -> dict[str, Any]:
    request = {"containers": [container], "top_k": 5, **body}
    answer = await http.post("/v1/search", json=request)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_pages_follow_each_other_without_gap_or_repetition(http: httpx.AsyncClient) -> None:
    seen: list[str] = []
    cursor = None
    for _ in range(10):
        page = await ask(http, "notes", query="fog", mode="lexical", cursor=cursor)
        seen += [hit["source_path"] for hit in page["hits"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    whole = await ask(http, "notes", query="fog", mode="lexical", top_k=50)
    assert seen == [hit["source_path"] for hit in whole["hits"]]
    assert len(set(seen)) == NOTES
    assert whole["next_cursor"] is None


async def test_a_cursor_of_another_question_is_refused(http: httpx.AsyncClient) -> None:
    page = await ask(http, "notes", query="fog")
    for cursor in (page["next_cursor"], "nonsense"):
        answer = await http.post(
            "/v1/search",
            json={"containers": ["notes"], "top_k": 5, "query": "other", "cursor": cursor},
        )
        assert answer.status_code in (400, 422)
        assert "cursor" in answer.text


async def test_neighbours_are_those_of_the_document_in_its_order(http: httpx.AsyncClient) -> None:
    answer = await ask(
        http, "notes", query="2th part herrings", mode="lexical", neighbours=1, dedup=False
    )
    hit = next(h for h in answer["hits"] if "2th" in h["text"])
    assert ["1th" in n["text"] for n in hit["before"]] == [True]
    assert ["3th" in n["text"] for n in hit["after"]] == [True]


async def test_a_budget_shortens_the_answer_and_says_where_it_goes_on(
    http: httpx.AsyncClient,
) -> None:
    full = await ask(http, "notes", query="fog", mode="lexical", top_k=10)
    short = await ask(http, "notes", query="fog", mode="lexical", top_k=10, max_chars=500)
    assert short["truncated"]
    assert 1 <= len(short["hits"]) < len(full["hits"])
    assert short["next_cursor"]
    brief = await ask(http, "notes", query="fog", mode="lexical", detail="brief")
    assert all(hit["text"] is None and hit["snippet"] for hit in brief["hits"])


async def test_a_young_source_counts_for_more_and_the_answer_tells_how_much(
    http: httpx.AsyncClient,
) -> None:
    answer = await ask(http, "fresh", query="lamp", mode="lexical", diagnostics=True)
    first = answer["hits"][0]
    assert first["source_path"] == "2026.txt"
    assert first["score"] == pytest.approx(first["base_score"] * (1 + first["freshness"]))
    assert answer["diagnostics"]["freshness_factor"] == pytest.approx(first["freshness"], abs=1e-5)


async def test_hits_are_shown_in_the_order_their_container_wants(http: httpx.AsyncClient) -> None:
    answer = await ask(http, "sorted", query="lamp", mode="lexical")
    assert [hit["source_path"] for hit in answer["hits"]] == ["2026.txt", "2018.txt", "2010.txt"]


async def test_rerank_orders_the_head_by_the_server_s_word(http: httpx.AsyncClient) -> None:
    answer = await ask(http, "notes", query="note 7 says", mode="rerank", diagnostics=True)
    assert not answer["partial"], answer["issues"]
    assert answer["hits"][0]["source_path"] == "7.txt"
    assert answer["diagnostics"]["candidates_after_rerank"] > 5
    assert answer["timings"]["rerank"] > 0


async def test_explain_tells_the_plan_in_words(http: httpx.AsyncClient) -> None:
    answer = await ask(http, "notes", query='"fog covers" harbour', explain=True, path_like="*.txt")
    plan_text = " ".join(answer["diagnostics"]["plan"])
    assert "RRF" in plan_text
    assert '"fog covers"' in plan_text
    assert "path like *.txt" in plan_text


async def test_another_container_in_the_search_never_changes_the_order_of_a_container_s_hits(
    http: httpx.AsyncClient,
) -> None:
    for method in ("rrf", "dbsf", "auto"):
        how = {"query": "lamp fog", "fusion": {"method": method}, "top_k": 20}
        alone = {
            name: [hit["doc_id"] for hit in (await ask(http, name, **how))["hits"]]
            for name in ("fresh", "notes")
        }
        answer = await ask(http, "notes", **how | {"containers": ["fresh", "notes"], "top_k": 20})
        for name, order in alone.items():
            together = [hit["doc_id"] for hit in answer["hits"] if hit["container_id"] == name]
            assert together == order[: len(together)], (method, name)
    together = await ask(http, "notes", query="fog", containers=["fresh", "notes"], explain=True)
    assert "keep their own order" in " ".join(together["diagnostics"]["plan"])


async def test_explain_tells_what_auto_chose(http: httpx.AsyncClient) -> None:
    how = {"fusion": {"method": "auto"}, "explain": True}
    answer = await ask(http, "notes", query="fog harbour", **how)
    found = answer["diagnostics"]["influence"]["notes"]
    assert set(found) == {"bm25", "vector"}
    assert sum(found.values()) == pytest.approx(1, abs=0.001)
    plan_text = " ".join(answer["diagnostics"]["plan"])
    assert f"fused by auto (words (BM25) {found['bm25']:.0%}, " in plan_text
    by_words = await ask(http, "notes", query="fog harbour", mode="lexical", **how)
    assert by_words["diagnostics"]["influence"] == {}


async def test_the_contract_s_default_of_rerank_k_draws_no_issue(http: httpx.AsyncClient) -> None:
    assert (await ask(http, "notes", query="fog", rerank_k=50))["issues"] == []


async def test_rerank_k_without_rerank_says_that_it_has_no_effect(http: httpx.AsyncClient) -> None:
    answer = await ask(http, "notes", query="fog", rerank_k=7)
    assert [issue["code"] for issue in answer["issues"]] == ["POLICY"]
    assert not answer["partial"]


async def test_what_is_not_offered_yet_is_refused_by_name(http: httpx.AsyncClient) -> None:
    for mode in ("multivector",):
        answer = await http.post(
            "/v1/search", json={"containers": ["notes"], "top_k": 5, "query": "x", "mode": mode}
        )
        assert answer.json()["issues"][0]["code"] == "POLICY"


async def test_a_hit_shows_how_relevant_it_is_and_nonsense_has_a_low_relevance(
    http: httpx.AsyncClient,
) -> None:
    answer = await ask(http, "notes", query=f"fog harbour {own_words(7)[:60]}")
    nonsense = await ask(http, "notes", query="zeppelin quarks marmalade")
    assert answer["hits"][0]["source_path"] == "7.txt"
    assert answer["hits"][0]["relevance"] > 0.9
    assert nonsense["hits"]
    for hit in nonsense["hits"]:
        assert 0 <= hit["relevance"] < 0.3
    for mode in ("lexical", "semantic", "hybrid"):
        best = (await ask(http, "notes", query=own_words(7), mode=mode))["hits"][0]
        assert best["relevance"] > 0.5, mode


async def test_weak_hits_are_marked_where_the_request_or_the_manifest_says_so(
    http: httpx.AsyncClient,
) -> None:
    nonsense = "zeppelin quarks marmalade"
    silent = await ask(http, "notes", query=nonsense)
    assert not any(hit["weak"] for hit in silent["hits"])
    marked = await ask(http, "notes", query=f"{own_words(7)} {nonsense}", mark_weak=True)
    assert {hit["weak"] for hit in marked["hits"]} == {True, False}
    for hit in marked["hits"]:
        assert hit["weak"] == (hit["relevance"] < 0.5)
    by_manifest = await ask(http, "fresh", query=nonsense)
    assert all(hit["weak"] for hit in by_manifest["hits"])
    not_marked = await ask(http, "fresh", query=nonsense, mark_weak=False)
    assert not any(hit["weak"] for hit in not_marked["hits"])


async def test_min_score_keeps_the_relevant_hits_over_all_pages_and_counts_the_others(
    http: httpx.AsyncClient,
) -> None:
    query = f"fog covers the harbour {own_words(7)[:80]}"
    whole = await ask(http, "notes", query=query, top_k=50)
    relevances = sorted((hit["relevance"] for hit in whole["hits"]), reverse=True)
    bound = relevances[11]
    expected = [h["source_path"] for h in whole["hits"] if h["relevance"] >= bound]
    seen: list[str] = []
    cursor = None
    for _ in range(10):
        page = await ask(http, "notes", query=query, min_score=bound, cursor=cursor)
        seen += [hit["source_path"] for hit in page["hits"]]
        (issue,) = page["issues"]
        assert issue["code"] == "POLICY"
        assert issue["details"]["below"] == len(whole["hits"]) - len(expected)
        assert not page["partial"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == expected
    assert 11 < len(expected) < len(whole["hits"])


async def test_min_score_that_nothing_reaches_says_so_and_what_the_best_has(
    http: httpx.AsyncClient,
) -> None:
    answer = await ask(http, "notes", query="zeppelin quarks marmalade", min_score=0.9)
    assert answer["hits"] == []
    (issue,) = answer["issues"]
    assert issue["code"] == "NO_HITS"
    assert "min_score 0.9" in issue["message"]
    assert issue["details"]["best_below"] < 0.9
    assert not answer["partial"]
    refused = await http.post(
        "/v1/search", json={"containers": ["notes"], "top_k": 5, "query": "fog", "min_score": 1.5}
    )
    assert refused.status_code == 400


async def test_tiny_and_damaged_texts_follow_all_others_unless_they_are_relevant(
    http: httpx.AsyncClient,
) -> None:
    for mode in ("semantic", "hybrid"):
        shown: list[str] = []
        cursor = None
        for _ in range(10):
            page = await ask(http, "thin", query=THIN_QUERY, mode=mode, cursor=cursor)
            shown += [hit["snippet"] for hit in page["hits"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert len(shown) == len(set(shown)) == 23
        assert shown[-2:] == [TINY, DAMAGED], mode
        whole = await ask(http, "thin", query=THIN_QUERY, mode=mode, top_k=50)
        assert [hit["snippet"] for hit in whole["hits"]] == shown
        assert [hit["score"] for hit in whole["hits"]] == sorted(
            (hit["score"] for hit in whole["hits"]), reverse=True
        )
    by_word = await ask(http, "thin", query=TINY)
    assert by_word["hits"][0]["snippet"] == TINY
