"""How `latent` starts, refuses, stops and lives through the trouble of its children: as a person sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import pytest

from latent_client import AsyncClient
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Dedup, Manifest, SearchMode
from latent_core.wire.search import SearchRequest, SearchResponse
from tests.conftest import DIMS
from tests.support.harness.installation import LATENT, Installation, eventually
from tests.support.servers.embedding_server import EmbeddingFault, EmbeddingServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

STOP_SECONDS: Final = 40.0
LONG_SEARCH_TIMEOUT: Final = {"LLC_SEARCH_TIMEOUT_MS": "30000"}
"""For a search that must be whole, however busy the machine is: the first one of a start is the slowest."""
MAX_PSS_BYTES: Final = 700 * 1024 * 1024
FAILED, USAGE, UNREACHABLE = 1, 2, 3


async def refused(
    arguments: list[str], settings: Mapping[str, str], folder: Path
) -> tuple[int, str]:
    """Run `latent …`, which must refuse: its exit code and the one line it says."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LLC_", "MCP_"))}  # noqa: TID251
    process = await asyncio.create_subprocess_exec(
        str(LATENT),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**kept, "LLC_LOG_FORMAT": "json", "LLC_PORT": "0", **settings},
        cwd=folder,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    plain_lines = [line for line in err.decode().splitlines() if not line.startswith("{")]
    assert (out, len(plain_lines)) == (b"", 1), (out, err)
    assert plain_lines[0].startswith("latent: ")
    assert process.returncode is not None
    return process.returncode, plain_lines[0]


