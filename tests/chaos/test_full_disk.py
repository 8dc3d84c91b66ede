"""A disk that fills up under a running installation: refused with a reason, nothing half-stored, and on it goes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
import pymupdf
import pytest
import pytest_asyncio

from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Manifest, SearchMode
from latent_core.wire.search import SearchRequest
from tests.conftest import DIMS
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

MEGABYTE: Final = 1024 * 1024
DISK_BYTES: Final = 640 * MEGABYTE
TIGHT_BYTES: Final = 100 * MEGABYTE
"""Free: enough for files and rows, too little for the vector engine to begin a write."""
FULL_BYTES: Final = 16 * MEGABYTE
"""Free: a few uploads fit, and then nothing does."""
MAX_UPLOADS: Final = 120
REFUSALS: Final = 15
MAX_ROWS: Final = 1500
PADDING: Final = 15_000
TRIES: Final = 200
REFUSED: Final = (503, 507)
OPEN: Final = (JobState.QUEUED, JobState.RUNNING)


@pytest.fixture(scope="module")
def disk(install_root: Path) -> Iterator[Path]:
    """A small disk of its own, in memory."""
    folder = install_root / "disk"
    folder.mkdir(mode=0o755)
    options = f"size={DISK_BYTES},mode=0755"
    mount = ["mount", "-t", "tmpfs", "-o", options, "latent-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root and the right to mount")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small(
    disk: Path, install_root: Path, embedding_server: EmbeddingServer
) -> AsyncIterator[Installation]:
    """An installation with its data on the small disk."""
    settings = {
        "LLC_DATA_DIR": str(disk / "data"),
        "LLC_EMBED_BASE_URL": embedding_server.base_url,
        "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        "LLC_LEASE_SECONDS": "3",
        "LLC_MIN_FREE_BYTES": "0",  # nothing is kept back: the disk is to be full
    }
    installation = Installation(install_root / "full", settings)
    installation.data_dir = disk / "data"
    await installation.start()
    yield installation
    await installation.stop()


def _fill(fd: int, disk: Path, free: int) -> None:
    """Take all room but ``free`` bytes. Others write meanwhile, so a size may be too large when it is asked for."""
    for _ in range(TRIES):
        try:
            os.posix_fallocate(fd, 0, max(1, shutil.disk_usage(disk).free - free))
        except OSError as exc:
            if exc.errno != errno.ENOSPC:
                raise
            os.ftruncate(fd, 0)
        else:
            return
    raise AssertionError("the small disk is never at rest")


@contextmanager
def ballast(disk: Path, free: int) -> Iterator[None]:
    """While this lasts, the disk has ``free`` bytes left."""
    file = disk / "ballast"
    with file.open("wb") as opened:
        _fill(opened.fileno(), disk, free)
    try:
        yield
    finally:
        file.unlink()


@pytest_asyncio.fixture(loop_scope="module")
async def http(small: Installation) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {small.token}"}
    async with httpx.AsyncClient(
        base_url=small.url, headers=headers, trust_env=False, timeout=60
    ) as opened:
        yield opened


async def create(small: Installation, container: str) -> None:
    async with small.client() as client:
        await client.create(
            Manifest(id=container, name=container, embedder="openai/test", dims=DIMS)
        )


def sound(answer: httpx.Response) -> int:
    """The status; what is refused is refused with an issue that says so."""
    body = answer.json()
    assert body["version"] == "v1", body
    if not answer.is_success:
        assert answer.status_code in REFUSED, body
        assert body["issues"][0]["code"] == "UNAVAILABLE"
        assert "Traceback" not in answer.text
    return answer.status_code


def large(text: str) -> bytes:
    """A small document in a large file."""
    book: Any = pymupdf.open()  # type: ignore[no-untyped-call]
    book.new_page().insert_text((72, 72), text)
    book.embfile_add("ballast", Random(text).randbytes(MEGABYTE // 2))
    return bytes(book.tobytes())


async def hand_in(
    http: httpx.AsyncClient, container: str, name: str, data: bytes
) -> tuple[int, int | None]:
    """Upload and add: the last status, and the job if it was accepted."""
    upload = await http.post(
        f"/v1/containers/{container}/uploads", params={"filename": name}, content=data
    )
    if sound(upload) != 201:
        return upload.status_code, None
    body = {"container_id": container, "file_ref": upload.json()["upload"]["file_ref"]}
    added = await http.post("/v1/containers/add", json=body)
    if sound(added) != 202:
        return added.status_code, None
    return 202, added.json()["job_id"]


async def search(http: httpx.AsyncClient, container: str, word: str) -> int:
    request = SearchRequest(containers=[container], query=word, mode=SearchMode.HYBRID, top_k=3)
    body = request.model_dump(mode="json", exclude_unset=True)
    answer = await http.post("/v1/search", json=body)
    return sound(answer)


async def all_well(small: Installation, container: str, accepted: dict[str, int]) -> None:
    """Every accepted document becomes live, nothing else is there, and the stores agree."""
    async with small.client() as client:

        async def ready() -> bool:
            return (await client.readiness()).status == "ok"

        await eventually(ready, seconds=60, what="readiness")
        jobs = await client.wait(list(accepted.values()), timeout_seconds=120)
        assert {job.state for job in jobs} <= {JobState.DONE}, jobs
        stored = {d.source_uri async for d in client.documents(container)}
        assert stored == {f"file:///{name}" for name in accepted}

        async def idle() -> bool:
            return not [j async for j in client.jobs(states=OPEN)]

        async def clean() -> bool:
            return (await client.doctor()).clean

        await eventually(idle, seconds=90, what="an empty queue")
        with suppress(AssertionError):
            await eventually(clean, seconds=90)
        report = await client.doctor()
        assert report.clean, report.model_dump()
    assert list((small.data_dir / "tmp").iterdir()) == []
    assert "request_failed" not in small.log.read_text(encoding="utf-8")


async def test_ingest_waits_on_a_full_disk_and_resumes_when_space_is_free(
    small: Installation, http: httpx.AsyncClient, disk: Path
) -> None:
    await create(small, "tight")
    with ballast(disk, TIGHT_BYTES):
        status, job = await hand_in(http, "tight", "a.txt", b"The lamp is lit at dusk.")
        assert status == 202
        assert job is not None
        async with small.client() as client:

            async def reason_is_shown() -> bool:
                seen = await client.job(job)
                return seen.cause is not None and "disk" in seen.cause.message

            await eventually(reason_is_shown, what="the reason why it waits")
        assert await search(http, "tight", "lamp") == 200
    await all_well(small, "tight", {"a.txt": job})


async def test_a_full_disk_refuses_and_stores_nothing_by_halves(
    small: Installation, http: httpx.AsyncClient, disk: Path
) -> None:
    await create(small, "full")
    accepted: dict[str, int] = {}
    refused: list[int] = []
    with ballast(disk, FULL_BYTES):
        for number in range(MAX_UPLOADS):
            name = f"{number}.pdf"
            status, job = await hand_in(http, "full", name, large(f"Entry {number} tells of fog."))
            if job is not None:
                accepted[name] = job
            else:
                refused.append(status)
            await search(http, "full", "fog")
            assert (await http.get("/healthz")).status_code == 200
            if len(refused) == REFUSALS:
                break
    assert 507 in refused
    assert accepted
    await all_well(small, "full", accepted)
    assert (await hand_in(http, "full", "after.txt", b"The fog has lifted."))[0] == 202


async def test_a_full_disk_under_postgres_refuses_writes_and_recovers(
    small: Installation, http: httpx.AsyncClient, disk: Path
) -> None:
    """Its log cannot grow: Postgres itself gives up, is started again and again, and recovers with the room."""
    await create(small, "rows")
    upload = await http.post(
        "/v1/containers/rows/uploads", params={"filename": "a.txt"}, content=b"The bell rings."
    )
    accepted: dict[str, int] = {}
    refused: list[int] = []
    with ballast(disk, 0):
        for number in range(MAX_ROWS):
            name = f"{number}.txt"
            body = {
                "container_id": "rows",
                "file_ref": upload.json()["upload"]["file_ref"],
                "source_uri": f"file:///{name}",
                "meta": {"padding": Random(number).randbytes(PADDING).hex()},
            }
            added = await http.post("/v1/containers/add", json=body)
            if sound(added) == 202:
                accepted[name] = added.json()["job_id"]
            else:
                refused.append(added.status_code)
            if len(refused) == REFUSALS:
                break
    assert refused
    await all_well(small, "rows", accepted)
