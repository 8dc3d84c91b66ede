"""A whole installation in a test: `latent up` as a process of its own, as a person runs it.

With ``LLC_TEST_STACK=servers`` it is a gateway and a worker on servers (``scripts/servers.py`` starts those).
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import psutil

from latent_client import AsyncClient
from latent_core.runtime.cluster import Cluster
from tests.support.on_servers import BUCKET, ON_SERVERS, TOKEN, own_stores, stored_blobs

START_SECONDS: Final = 180.0
STOP_SECONDS: Final = 40.0
LATENT: Final = Path(sys.executable).parent / "latent"


class Installation:
    """One data directory and what runs on it. May be killed and started again."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        stores: Mapping[str, str] | None = None,
    ) -> None:
        """On ``stores`` (settings that name servers) it is a gateway and a worker, else `latent up`."""
        self.folder = folder
        self.data_dir = folder / "data"
        self.manifests = folder / "manifests"
        self.log = folder / "latent.log"
        self.url = ""
        self._settings = dict(settings or {})
        chosen = own_stores() if stores is None and ON_SERVERS else stores
        self._stores = dict(chosen or {})
        self._process: asyncio.subprocess.Process | None = None
        self.workers: list[asyncio.subprocess.Process] = []
        self.metrics_urls: list[str] = []
        self.manifests.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the installation is not running")
        return self._process.pid

    def has(self, pid: int) -> bool:
        """Whether that is its process; false while none was begun."""
        return self._process is not None and self._process.pid == pid

    @property
    def exit_code(self) -> int | None:
        """How it ended by itself; None while it runs."""
        return self._process.returncode if self._process is not None else None

    @property
    def token(self) -> str:
        return TOKEN if self._stores else (self.data_dir / "token").read_text().strip()

    @property
    def dsn(self) -> str:
        """Of its database."""
        return self._stores.get("LLC_POSTGRES_DSN") or Cluster(self.data_dir).dsn

    def stored_blobs(self, bucket: str = BUCKET) -> int:
        """How many there are, referred to or not. ``bucket`` only on servers."""
        if self._stores:
            return stored_blobs(self._stores, bucket)
        return sum(1 for file in (self.data_dir / "blobs").rglob("*") if file.is_file())

    def environment(self) -> dict[str, str]:
        """Of the process and of CLI calls to it: nothing of the tester's own settings."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LLC_", "MCP_"))}  # noqa: TID251
        return kept | {
            "LLC_DATA_DIR": str(self.data_dir),
            "LLC_MANIFEST_DIR": str(self.manifests),
            "LLC_PORT": "0",
            "LLC_LOG_FORMAT": "json",
            **({"LLC_URL": self.url} if self.url else {}),
            **self._stores,
            **self._settings,
        }

    async def start(self) -> None:
        """Start and wait until requests are answered."""
        await self._start_front()
        if self._stores:
            await self.add_worker()

    async def _start_front(self) -> None:
        self._process = await self._run("gateway" if self._stores else "up", "--json")
        assert self._process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            line = await self._process.stdout.readline()
        answer = orjson.loads(line or b"{}")
        if "url" not in answer:
            raise AssertionError(f"latent did not start: {answer}\n{self.tail()}")
        self.url = answer["url"]

    async def restart_gateway(self, number: signal.Signals) -> None:
        """On servers: end the gateway by that signal and start another one; its workers go on."""
        assert self._process is not None
        self._process.send_signal(number)
        async with asyncio.timeout(STOP_SECONDS):
            await self._process.wait()
        await self._start_front()

    async def add_worker(self) -> None:
        """One more, on servers; its metrics stand at the next of ``metrics_urls``."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.metrics_urls.append(f"http://127.0.0.1:{port}/metrics")
        self.workers.append(await self._run("worker", LLC_METRICS_PORT=str(port)))

    async def _run(self, *command: str, **settings: str) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                str(LATENT),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self.environment() | settings,
                cwd=self.folder,
                start_new_session=True,
            )

    async def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """As Ctrl-C does; answers the exit code."""
        if self._process is None:
            return 0
        if self._process.returncode is None:
            self._process.send_signal(number)
        for worker in self.workers:
            if worker.returncode is None:
                worker.send_signal(number)
        async with asyncio.timeout(STOP_SECONDS):
            codes = [await process.wait() for process in (self._process, *self.workers)]
        self._process, self.workers = None, []
        return next((code for code in codes if code), 0)

    async def kill(self) -> None:
        """`kill -9` of what runs; its children are left to notice by themselves."""
        assert self._process is not None
        for process in (self._process, *self.workers):
            process.kill()
            await process.wait()
        self._process, self.workers = None, []

    def children(self) -> list[psutil.Process]:
        """Every process below ours."""
        own = [self.pid, *(worker.pid for worker in self.workers)]
        return [child for pid in own for child in psutil.Process(pid).children(recursive=True)]

    def client(self, token: str | None = None) -> AsyncClient:
        return AsyncClient(self.url, token or self.token, data_dir=self.data_dir)

    async def cli(self, *arguments: str) -> tuple[int, str, str]:
        """Run `latent …` against it: exit code, stdout, stderr."""
        process = await asyncio.create_subprocess_exec(
            str(LATENT),
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.environment(),
            cwd=self.folder,
        )
        async with asyncio.timeout(120):
            out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def logged(self) -> list[dict[str, Any]]:
        """The log's lines that are JSON objects."""
        whole, _, _ = self.log.read_bytes().rpartition(b"\n")  # the last one may be unfinished
        return [orjson.loads(line) for line in whole.splitlines() if line.startswith(b"{")]


async def eventually(
    condition: Callable[[], Awaitable[bool]], *, seconds: float = 30.0, what: str = "the condition"
) -> None:
    """Wait until ``condition`` holds, bounded."""
    until = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > until:
            raise AssertionError(f"{what} did not come about within {seconds:g} s")
        await asyncio.sleep(0.05)