@pytest.fixture
def folder(install_root: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of this test's own."""
    name = "".join(c for c in request.node.name if c.isalnum())[-60:]
    folder = install_root / name
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture
def settings(embedding_server: EmbeddingServer) -> dict[str, str]:
    return {
        "LLC_EMBED_BASE_URL": embedding_server.base_url,
        "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        "LLC_LEASE_SECONDS": "3",
    }


@asynccontextmanager
async def running(folder: Path, settings: Mapping[str, str]) -> AsyncIterator[Installation]:
    installation = Installation(folder, settings)
    await installation.start()
    try:
        yield installation
    finally:
        await installation.stop()


def manifest(container: str, **more: Any) -> Manifest:
    # Texts of these tests are short and much alike: only what is the same counts as a duplicate.
    given = {"embedder": "openai/test", "dims": DIMS, "dedup": Dedup(semantic_threshold=1.0)} | more
    return Manifest(id=container, name=container, **given)


async def add(client: AsyncClient, container: str, name: str, text: str, folder: Path) -> int:
    """Upload and add; the job."""
    path = folder / name
    path.write_text(text)
    upload = await client.upload(container, path)
    return (await client.add(container, file_ref=upload.file_ref)).job_id


async def search(
    client: AsyncClient,
    query: str,
    mode: SearchMode = SearchMode.HYBRID,
    *,
    container: str = "one",
) -> SearchResponse:
    # Texts that differ in a number are near-duplicates as soon as somebody has judged them.
    request = SearchRequest(containers=[container], query=query, mode=mode, top_k=5, dedup=False)
    return await client.search(request)


# --- refusing to start -------------------------------------------------------------------------


async def test_a_second_one_on_the_same_folder_names_the_first(
    installation: Installation, folder: Path
) -> None:
    port = str(httpx.URL(installation.url).port)
    for settings in ({"LLC_PORT": "0"}, {"LLC_PORT": port}):
        code, line = await refused(
            ["up"], {"LLC_DATA_DIR": str(installation.data_dir), **settings}, folder
        )
        assert code == FAILED
        assert f"process {installation.pid}" in line
        assert "LLC_DATA_DIR" in line


async def test_a_port_in_use_is_named_with_the_setting_that_changes_it(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        data_dir = folder / "data"
        code, line = await refused(
            ["up"], {"LLC_DATA_DIR": str(data_dir), "LLC_PORT": port}, folder
        )
    assert code == FAILED
    assert f"port {port}" in line
    assert "LLC_PORT" in line
    assert not (data_dir / "postgres").exists()


@pytest.mark.parametrize(
    ("text", "line_number", "named"),
    [
        ("id: sea\nname: Sea\nretreival:\n  mode_default: lexical\n", 3, "retreival"),
        ("id: sea\nname: [Sea\n", 3, ""),
    ],
)
async def test_a_corrupt_manifest_is_named_with_its_line_and_key(
    folder: Path, text: str, line_number: int, named: str
) -> None:
    manifests = folder / "manifests"
    manifests.mkdir()
    (manifests / "sea.yaml").write_text(text)
    given = {"LLC_DATA_DIR": str(folder / "data"), "LLC_MANIFEST_DIR": str(manifests)}
    code, line = await refused(["up"], given, folder)
    assert code == USAGE
    assert "sea.yaml" in line
    assert f"line {line_number}" in line
    assert named in line


@pytest.mark.parametrize("command", ["gateway", "worker"])
async def test_a_split_process_names_the_addresses_it_lacks(command: str, folder: Path) -> None:
    code, line = await refused([command], {"LLC_DATA_DIR": str(folder)}, folder)
    assert code == USAGE
    for name in ("LLC_POSTGRES_DSN", "LLC_QDRANT_URL", "LLC_S3_ENDPOINT"):
        assert name in line


async def test_a_data_directory_that_cannot_be_used_is_named(folder: Path) -> None:
    (folder / "file").write_text("in the way")
    for path in (folder / "file" / "data", folder / "no" / "where"):
        code, line = await refused(["up"], {"LLC_DATA_DIR": str(path)}, folder)
        assert code == USAGE
        assert str(path) in line
        assert "LLC_DATA_DIR" in line


async def test_a_wrong_token_and_a_gateway_that_is_not_there_are_one_line_each(
    installation: Installation, folder: Path
) -> None:
    given = {"LLC_DATA_DIR": str(folder), "LLC_URL": installation.url}
    code, line = await refused(["container", "list"], {**given, "LLC_MCP_TOKEN": "wrong"}, folder)
    assert code == FAILED
    assert "token" in line
    code, line = await refused(
        ["container", "list"], {**given, "LLC_URL": "http://127.0.0.1:9"}, folder
    )
    assert code == UNREACHABLE
    assert "latent up" in line


# --- stopping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_stops_cleanly_in_the_midst_of_work_and_goes_on_where_it_was(
    number: signal.Signals,
    folder: Path,
    settings: dict[str, str],
    embedding_server: EmbeddingServer,
) -> None:
    """With an open stream of events. On SIGINT the job hangs (its embedder is silent) and is released."""
    installation = Installation(folder, settings)
    await installation.start()
    async with installation.client() as client:
        await client.create(manifest("one"))
        if number is signal.SIGINT:
            embedding_server.misbehave(EmbeddingFault.SILENT)
        jobs = [await add(client, "one", f"{n}.txt", f"Lamp {n} is lit.", folder) for n in range(9)]
        children = installation.children()
        async with events(installation, jobs[0]) as lines:
            while await anext(lines) != "event: claimed":
                continue
            begun = time.monotonic()
            assert await installation.stop(number) == 0
            assert time.monotonic() - begun < STOP_SECONDS
    assert not [child for child in children if child.is_running()]
    async with running(folder, settings | LONG_SEARCH_TIMEOUT) as again, again.client() as client:
        ended = await client.wait(jobs, timeout_seconds=60)
        assert {(job.state, job.attempts) for job in ended} == {(JobState.DONE, 1)}
        assert len((await search(client, "lamp")).hits) == 5
        assert (await client.doctor()).clean


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
async def test_a_start_can_be_broken_off_at_any_time(
    number: signal.Signals, folder: Path, settings: dict[str, str]
) -> None:
    installation = Installation(folder, settings)

    async def began() -> bool:
        return (installation.data_dir / "owner.lock").exists()

    for seconds in (0.0, 0.5):
        starting = asyncio.create_task(installation.start())
        await eventually(began, what="the start")
        await asyncio.wait([starting], timeout=seconds)
        children = installation.children()
        assert await installation.stop(number) == 0, installation.tail()
        await asyncio.gather(starting, return_exceptions=True)
        await asyncio.to_thread(psutil.wait_procs, children, timeout=30)
        assert not [child for child in children if child.is_running()]
        (installation.data_dir / "owner.lock").unlink()
    assert "Traceback" not in installation.log.read_text(encoding="utf-8")
    async with running(folder, settings) as again, again.client() as client:
        assert (await client.readiness()).status == "ok"


@asynccontextmanager
async def events(installation: Installation, job_id: int) -> AsyncIterator[AsyncIterator[str]]:
    """The open stream of a job's events, line by line."""
    headers = {"Authorization": f"Bearer {installation.token}"}
    url = f"{installation.url}/v1/jobs/{job_id}/events"
    async with (
        httpx.AsyncClient(trust_env=False, timeout=60, headers=headers) as http,
        http.stream("GET", url) as answer,
    ):
        yield aiter(answer.aiter_lines())


# --- children in trouble -----------------------------------------------------------------------


def descendants(installation: Installation, *marks: str) -> list[psutil.Process]:
    """Processes below ours that run a program so named."""
    found = []
    for process in installation.children():
        with suppress(psutil.NoSuchProcess):
            words = [process.name(), *process.cmdline()]
            if any(mark in word for word in words for mark in marks):
                found.append(process)
    return found


async def all_well(http: httpx.AsyncClient) -> bool:
    """Whether every service answers; a search may also be answered without some of them."""
    answer = await http.get("/readyz")
    body = answer.json()
    well = set(body["services"].values()) == {"ok"}
    assert (body["status"] == "ok") == well
    assert (answer.status_code == 200) == (body["services"]["postgres"] == "ok")
    return well


async def until_ready(http: httpx.AsyncClient) -> None:
    await eventually(lambda: all_well(http), seconds=60, what="readiness")


@pytest.mark.parametrize(
    ("service", "mark", "status"),
    [("postgres", "postgres", 503), ("qdrant", "latent_core.vectors.edge.child", 200)],
)
async def test_readiness_tells_of_a_child_that_hangs_and_of_its_recovery(
    service: str,
    mark: str,
    status: int,
    installation: Installation,
    client: AsyncClient,
    http: httpx.AsyncClient,
    folder: Path,
) -> None:
    await until_ready(http)
    container = f"frozen-{service}"
    await client.create(manifest(container))
    job_id = await add(client, container, "a.txt", "The lamp is lit at dusk.", folder)
    await client.wait([job_id], timeout_seconds=60)
    frozen = descendants(installation, mark)
    assert frozen
    for process in frozen:
        process.suspend()
    try:
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (status, "degraded")
        states = answer.json()["services"]
        assert states.pop(service) == "down"
        assert set(states.values()) == {"ok"}
        assert (await http.get("/healthz")).status_code == 200
        if status == 200:
            found = await search(client, "lamp", container=container)
            assert (len(found.hits), found.partial) == (1, True)
    finally:
        for process in frozen:
            process.resume()
    await until_ready(http)


@pytest.mark.parametrize("mark", ["latent_core.vectors.edge.child", "guardian.py", "postgres"])
async def test_a_child_that_dies_comes_back(
    mark: str, installation: Installation, http: httpx.AsyncClient
) -> None:
    await until_ready(http)
    victim = min(descendants(installation, mark), key=lambda p: p.create_time())
    victim.kill()

    async def replaced() -> bool:
        living = descendants(installation, mark)
        return victim not in living and bool(living) and await all_well(http)

    await eventually(replaced, seconds=60, what=f"another {mark}")


async def test_searches_during_the_death_of_the_vector_engine_are_partial_at_worst(
    installation: Installation, client: AsyncClient, http: httpx.AsyncClient, folder: Path
) -> None:
    await until_ready(http)
    await client.create(manifest("deaths"))
    job_id = await add(client, "deaths", "a.txt", "The lamp is lit at dusk.", folder)
    await client.wait([job_id], timeout_seconds=60)
    for _ in range(3):
        for process in descendants(installation, "latent_core.vectors.edge.child"):
            process.kill()
        answers = await asyncio.gather(
            *(search(client, "lamp", container="deaths") for _ in range(8))
        )
        for answer in answers:
            assert [hit.source_uri for hit in answer.hits] == ["file:///a.txt"]
            assert answer.partial == bool(answer.issues)
        await until_ready(http)
    answer = await search(client, "lamp", SearchMode.SEMANTIC, container="deaths")
    assert answer.hits
    assert not answer.partial


# --- memory ------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="PSS is what Linux tells")
async def test_idle_it_needs_less_than_700_megabytes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the local embedder loaded by a search (issue: idle memory, PSS of the whole tree)."""
    async with running(folder, {}) as installation, installation.client() as client:
        await client.create(manifest("one", embedder="local", dims=None))
        job_id = await add(client, "one", "a.txt", "The lamp is lit at dusk.", folder)
        await client.wait([job_id], timeout_seconds=100)
    async with (
        running(folder, LONG_SEARCH_TIMEOUT) as installation,
        installation.client() as client,
    ):
        assert (await search(client, "when is the lamp lit")).hits
        sizes = {p.pid: (p.name(), pss(p)) for p in processes(installation)}
    total = sum(size for _, size in sizes.values())
    with capsys.disabled():
        parts = ", ".join(f"{name} {size >> 20}" for name, size in sizes.values() if size >> 20)
        print(f"\nidle memory: {total >> 20} MB PSS ({parts})")
    assert total < MAX_PSS_BYTES


def processes(installation: Installation) -> list[psutil.Process]:
    return [psutil.Process(installation.pid), *installation.children()]


def pss(process: psutil.Process) -> int:
    """Bytes of a process, shared pages divided among those who share them."""
    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if "Pss:" in line)
