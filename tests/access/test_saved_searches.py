"""Saved searches: kept by name, each principal's own, and no more of them than the limit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from latent_core.wire.saved_searches import MAX_SAVED
from tests.support.harness.gateway_harness import VAULT, YARD, GatewayHarness, furnished

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/v1/saved-searches"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(install_root: Path) -> AsyncIterator[GatewayHarness]:
    async with furnished(install_root / "saved") as one:
        yield one


async def save(harness: GatewayHarness, role: str, name: str, **request: Any) -> dict[str, Any]:
    body = {"name": name, "request": {"top_k": 3, **request}}
    saved: dict[str, Any] = (await harness.ask_json(role, "POST", PATH, body=body))["saved_search"]
    return saved


async def names(harness: GatewayHarness, role: str) -> list[str]:
    answer = await harness.ask_json(role, "GET", PATH)
    return [one["name"] for one in answer["saved_searches"]]


async def test_a_saved_search_runs_as_it_was_saved_without_its_cursor(
    harness: GatewayHarness,
) -> None:
    filters = {"source_type": ["markdown"]}
    saved = await save(
        harness, "owner", "Glass", query="glass", containers=[VAULT], filters=filters, cursor="x"
    )
    assert saved["request"] == {
        **saved["request"],
        "query": "glass",
        "filters": filters,
        "cursor": None,
    }
    (listed,) = (await harness.ask_json("owner", "GET", PATH))["saved_searches"]
    assert listed == saved
    found = await harness.ask_json("owner", "POST", "/v1/search", body=listed["request"])
    assert found["hits"]
    assert {hit["source_type"] for hit in found["hits"]} == {"markdown"}
    gone = await harness.ask("owner", "DELETE", f"{PATH}/{saved['id']}")
    assert gone.status_code == 200
    assert await names(harness, "owner") == []


async def test_a_search_of_the_same_name_is_replaced(harness: GatewayHarness) -> None:
    first = await save(harness, "reader", "Daily", query="one")
    second = await save(harness, "reader", "Daily", query="two")
    assert (second["id"], second["request"]["query"]) == (first["id"], "two")
    assert await names(harness, "reader") == ["Daily"]


async def test_a_principal_neither_sees_nor_deletes_the_searches_of_another(
    harness: GatewayHarness,
) -> None:
    saved = await save(harness, "other", "Mine", query="secret plans")
    for role in ("owner", "reader", "writer"):
        assert "Mine" not in await names(harness, role)
        refused = await harness.ask(role, "DELETE", f"{PATH}/{saved['id']}")
        assert refused.status_code == 404
        assert "secret plans" not in refused.text
    assert await names(harness, "other") == ["Mine"]


async def test_a_token_of_certain_containers_sees_the_searches_in_these_alone(
    harness: GatewayHarness,
) -> None:
    """Both tokens are of one principal."""
    everywhere = await save(harness, "writer", "Everywhere", query="a")
    vault = await save(harness, "writer", "Vault", query="a", containers=[VAULT])
    await save(harness, "narrowed", "Yard", query="a", containers=[YARD])
    assert await names(harness, "narrowed") == ["Yard"]
    for hidden in (everywhere, vault):
        refused = await harness.ask("narrowed", "DELETE", f"{PATH}/{hidden['id']}")
        assert refused.status_code == 404
    body = {"name": "Vault", "request": {"query": "b", "top_k": 1, "containers": [VAULT]}}
    assert (await harness.ask("narrowed", "POST", PATH, body=body)).status_code == 404


async def test_a_narrowed_token_replaces_no_search_that_it_does_not_see(
    harness: GatewayHarness,
) -> None:
    await save(harness, "writer", "Hidden", query="kept", containers=[VAULT])
    body = {"name": "Hidden", "request": {"query": "b", "top_k": 1, "containers": [YARD]}}
    answer = await harness.ask("narrowed", "POST", PATH, body=body)
    assert answer.status_code == 409
    (kept,) = [
        one["request"]["query"]
        for one in (await harness.ask_json("writer", "GET", PATH))["saved_searches"]
        if one["name"] == "Hidden"
    ]
    assert kept == "kept"


async def test_a_request_that_is_too_large_and_a_search_beyond_the_limit_are_refused(
    harness: GatewayHarness,
) -> None:
    large = {"name": "x", "request": {"top_k": 1, "filters": {"path": ["p" * 900] * 80}}}
    assert (await harness.ask("reader", "POST", PATH, body=large)).status_code == 413
    for n in range(MAX_SAVED):
        await save(harness, "other", f"n{n}", query="q") if n else None
    assert len(await names(harness, "other")) == MAX_SAVED
    body = {"name": "one more", "request": {"top_k": 1, "query": "q"}}
    refused = await harness.ask("other", "POST", PATH, body=body)
    assert refused.status_code == 409
    assert "delete one first" in refused.text
    assert (await save(harness, "other", "n1", query="again"))["request"]["query"] == "again"


async def test_a_restored_search_belongs_to_its_principal_and_replaces_none(
    harness: GatewayHarness,
) -> None:
    path = "/v1/admin/installation"
    await save(harness, "reader", "Restored", query="boats", containers=[VAULT])
    found = await harness.ask_json("owner", "GET", path)
    (record,) = [one for one in found["saved_searches"] if one["name"] == "Restored"]
    assert record["request"] == {"query": "boats", "top_k": 3, "containers": [VAULT]}
    kept = {**record, "request": {"query": "other", "top_k": 1}}
    added = {**record, "name": "Added"}
    body = {"saved_searches": [kept, added]}
    answer = await harness.ask_json("owner", "POST", path, body=body)
    assert answer["saved_searches"] == 1
    listed = (await harness.ask_json("reader", "GET", "/v1/saved-searches"))["saved_searches"]
    requests = {one["name"]: one["request"]["query"] for one in listed}
    assert (requests["Restored"], requests["Added"]) == ("boats", "boats")
    (restored,) = [one for one in listed if one["name"] == "Added"]
    assert restored["saved_at"] == record["saved_at"]
    assert "Added" not in await names(harness, "other")


async def test_a_record_that_is_no_search_or_whose_principal_is_none_is_refused(
    harness: GatewayHarness,
) -> None:
    record = {
        "principal": "agent:reader",
        "name": "x",
        "request": {"query": "a", "top_k": 1},
        "saved_at": "2026-01-01T00:00:00Z",
    }
    for wrong in ({"request": {"query": "a", "limit": 1}}, {"principal": "somebody"}):
        refused = await harness.ask(
            "owner",
            "POST",
            "/v1/admin/installation",
            body={"saved_searches": [{**record, **wrong}]},
        )
        assert refused.status_code in {400, 422}, refused.text
