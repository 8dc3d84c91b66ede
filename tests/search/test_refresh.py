"""A refresh on a running installation: queries at full rate, kills in its midst, and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.errors import Conflict
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Manifest
from latent_core.wire.refresh import PlanAnswer, RefreshRequest
from latent_core.wire.search import SearchRequest
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

OLD: Final[dict[str, Any]] = {"embedder": "openai/test", "dims": 64}
NEW: Final[dict[str, Any]] = {"embedder": "openai/wide@96", "dims": 96}
RECORDS: Final = 150
ASKERS: Final = 2


PATIENT: Final = {
    "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
    "LLC_SEARCH_TIMEOUT_MS": "60000",  # how long an answer takes is no matter here, what it says is
    "LLC_LEASE_SECONDS": "5",
    "LLC_EMBED_PRICE_PER_MILLION": "20000",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    install_root: Path, embedding_server: EmbeddingServer
) -> AsyncIterator[Installation]:
    """One running `latent up` for the tests of this module, which waits for slow machines."""
    address = {"LLC_EMBED_BASE_URL": embedding_server.base_url}
    one = Installation(install_root / "refresh", PATIENT | address)
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


def record(number: int) -> dict[str, str]:
    """Nothing else is said in these words."""
    words = " ".join(f"w{number * k % 997}" for k in range(3, 12))
    return {"_id": f"r{number}", "title": "", "text": f"zx{number} keeper {words} yq{number}"}


def corpus(numbers: Iterator[int] | range) -> bytes:
    return b"\n".join(orjson.dumps(record(number)) for number in numbers)


@dataclass
class SearchLog:
    """What askers saw, over all of their questions."""

    answers: int = 0
    errors: list[str] = field(default_factory=list)
    mixed: list[set[str]] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    embedders: set[str] = field(default_factory=set)


async def ask(client: AsyncClient, container: str, seen: SearchLog, ended: asyncio.Event) -> None:
    """By meaning alone, one question after the other, each with one right answer."""
    number = 0
    while not ended.is_set():
        number = (number + 7) % RECORDS
        request = SearchRequest(
            containers=[container], query=record(number)["text"], mode="semantic", top_k=5
        )
        try:
            answer = await client.search(request)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it must not be
            seen.errors.append(f"{type(exc).__name__}: {exc}")
            continue
        seen.answers += 1
        if answer.partial or not answer.hits:
            seen.errors.append(str(answer.issues))
            continue
        made_by = {hit.provenance.embedder for hit in answer.hits}
        if len(made_by) > 1:
            seen.mixed.append(made_by)
        seen.embedders |= made_by
        if answer.hits[0].external_id != f"r{number}":
            seen.missed.append(number)


@asynccontextmanager
async def questions(one: Installation, container: str) -> AsyncIterator[SearchLog]:
    """Asked all the time while the block runs; what was seen is whole when it ends."""
    seen, ended = SearchLog(), asyncio.Event()
    async with one.client() as client:
        tasks = [asyncio.create_task(ask(client, container, seen, ended)) for _ in range(ASKERS)]
        try:
            yield seen
        finally:
            ended.set()
            await asyncio.gather(*tasks)


async def stocked(client: AsyncClient, container: str, tmp: Path) -> None:
    await client.create(Manifest(id=container, name=container, **OLD))
    await added(client, container, "all.jsonl", corpus(range(RECORDS)), tmp)


async def added(client: AsyncClient, container: str, name: str, data: bytes, tmp: Path) -> None:
    file = tmp / name
    file.write_bytes(data)
    upload = await client.upload(container, file)
    begun = await client.add(container, file_ref=upload.file_ref)
    (job,) = await client.wait([begun.job_id], timeout_seconds=180)
    assert job.state is JobState.DONE, job


def parallel(target: dict[str, object], **more: object) -> RefreshRequest:
    return RefreshRequest.model_validate({"strategy": "parallel", "to": target, **more})


async def refreshed(client: AsyncClient, container: str, request: RefreshRequest) -> None:
    begun = await client.refresh(container, request)
    assert begun.job_id is not None
    (job,) = await client.wait([begun.job_id], timeout_seconds=180)
    assert job.state is JobState.DONE, job.cause


async def embedder_of(client: AsyncClient, container: str) -> str:
    return str((await client.describe(container)).embedder["embedder"])


@pytest.mark.timeout(400)
async def test_questions_at_full_rate_see_no_error_and_no_mixed_answer(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await stocked(client, "steady", tmp_path)
    async with questions(installation, "steady") as seen:
        await refreshed(client, "steady", parallel(NEW))
        assert await embedder_of(client, "steady") == "openai/wide@96"
        await added(client, "steady", "more.jsonl", corpus(range(5000, 5020)), tmp_path)
        await client.rollback("steady")
        assert await embedder_of(client, "steady") == "openai/test"
        before = seen.answers
        await eventually(lambda: _more(seen, before + 20), what="further answers")
    assert seen.errors == []
    assert seen.mixed == []
    assert seen.missed == []
    assert seen.embedders == {"openai/test", "openai/wide@96"}
    report = await client.doctor("steady")
    assert report.clean, report


async def _more(seen: SearchLog, min_answers: int) -> bool:
    return seen.answers >= min_answers


async def test_the_switch_shows_in_the_manifest_and_in_what_apply_says(
    client: AsyncClient, tmp_path: Path
) -> None:
    await client.create(Manifest(id="told", name="Told", **OLD))
    await added(client, "told", "few.jsonl", corpus(range(7000, 7012)), tmp_path)
    planned = await client.refresh("told", parallel(NEW), dry_run=True)
    assert isinstance(planned, PlanAnswer)
    assert (planned.plan.texts, planned.plan.chunks, planned.plan.cached) == (12, 12, 0)
    assert planned.plan.tokens > 0
    assert planned.plan.cost == pytest.approx(planned.plan.tokens * 0.02)
    assert planned.plan.seconds is not None
    assert await embedder_of(client, "told") == "openai/test"
    described = await client.describe("told")
    with pytest.raises(
        Conflict, match="latent refresh told --strategy parallel --to openai/wide@96"
    ):
        await client.update(Manifest(id="told", name="Told", **NEW), if_match=described.etag)
    await refreshed(client, "told", parallel(NEW))
    manifest = (await client.describe("told")).manifest
    assert (manifest["embedder"], manifest["dims"]) == ("openai/wide@96", 96)
    again = await client.refresh("told", parallel(OLD), dry_run=True)
    assert again.plan is not None
    assert again.plan.cached == 12
    with pytest.raises(Conflict, match="already"):
        await client.refresh("told", parallel(NEW))


async def test_the_body_of_the_contract_builds_a_second_space_of_the_containers_own_model(
    client: AsyncClient, http: httpx.AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await client.create(Manifest(id="as-it-is", name="As it is", **OLD))
    await added(client, "as-it-is", "own.jsonl", corpus(range(7500, 7510)), tmp_path)
    body = {"container_id": "as-it-is", "strategy": "parallel"}
    answer = await http.post("/v1/admin/refresh", json=body)
    assert answer.status_code == 202, answer.text
    (job,) = await client.wait([answer.json()["job_id"]], timeout_seconds=180)
    assert job.state is JobState.DONE, job.cause
    assert job.result is not None
    assert job.result["space_id"] == answer.json()["space_id"]
    assert await embedder_of(client, "as-it-is") == "openai/test"
    planned = await called(http, "admin_refresh", **body, dry_run=True)
    assert planned["plan"]["source"] == planned["plan"]["target"]
    code, _, err = await installation.cli("refresh", "as-it-is", "--wait")
    assert code == 0, err
    report = await client.doctor("as-it-is")
    assert report.clean, report


async def test_what_cannot_be_done_is_refused_with_its_reason(
    client: AsyncClient, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    await client.create(Manifest(id="strict", name="Strict", **OLD))
    with pytest.raises(Conflict, match="no earlier space"):
        await client.rollback("strict")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"strategy": "drift"}, "needs 'to'"),
        ({"strategy": "sideways"}, "parallel"),
        ({"strategy": "reparse", "to": OLD}, "keeps the embedder"),
        ({"strategy": "inplace", "way": "query"}, "applies only to strategy drift"),
        ({"strategy": "inplace", "keep_days": 3}, "applies to parallel and drift"),
        ({"strategy": "reparse", "keep_days": 3}, "applies to parallel and drift"),
        ({"strategy": "reparse", "force": True}, "remove 'force'"),
        ({"strategy": "parallel", "to": {"embedder": "opnai/wide@96"}}, "'openai/wide@96'"),
        ({"strategy": "parallel", "to": {"embedder": "lokal"}}, "lokal"),
    ]
    for body, words in wrong:
        answer = await http.post("/v1/admin/refresh", json={"container_id": "strict", **body})
        assert answer.status_code == 400, answer.text
        assert words in answer.text
    await client.create(Manifest(id="of-its-own", name="Of its own", embedder="local"))
    body = {"container_id": "of-its-own", "strategy": "inplace", "force": True}
    for dry_run in (True, False):
        answer = await http.post(
            "/v1/admin/refresh",
            json=body | {"to": {"embedder": "local", "version": "7"}, "dry_run": dry_run},
        )
        assert answer.status_code == 400, answer.text
        assert "remove embedder_version" in answer.text
        answer = await http.post(
            "/v1/admin/refresh",
            json=body | {"to": {"embedder": "openai/wide@96", "dims": 96}, "dry_run": dry_run},
        )
        assert answer.status_code == 409, answer.text
        assert "strategy parallel" in answer.text
    for path in ("refresh", "rollback"):
        body = {"container_id": "nowhere"} | ({"strategy": "inplace"} if path == "refresh" else {})
        answer = await http.post(f"/v1/admin/{path}", json=body)
        assert answer.status_code == 404, answer.text


async def test_the_command_plans_refreshes_and_goes_back(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await client.create(Manifest(id="by-hand", name="By hand", **OLD))
    await added(client, "by-hand", "some.jsonl", corpus(range(8000, 8020)), tmp_path)
    words = (
        "refresh",
        "by-hand",
        "--to",
        "openai/wide@96",
    )  # the server is asked for its dimensions
    code, out, err = await installation.cli(*words, "--dry-run")
    assert code == 0, err
    assert "openai/wide@96 1 (96 dimensions)" in out
    assert "20 texts" in out
    assert "by LLC_EMBED_PRICE_PER_MILLION" in out
    code, out, err = await installation.cli(*words, "--wait")
    assert code == 0, err
    assert await embedder_of(client, "by-hand") == "openai/wide@96"
    code, out, err = await installation.cli("refresh", "rollback", "by-hand", "--json")
    assert code == 0, err
    assert orjson.loads(out)["now"] == {"embedder": "openai/test", "version": "1", "dims": 64}
    again = ("refresh", "by-hand", "--strategy", "inplace", "--version", "7", "--wait")
    code, out, err = await installation.cli(*again)
    assert code == 0, err
    assert (await client.describe("by-hand")).embedder["version"] == "7"
    code, out, err = await installation.cli("refresh", "by-hand", "--strategy", "drift")
    assert code != 0
    assert "needs 'to'" in err


async def called(http: httpx.AsyncClient, tool: str, **arguments: object) -> dict[str, Any]:
    """What an MCP tool answers, as structured content."""
    params = {"name": tool, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    accept = {"Accept": "application/json, text/event-stream"}
    answer = await http.post("/mcp", json=body, headers=accept)
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    result: dict[str, Any] = orjson.loads(lines[-1].removeprefix("data: "))["result"]
    assert not result.get("isError"), result
    content: dict[str, Any] = result["structuredContent"]
    return content


async def test_an_agent_refreshes_by_its_tool(
    client: AsyncClient, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    await client.create(Manifest(id="agent", name="Agent", **OLD))
    await added(client, "agent", "bits.jsonl", corpus(range(9000, 9005)), tmp_path)
    tools = {tool["name"]: tool for tool in (await http.get("/mcp/tools")).json()["tools"]}
    schema = tools["admin.refresh"]["inputSchema"]
    assert {"to", "way", "dry_run", "force", "keep_days"} <= set(schema["properties"])
    assert set(schema["required"]) == {"container_id"}
    words = {"container_id": "agent", "strategy": "parallel", "to": NEW}
    planned = await called(http, "admin_refresh", **words, dry_run=True)
    assert planned["plan"]["texts"] == 5
    begun = await called(http, "admin_refresh", **words, keep_days=0)
    (job,) = await client.wait([begun["job_id"]], timeout_seconds=180)
    assert job.state is JobState.DONE
    assert await embedder_of(client, "agent") == "openai/wide@96"


@pytest_asyncio.fixture(loop_scope="module")
async def breakable(
    install_root: Path, embedding_server: EmbeddingServer
) -> AsyncIterator[Installation]:
    """An installation of one's own, to be killed."""
    one = Installation(
        install_root / "breakable",
        PATIENT | {"LLC_EMBED_BASE_URL": embedding_server.base_url, "LLC_LEASE_SECONDS": "2"},
    )
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(600)
async def test_a_refresh_that_is_killed_again_and_again_comes_to_the_same_end(
    breakable: Installation, embedding_server: EmbeddingServer, tmp_path: Path
) -> None:
    async with breakable.client() as client:
        await stocked(client, "hard", tmp_path)
        embedding_server.stats.texts = 0
        begun = await client.refresh("hard", parallel(NEW))
    assert begun.job_id is not None
    for share in (0.2, 0.6):
        await eventually(partial(_embedded, embedding_server, share), what="a part of the refresh")
        await breakable.kill()
        await breakable.start()
        async with breakable.client() as client, questions(breakable, "hard") as seen:
            await asyncio.wait_for(client.describe("hard"), 10)
        assert seen.errors == []
        assert seen.mixed == []
    async with breakable.client() as client:
        (job,) = await client.wait([begun.job_id], timeout_seconds=180)
        assert job.state is JobState.DONE, job.cause
        assert await embedder_of(client, "hard") == "openai/wide@96"
        report = await client.doctor("hard")
        assert report.clean, report


async def _embedded(server: EmbeddingServer, share: float) -> bool:
    return server.stats.texts >= share * RECORDS
