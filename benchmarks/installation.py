"""An installation to measure: `latent up` as a process of its own, the client, and a way to its database."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import orjson
import psutil

from latent_client import AsyncClient
from latent_core.db.connection import Database
from latent_core.domain.job import JobState, JobView
from latent_core.domain.manifest.model import new_manifest
from latent_core.runtime.cluster import Cluster

LATENT: Final = (sys.executable, "-m", "latent_cli", "up", "--json")
START_SECONDS: Final = 180.0
STOP_SECONDS: Final = 60.0
CLIENT_SECONDS: Final = 120.0
JOB_SECONDS: Final = 3 * 3600.0
POLL_SECONDS: Final = 0.02
MEGABYTE: Final = 1024 * 1024


class BenchmarkInstallation:
    """One data directory below ``folder``, and the process on it."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.url = ""
        self._settings = dict(settings or {})
        self._process: asyncio.subprocess.Process | None = None
        (folder / "manifests").mkdir(parents=True, exist_ok=True)

    @property
    def token(self) -> str:
        return (self.data_dir / "token").read_text(encoding="utf-8").strip()

    @property
    def log(self) -> Path:
        return self.folder / "latent.log"

    async def start(self) -> None:
        """Return when requests are answered."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *LATENT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment(),
                cwd=self.folder,
                start_new_session=True,
            )
        out = self._process.stdout
        async with asyncio.timeout(START_SECONDS):
            line = await out.readline() if out else b""
        answer = orjson.loads(line) if line else {}
        if "url" not in answer:
            raise RuntimeError(f"latent up ended at its start: {answer}; see {self.log}")
        self.url = answer["url"]

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGINT)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def client(self) -> AsyncClient:
        return AsyncClient(self.url, self.token, timeout_seconds=CLIENT_SECONDS)

    @asynccontextmanager
    async def database(self) -> AsyncIterator[Database]:
        """Its database, for what no route offers: a benchmark fills the embedding cache."""
        async with await Database.open(Cluster(self.data_dir).dsn, name="benchmark") as database:
            yield database

    def handled_in(self) -> dict[str, float]:
        """Request id to the milliseconds the server took to handle it, by its own log."""
        lines = (line for line in self.log.read_bytes().splitlines() if line.startswith(b"{"))
        requests = (orjson.loads(line) for line in lines if b'"latency_ms"' in line)
        return {one["request_id"]: one["latency_ms"] for one in requests if one["msg"] == "request"}

    def tree(self) -> list[psutil.Process]:
        """The process and everything below it."""
        if self._process is None:
            raise RuntimeError("the installation is not running")
        root = psutil.Process(self._process.pid)
        return [root, *root.children(recursive=True)]

    def user_environment(self) -> dict[str, str]:
        """Of a command of `latent` that speaks to this installation."""
        return _inherited() | {"LLC_URL": self.url, "LLC_MCP_TOKEN": self.token}

    def _environment(self) -> dict[str, str]:
        return _inherited() | {
            "LLC_DATA_DIR": str(self.data_dir),
            "LLC_MANIFEST_DIR": str(self.folder / "manifests"),
            "LLC_PORT": "0",
            "LLC_LOG_FORMAT": "json",
            **self._settings,
        }


def _inherited() -> dict[str, str]:
    """Nothing of the caller's own settings: they would lead to another installation."""
    inherited = os.environ.items()  # noqa: TID251 - handed on to a process, not read
    return {name: value for name, value in inherited if not name.startswith(("LLC_", "MCP_"))}


@contextmanager
def work_folder(kept: Path | None, name: str) -> Iterator[Path]:
    """A folder below ``kept``, or a temporary one that goes when the block ends."""
    if kept is not None:
        folder = kept / name
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix="latent-bench-"))
    folder.chmod(0o755)  # as root, Postgres runs as another user
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def running(
    folder: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[BenchmarkInstallation]:
    """A started installation on ``folder``, stopped when the block ends."""
    installation = BenchmarkInstallation(folder, settings)
    await installation.start()
    try:
        yield installation
    finally:
        await installation.stop()


async def create(client: AsyncClient, container: str, **keys: Any) -> None:
    """A container as ``latent container create`` makes it, unless ``keys`` of its manifest say otherwise."""
    await client.create(new_manifest({"id": container, "name": container, **keys}))


async def add(client: AsyncClient, container: str, file: Path) -> int:
    """Upload a file and have it ingested; the job."""
    upload = await client.upload(container, file)
    return (await client.add(container, file_ref=upload.file_ref)).job_id


async def ended(client: AsyncClient, jobs: Sequence[int]) -> list[JobView]:
    """The jobs once they are done; an error when one was not done well."""
    views = await client.wait(jobs, timeout_seconds=JOB_SECONDS)
    for view in views:
        if view.state is not JobState.DONE:
            raise RuntimeError(f"job {view.job_id} ended as {view.state.value}: {view.cause}")
    return views


async def quiet(client: AsyncClient, container: str) -> None:
    """Return when no job of the container is open."""
    await idle(client, container)


async def idle(client: AsyncClient, container: str | None = None) -> None:
    """Return when no job is open, of the container or at all."""
    until = time.monotonic() + JOB_SECONDS
    states = (JobState.QUEUED, JobState.RUNNING)
    while [job async for job in client.jobs(container_id=container, states=states)]:
        if time.monotonic() > until:
            raise RuntimeError(f"jobs of {container or 'all'} are open after {JOB_SECONDS:g} s")
        await asyncio.sleep(POLL_SECONDS * 10)
