"""`kill -9` at any moment while 500 documents come in: what was accepted is live exactly once (DESIGN §12.2)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile
from typing import Any, Final, TypeVar
from zlib import crc32

import psutil
import pytest

from latent_client import AsyncClient
from latent_core.domain.errors import NotFound, TimedOut, Unavailable
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobState
from latent_core.domain.manifest import Manifest, SearchMode
from latent_core.domain.query import SearchRequest
from latent_core.testing.embedding_server import EmbeddingServer
from tests.chaos import Blow, Step, Story, Teller, blows
from tests.conftest import DIMS
from tests.harness import Installation, eventually

LEASE_SECONDS: Final = 3.0
LANES: Final = 4
SEARCHES_AT_ONCE: Final = 6
DRAIN_SECONDS: Final = 240.0
GRACE_SECONDS: Final = 4 * LEASE_SECONDS
"""So old must a blob without a purpose be before doctor speaks of it."""
OPEN: Final = (JobState.QUEUED, JobState.RUNNING)

T = TypeVar("T")


@dataclass
class Run:
    """One installation and what has happened to it."""

    installation: Installation
    done: int = 0
    """Steps that were answered."""
    again: int = 0
    """Requests that were sent again."""
    killed: Counter[str] = field(default_factory=Counter)
    started: list[float] = field(default_factory=list)
    """Seconds each start took."""
    seen: set[psutil.Process] = field(default_factory=set)
    """Every process that ever ran below ours."""

    async def start(self) -> None:
        begun = time.monotonic()
        await self.installation.start()
        self.started.append(time.monotonic() - begun)

    def look(self) -> list[psutil.Process]:
        """The processes below ours now."""
        children = self.installation.children()
        self.seen.update(children)
        return children

    async def kill(self) -> None:
        self.look()
        await self.installation.kill()


class Person:
    """Adds and deletes, and asks again whenever no answer came."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._client: AsyncClient | None = None
        self._url = ""

    async def ask(self, what: Callable[[AsyncClient], Awaitable[T]]) -> T:
        while True:
            with suppress(Unavailable, TimedOut):
                return await what(await self._connected())
            self._run.again += 1
            await asyncio.sleep(0.05)

    async def _connected(self) -> AsyncClient:
        installation = self._run.installation
        if self._client is None or self._url != installation.url:
            await self.leave()
            self._url = installation.url
            self._client = AsyncClient(self._url, installation.token, timeout_seconds=20)
        return self._client

    async def leave(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def do(self, step: Step) -> None:
        if step.data is None:
            await self._delete(step)
        else:
            await self._add(step, step.data)
        self._run.done += 1

    async def _add(self, step: Step, data: bytes) -> None:
        with NamedTemporaryFile(suffix=step.filename) as file:
            file.write(data)
            file.flush()
            path = Path(file.name)

            async def upload_and_add(client: AsyncClient) -> None:
                upload = await client.upload(step.container, path, filename=step.filename)
                await client.add(step.container, file_ref=upload.file_ref)

            await self.ask(upload_and_add)

    async def _delete(self, step: Step) -> None:
        """It must be there, unless a deletion that got no answer was carried out."""
        asked = self._run.again
        try:
            await self.ask(
                lambda c: c.delete_document(step.container, document_id(step.container, step.uri))
            )
        except NotFound:
            assert self._run.again > asked, f"{step.uri} was accepted and is not there"


async def tell(run: Run, steps: list[Step]) -> None:
    """All steps; those of one document in order, those of others at the same time."""

    async def lane(number: int) -> None:
        person = Person(run)
        try:
            for step in steps:
                if crc32(step.filename.encode()) % LANES == number:
                    await person.do(step)
        finally:
            await person.leave()

    async with asyncio.TaskGroup() as lanes:
        for number in range(LANES):
            lanes.create_task(lane(number))
        lanes.create_task(doomed(run))


async def doomed(run: Run) -> None:
    """A container that comes and goes."""
    person = Person(run)
    try:
        with suppress(Exception):
            await person.ask(lambda c: c.create(manifest("doomed")))
        for number in range(12):
            await person._add(Step("doomed", f"{number}.txt", b"soon"), b"Soon it is over. %d" % number)
        with suppress(NotFound):
            await person.ask(lambda c: c.delete("doomed"))
    finally:
        await person.leave()


def manifest(container: str, **more: Any) -> Manifest:
    return Manifest(id=container, name=container, embedder="openai/test", dims=DIMS, **more)


async def strike(run: Run, blow: Blow, told: asyncio.Task[None]) -> None:
    """Deal one blow at its point, and start again."""
    while blow.after is not None and run.done < blow.after and not told.done():
        await asyncio.sleep(0.01)
    if blow.victim == "start":
        await strike_start(run, blow.delay)
        return
    await asyncio.sleep(blow.delay)
    run.killed[blow.victim] += 1
    if blow.victim == "main":
        await run.kill()
        await run.start()
    else:
        child(run, blow.victim).kill()


async def strike_start(run: Run, delay: float) -> None:
    """Killed while it comes up, on what an earlier kill has left."""
    await run.kill()
    starting = asyncio.create_task(run.installation.start())
    await asyncio.wait([starting], timeout=delay)
    run.killed["main"] += 1
    if starting.done():
        run.killed["start"] += 1
    else:
        run.killed["start"] += 1
    await run.kill()
    with suppress(AssertionError):
        await starting
    await run.start()


def child(run: Run, victim: str) -> psutil.Process:
    marks = {"vectors": "latent_core.vectors.child", "guardian": "guardian.py", "postgres": "-D"}
    for process in run.look():
        with suppress(psutil.NoSuchProcess):
            if any(word.endswith(marks[victim]) for word in process.cmdline()):
                return process
    raise AssertionError(f"no {victim} runs")
