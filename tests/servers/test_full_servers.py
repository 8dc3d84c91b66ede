"""A server that says it is full: what would be written is refused for a minute, and everything else goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from latent_core.db import capacity
from latent_core.db.capacity import SERVICES
from latent_core.domain.errors import Service, StoreFull
from latent_core.domain.ids import Sha256
from tests.support.harness.gateway_harness import SECRET, VAULT, GatewayHarness, furnished

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADD = "/v1/containers/add"
UPLOADS = f"/v1/containers/{VAULT}/uploads?filename=a.md"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def furnished_harness(install_root: Path) -> AsyncIterator[GatewayHarness]:
    async with furnished(install_root / "full-servers") as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def harness(
    furnished_harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[GatewayHarness]:
    """With all of its stores taken for servers, as far as their room goes."""
    guard = furnished_harness.stack.capacity
    monkeypatch.setattr(guard, "_servers", frozenset(SERVICES))
    yield furnished_harness
    guard._reported_at.clear()
    guard._looked_at = None
    async with furnished_harness.stack.db.transaction() as conn:
        await conn.execute("DELETE FROM stores_over_capacity")


async def note(harness: GatewayHarness, service: Service) -> None:
    """As a worker elsewhere does."""
    async with harness.stack.db.transaction() as conn:
        await capacity.note_full(conn, service)
    harness.stack.capacity._looked_at = None


def is_refused(answer: httpx.Response, answer_body: str) -> bool:
    (issue,) = answer.json()["issues"]
    assert issue["code"] == "UNAVAILABLE"
    assert answer_body in issue["message"]
    assert "free disk space" in issue["message"].lower()
    assert 1 <= int(answer.headers["Retry-After"]) <= 60
    return answer.status_code == 507


async def test_what_would_be_written_is_refused_with_a_remedy(harness: GatewayHarness) -> None:
    await note(harness, "qdrant")
    own = {"container_id": VAULT}
    for path, body in (
        (ADD, own | {"file_ref": harness.upload_id}),
        ("/v1/backups", own),
        ("/v1/backups/1/restore", {}),
        ("/v1/containers/export", own),
        ("/v1/admin/refresh", own | {"strategy": "reparse"}),
        ("/v1/admin/process-selected", own | {"doc_ids": [harness.pdf_id]}),
    ):
        answer = await harness.ask("owner", "POST", path, body=body)
        assert is_refused(answer, "Qdrant reported"), path
    for path in (UPLOADS, "/v1/imports?filename=a.latent"):
        answer = await harness.ask("owner", "POST", path, content=b"x")
        assert is_refused(answer, "Qdrant reported"), path
    arguments: dict[str, Any] = own | {"file_ref": harness.upload_id}
    answer_body = await harness.result(
        "owner", "tools/call", name="documents_add", arguments=arguments
    )
    assert answer_body["isError"]
    assert "Qdrant reported" in str(answer_body)


async def test_searches_and_deletions_work_while_a_store_is_full(harness: GatewayHarness) -> None:
    for service in SERVICES:
        await note(harness, service)
    body = {"containers": [VAULT], "query": SECRET, "top_k": 3}
    assert (await harness.ask_json("owner", "POST", "/v1/search", body=body))["hits"]
    path = f"/v1/containers/{VAULT}/documents/{harness.pdf_id}"
    assert (await harness.ask("owner", "DELETE", path)).is_success


async def test_who_hears_it_from_a_store_remembers_it(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_path: Path, _sha256: Sha256) -> None:
        raise StoreFull("the disk of the S3 server is full: free disk space", service="minio")

    with monkeypatch.context() as patch:
        patch.setattr(harness.stack.blobs.own, "put_file", full)
        first = await harness.ask("owner", "POST", UPLOADS, content=b"never seen before")
    assert is_refused(first, "disk of")
    assert first.headers["Retry-After"] == "60"
    assert is_refused(
        await harness.ask("owner", "POST", UPLOADS, content=b"x"), "S3 server reported"
    )
    metrics = (await harness.ask("owner", "GET", "/metrics")).text
    assert 'latent_service_full{service="minio"} 1.0' in metrics
    assert 'latent_service_full{service="qdrant"} 0.0' in metrics


async def test_an_agents_call_that_meets_a_full_store_is_remembered_too(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any, **__: Any) -> None:
        raise StoreFull("the disk of Postgres is full: free disk space", service="postgres")

    arguments = {"container_id": VAULT, "file_ref": harness.upload_id}
    with monkeypatch.context() as patch:
        patch.setattr("latent_gateway.api.ingest.accept", full)
        answer_body = await harness.result(
            "owner", "tools/call", name="documents_add", arguments=arguments
        )
    assert "disk of" in str(answer_body)
    assert is_refused(
        await harness.ask("owner", "POST", UPLOADS, content=b"x"), "Postgres reported"
    )
