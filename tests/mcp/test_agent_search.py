"""What agents rely on in ``containers_search``: which containers are searched, passages, budgets, and no refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from latent_workers.worker import working
from tests.support.harness.gateway_harness import GatewayHarness, furnished
from tests.support.harness.installation import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROJECTS: Final = ("north", "south", "west")
EMPTY: Final = "empty"
AGENT: Final = "agent:planner"
SESSIONS: Final = 50
CALLS: Final = 3


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(install_root: Path) -> AsyncIterator[GatewayHarness]:
    # A slow machine needs longer for its fifty sessions; a tool ends after 30 s.
    async with furnished(install_root / "agent-search", search_wait_seconds=25) as one:
        for name in (*PROJECTS, EMPTY):
            manifest = {
                "id": name,
                "name": name,
                "embedder": "openai/test",
                "dims": 64,
                "acl": {"roles": {"owner": ["local:you"], "reader": [AGENT]}},
            }
            await one.ask_json("owner", "POST", "/v1/containers", body={"manifest": manifest})
        async with working(one.settings, one.stack):
            for name in PROJECTS:
                await one.add(name, "log.md", log_of(name).encode())
            for name in COPIES:
                await one.add(name, "rules.md", RULES.encode())
            await eventually(lambda: quiet(one), seconds=150, what="the queue to be empty")
        await one.make_token("planner", AGENT, scopes=["read"])
        await one.make_token("project", AGENT, scopes=["read"], containers=["south"])
        yield one


RULES: Final = (
    "# Harbour rules\n\nVessels over forty metres announce their berthing two tides ahead.\n"
)
COPIES: Final = ("north", "west")
"""Projects with a copy of it."""


def log_of(name: str) -> str:
    """A document of several chunks, all about the same."""
    days = (
        f"## Day {day}\n\nThe {name} lighthouse reports fog on day {day}. "
        + f"Lamp number {day} of {name} was trimmed and its oil replaced by the keeper. " * 12
        for day in range(1, 9)
    )
    return f"# Log of {name}\n\n" + "\n\n".join(days)


async def quiet(one: GatewayHarness) -> bool:
    jobs = (await one.ask_json("owner", "GET", "/v1/jobs"))["jobs"]
    return not any(j["state"] in ("running", "queued") and j["kind"] != "purge" for j in jobs)


async def found(harness: GatewayHarness, role: str, **arguments: Any) -> dict[str, Any]:
    result = await harness.result(role, "tools/call", name="containers_search", arguments=arguments)
    assert not result.get("isError"), result
    content: dict[str, Any] = result["structuredContent"]
    return content


async def test_fifty_calls_without_containers_stay_in_the_project_of_the_token(
    harness: GatewayHarness,
) -> None:
    for number in range(50):
        answer = await found(harness, "project", query=f"fog lamp north day {number}")
        assert {hit["container_id"] for hit in answer["hits"]} == {"south"}
        assert "issues" not in answer


async def test_without_containers_all_that_may_be_read_are_searched(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await found(harness, "planner", query="fog lamp")
    assert {hit["container_id"] for hit in answer["hits"]} == set(PROJECTS)
    body = {"query": "fog lamp", "top_k": 10}
    by_http = await harness.ask_json("planner", "POST", "/v1/search", body=body)
    assert {hit["container_id"] for hit in by_http["hits"]} == set(PROJECTS)
    assert not by_http["partial"]
    monkeypatch.setattr(harness.settings, "search_max_containers", 2)
    some = await found(harness, "planner", query="fog lamp")
    assert some["partial"]
    message = "Searched the first 2 of 4 containers (the limit). List the ones you need."
    assert [issue["message"] for issue in some["issues"]] == [message]


async def test_the_same_text_in_several_containers_is_one_hit_that_names_the_others(
    harness: GatewayHarness,
) -> None:
    body: dict[str, Any] = {"query": "berthing of vessels over forty metres", "top_k": 1}
    pages, cursor = [], None
    for _ in range(3):
        page = await harness.ask_json(
            "planner", "POST", "/v1/search", body=body | {"cursor": cursor}
        )
        pages.append(page)
        cursor = page["next_cursor"]
    (first,) = pages[0]["hits"]
    copies = {first["container_id"], *(d["container_id"] for d in first["duplicates"])}
    assert copies == set(COPIES)
    assert not [h for page in pages[1:] for h in page["hits"] if h["source_path"] == "rules.md"]
    apart = await harness.ask_json(
        "planner", "POST", "/v1/search", body=body | {"top_k": 2, "dedup": False}
    )
    assert {h["container_id"] for h in apart["hits"]} == set(COPIES)


async def test_facets_are_counted_for_a_model_without_a_place_in_the_list_of_tools(
    harness: GatewayHarness,
) -> None:
    answer = await found(harness, "project", query="fog", facets="source_type", mode="lexical")
    facet = answer["facets"]["source_type"]
    assert facet["documents"] == 1
    (value,) = facet["untrusted_content"]["values"]
    assert value["count"] == 1
    assert value["value"] == answer["hits"][0].get("source_type", "markdown")
    listed = (await harness.result("project", "tools/list"))["tools"]
    (tool,) = [tool for tool in listed if tool["name"] == "containers_search"]
    assert not {"facets", "like"} & set(tool["inputSchema"]["properties"])


async def test_a_model_finds_what_is_like_a_hit_by_its_id_or_uri(harness: GatewayHarness) -> None:
    hit = (await found(harness, "planner", query="fog", containers=["south"]))["hits"][0]
    for reference in (hit["doc_id"], f"page://{hit['doc_id']}/1", {"doc_id": hit["doc_id"]}):
        answer = await found(harness, "planner", like=reference)
        assert {one["container_id"] for one in answer["hits"]} == {"north", "west"}


async def test_an_archived_or_empty_container_never_costs_the_answer(
    harness: GatewayHarness,
) -> None:
    path = "/v1/containers/west/state"
    await harness.ask_json("owner", "PUT", path, body={"state": "archived"})
    try:
        answer = await found(
            harness, "owner", query="fog lamp", containers=["west", EMPTY, "north"]
        )
        assert {hit["container_id"] for hit in answer["hits"]} == {"north"}
        assert answer["partial"]
        (issue,) = answer["issues"]
        assert "'west' is archived" in issue["message"]
        silent = await found(harness, "owner", query="fog lamp", containers=[EMPTY])
        assert silent["hits"] == []
        alone = await harness.result(
            "owner",
            "tools/call",
            name="containers_search",
            arguments={"query": "fog", "containers": ["west"]},
        )
        assert alone["isError"]
        assert "'west' is archived" in alone["content"][0]["text"]
        for_reader = await harness.ask(
            "planner",
            "POST",
            "/v1/search",
            body={"query": "fog", "top_k": 3, "containers": ["west", "north"]},
        )
        assert for_reader.status_code == 404  # only owners know of archived containers
    finally:
        await harness.ask_json("owner", "PUT", path, body={"state": "active"})


@pytest.mark.slow
async def test_of_fifty_sessions_that_search_during_an_ingest_none_is_refused(
    harness: GatewayHarness,
) -> None:
    async def session(number: int) -> list[str]:
        """The errors of three calls in a row."""
        calls = [
            await harness.result(
                "planner",
                "tools/call",
                name="containers_search",
                arguments={"query": f"fog lamp {number} {call}", "containers": ["north", "south"]},
            )
            for call in range(CALLS)
        ]
        return [str(call["content"]) for call in calls if call.get("isError")]

    added = [
        await harness.add("west", f"late-{n}.md", log_of(f"late {n}").encode()) for n in range(20)
    ]
    async with working(harness.settings, harness.stack):
        errors = await asyncio.gather(*(session(number) for number in range(SESSIONS)))
        assert [error for session_errors in errors for error in session_errors] == []
        await eventually(lambda: quiet(harness), what="the queue to be empty")
    states = [
        (await harness.ask_json("owner", "GET", f"/v1/jobs/{a['job_id']}"))["job"] for a in added
    ]
    assert {job["state"] for job in states} == {"done"}


async def test_a_document_has_several_passages_over_mcp_and_one_hit_over_http(
    harness: GatewayHarness,
) -> None:
    query = "lamp trimmed and oil replaced by the keeper"
    answer = await found(harness, "project", query=query)
    passages = [hit["lines"] for hit in answer["hits"]]
    assert len(passages) == 3
    assert len({hit["doc_id"] for hit in answer["hits"]}) == 1
    assert passages[1:] == sorted(passages[1:])
    assert all(hit["untrusted_content"]["source"] == "log.md" for hit in answer["hits"])
    wide = await found(harness, "project", query=query, passages=5, max_chars=20_000)
    assert len(wide["hits"]) == 5
    every = await found(harness, "project", query=query, dedup=False, max_chars=20_000)
    assert len(every["hits"]) > 5
    body = {"query": query, "top_k": 10, "containers": ["south"]}
    by_http = await harness.ask_json("project", "POST", "/v1/search", body=body)
    assert [hit["place"]["line_start"] for hit in by_http["hits"]] == [passages[0][0]]
    assert by_http["hits"][0]["also_in_document"]


async def test_a_hit_names_the_terms_that_it_contains_with_their_lines(
    harness: GatewayHarness,
) -> None:
    terms = {"must_terms": ["on day 7."], "regexes": ["Lamp number \\d"], "path_like": "*.md"}
    answer = await found(harness, "project", query="fog", **terms)
    (hit,) = answer["hits"]
    lines = log_of("south").splitlines()
    line = lines.index("## Day 7") + 3
    by_term, by_regex, by_path = hit["why"]
    assert by_term == {"term": "on day 7.", "count": 1, "lines": [line], "page": hit["page"]}
    assert (by_regex["regex"], by_regex["lines"]) == ("Lamp number \\d", [line])
    assert by_path["path"] == "*.md"
    assert not {"score", "chunk_id", "uri", "source_type"} & set(hit)
    whole = await found(harness, "project", query="fog", detail="full", **terms)
    assert {"score", "chunk_id", "uri", "source_type"} <= set(whole["hits"][0])
    assert {"channel": "bm25"} in whole["hits"][0]["why"]


async def test_an_agent_finds_a_definition_by_its_symbol(harness: GatewayHarness) -> None:
    manifest = {"id": "code", "name": "code", "embedder": "openai/test", "dims": 64}
    await harness.ask_json("owner", "POST", "/v1/containers", body={"manifest": manifest})
    source = "".join(
        f"class {name}:\n    def open(self):\n        lamp()\n\n    def close(self):\n        lamp()\n\n"
        for name in ("Client", "Server")
    )
    async with working(harness.settings, harness.stack):
        await harness.add("code", "net.py", source.encode())
        await eventually(lambda: quiet(harness), what="the source file")
    for symbol, lines in (("Server.close", [12]), ("close", [5, 12])):
        arguments = {"query": "lamp", "filters": {"symbol": symbol}, "dedup": False}
        answer = await found(harness, "owner", containers=["code"], **arguments)
        assert sorted(hit["lines"][0] for hit in answer["hits"]) == lines
