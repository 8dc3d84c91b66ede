"""A document that is replaced between the join and the page of a search: it is found as it is now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from latent_core.db.connection import Database
from latent_core.search import service
from latent_core.search.hydrate import HydratedRows
from latent_core.search.ranking import Group
from latent_workers.worker import working
from tests.support.harness.gateway_harness import VAULT, GatewayHarness, furnished
from tests.support.harness.installation import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME: Final = "shift.md"
PATIENT_MS: Final = 60_000
"""The replacement takes place within the search."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(install_root: Path) -> AsyncIterator[GatewayHarness]:
    async with (
        furnished(install_root / "overtaken", search_timeout_ms=PATIENT_MS) as one,
        working(one.settings, one.stack),
    ):
        yield one


async def written(harness: GatewayHarness, version: int) -> None:
    text = f"# Shift\n\nThe colza lamp of version{version} is lit.\n".encode()
    job = (await harness.add(VAULT, NAME, text))["job_id"]

    async def done() -> bool:
        answer_body = await harness.ask_json("owner", "GET", f"/v1/jobs/{job}")
        return bool(answer_body["job"]["state"] == "done")

    await eventually(done, what=f"version {version}")


@pytest.mark.parametrize(
    "params",
    [
        {"mode": "lexical"},
        {"mode": "semantic"},
        {"mode": "hybrid"},
        {"mode": "lexical", "query": '"colza lamp"'},
        {"mode": "lexical", "must_terms": ["colza"]},
        {"mode": "lexical", "query": "", "regexes": ["colza l.mp"]},
        {"mode": "hybrid", "filters": {"source_type": "markdown"}},
    ],
    ids=str,
)
async def test_what_is_replaced_before_it_is_shown_is_found_as_it_is_now(
    harness: GatewayHarness, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    version = harness.number()
    await written(harness, version)
    real, calls = service.hydrate, 0

    async def late(db: Database, groups: Sequence[Group]) -> HydratedRows:
        nonlocal calls
        calls += 1
        if calls == 1:
            await written(harness, version + 1)
        return await real(db, groups)

    monkeypatch.setattr(service, "hydrate", late)
    body = {"containers": [VAULT], "query": "colza", "top_k": 5} | params
    answer = await harness.ask_json("owner", "POST", "/v1/search", body=body)
    monkeypatch.undo()
    assert calls > 1
    assert not answer["partial"], answer["issues"]
    shown = [hit["snippet"] for hit in answer["hits"] if "colza" in hit["snippet"]]
    assert len(shown) == 1, shown
    assert f"version{version + 1}" in shown[0]
