"""`kill -9` at any moment while 500 documents come in: what was accepted is live exactly once (DESIGN §12.2)."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile
from typing import Final, TypeVar
from zlib import crc32

import orjson
import psutil
import pytest

from latent_client import AsyncClient
from latent_core.domain.document import DocumentState
from latent_core.domain.errors import NotFound, TimedOut, Unavailable
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Manifest, SearchMode
from latent_core.runtime.data_directory import owner_of
from latent_core.wire.search import SearchRequest
from tests.conftest import DIMS
from tests.support.harness.chaos import Blow, Step, Story, Teller, Victim, blows
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.embedding_server import EmbeddingServer

LEASE_SECONDS: Final = 3.0
LANES: Final = 4
FIRST_STARTS: Final = (0.2, 0.6)
"""Seconds of the first starts before they are killed: the stores are just being made."""
AT_ONCE: Final = 6
TELL_SECONDS: Final = 240.0
DRAIN_SECONDS: Final = 240.0
MAX_FIGURES: Final = 5
GARBAGE_SECONDS: Final = 4 * LEASE_SECONDS
"""Doctor speaks of a blob without a purpose when it is so old."""
MARKS: Final[dict[Victim, str]] = {
    "vectors": "latent_core.vectors.edge.child",
    "guardian": "guardian.py",
    "postgres": "-D",
}
"""A word of the command line tells who is who."""

OPEN: Final = (JobState.QUEUED, JobState.RUNNING)

T = TypeVar("T")


@dataclass
class Run:
    """One installation, and what has happened to it."""

    installation: Installation
    done: int = 0
    """Steps that were answered."""
    again: int = 0
    """Requests that were sent again, since no answer came."""
    killed: Counter[Victim] = field(default_factory=Counter)
    starts: list[float] = field(default_factory=list)
    """Seconds until each was ready."""
    killed_at: float = 0.0
    seen: set[psutil.Process] = field(default_factory=set)
    """Every process that was found below ours."""

    async def start(self) -> None:
        begun = time.monotonic()
        await self.installation.start()
        self.starts.append(time.monotonic() - begun)

    def look(self) -> list[psutil.Process]:
        """The processes below ours now."""
        children = self.installation.children()
        self.seen.update(children)
        return children

    async def kill(self) -> None:
        self.look()
        await self.installation.kill()
        self.killed["main"] += 1
        self.killed_at = time.monotonic()

    async def strike(self, blow: Blow) -> None:
        """Deal one blow; afterwards `latent up` runs."""
        await asyncio.sleep(blow.delay)
        if blow.victim != "main":
            await self._kill_child(blow.victim)
            return
        await self.kill()
        for seconds in blow.restarts:
            await self.break_off(seconds)
        await self.start()

    async def break_off(self, seconds: float) -> None:
        """Start, and kill it so long after it took its data directory."""
        starting = asyncio.create_task(self.installation.start())

        async def opened() -> bool:
            owner = owner_of(self.installation.data_dir)
            ours = owner is not None and self.installation.has(owner.pid)
            return starting.done() or ours

        await eventually(opened, what="the start")
        await asyncio.wait([starting], timeout=seconds)
        await self.kill()
        with suppress(AssertionError):  # it ended before it was ready
            await starting

    async def _kill_child(self, victim: Victim) -> None:
        async def found() -> bool:
            for process in self.look():
                with suppress(psutil.NoSuchProcess):
                    if any(word.endswith(MARKS[victim]) for word in process.cmdline()):
                        process.kill()
                        return True
            return False

        await eventually(found, what=f"a {victim} to kill")
        self.killed[victim] += 1
        self.killed_at = time.monotonic()


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
            await asyncio.sleep(0.1)

    async def do(self, step: Step) -> None:
        if step.data is None:
            await self._delete(step)
        else:
            await self._add(step, step.data)
        self._run.done += 1

    async def leave(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _connected(self) -> AsyncClient:
        installation = self._run.installation
        if self._client is None or self._url != installation.url:
            await self.leave()
            self._url = installation.url
            self._client = AsyncClient(self._url, installation.token, timeout_seconds=30)
        return self._client

    async def _add(self, step: Step, data: bytes) -> None:
        with NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            path = Path(file.name)

            async def upload_and_add(client: AsyncClient) -> None:
                upload = await client.upload(step.container, path, filename=step.filename)
                await client.add(step.container, file_ref=upload.file_ref)

            await self.ask(upload_and_add)

    async def _delete(self, step: Step) -> None:
        requests_before = self._run.again
        try:
            if step.filename:
                doc_id = document_id(step.container, step.uri)
                await self.ask(lambda c: c.delete_document(step.container, doc_id, now=True))
            else:
                await self.ask(lambda c: c.delete(step.container))
        except NotFound:  # a deletion that got no answer may have been carried out
            assert self._run.again > requests_before, f"{step} was accepted and is not there"


@asynccontextmanager
async def person(run: Run) -> AsyncIterator[Person]:
    somebody = Person(run)
    try:
        yield somebody
    finally:
        await somebody.leave()


async def tell(run: Run, story: Story) -> None:
    """All steps: those of one lane in order, the lanes at the same time."""

    async def lane(number: int) -> None:
        async with person(run) as somebody:
            for step in story.steps:
                if crc32(step.lane.encode()) % LANES == number:
                    await somebody.do(step)

    async with asyncio.TaskGroup() as lanes:
        for number in range(LANES):
            lanes.create_task(lane(number))


async def read(run: Run, story: Story) -> None:
    """Somebody who searches all the while: whatever is shown, is shown once."""
    words = [(container, e.word) for (container, _), e in story.live.items() if e.word]
    async with person(run) as reader:
        while True:
            for container, word in words[:: len(words) // 23]:
                await found(reader, container, word)
                await asyncio.sleep(0.05)


async def found(reader: Person, container: str, word: str) -> list[str]:
    """Source uris of all hits for a word that is in one version of one document. Hits for another word, to which the
    search corrected one that is in no text, are none."""
    request = SearchRequest(containers=[container], query=word, mode=SearchMode.LEXICAL, top_k=10)
    answer = await reader.ask(lambda c: c.search(request))
    if any(issue.details.get("searched") for issue in answer.issues):
        return []
    uris = [hit.source_uri for hit in answer.hits]
    assert len(uris) <= 1, f"{word} is shown {len(uris)} times: {uris}"
    return uris


async def chaos(run: Run, story: Story, dealt: Sequence[Blow]) -> None:
    """Deal all blows while the story is told and somebody reads."""
    telling = asyncio.create_task(tell(run, story))
    reading = asyncio.create_task(read(run, story))
    try:
        for blow in dealt:
            await reached(run, blow, telling)
            await run.strike(blow)
        await telling
    finally:
        for task in (telling, reading):
            task.cancel()
        ended = await asyncio.gather(telling, reading, return_exceptions=True)
    for result in ended:
        if isinstance(result, Exception):
            raise result


async def reached(run: Run, blow: Blow, telling: asyncio.Task[None]) -> None:
    """Return when the blow is due."""

    async def due() -> bool:
        assert psutil.pid_exists(run.installation.pid), run.installation.tail()
        return telling.done() or (blow.after is not None and run.done >= blow.after)

    await eventually(due, seconds=TELL_SECONDS, what=f"step {blow.after}")


async def drained(run: Run) -> None:
    """Nothing is queued or running, last purges included, and garbage is old enough to be told of."""
    async with run.installation.client() as client:

        async def quiet() -> bool:
            still = [job async for job in client.jobs(states=OPEN)]
            running = (await jobs_by_state(client))["running"]  # of deleted containers too
            return not (still or running) and time.monotonic() - run.killed_at > GARBAGE_SECONDS

        await eventually(quiet, seconds=DRAIN_SECONDS, what="the queue to be empty")
        failed = [job async for job in client.jobs(states=(JobState.FAILED,))]
        assert [(job.kind, job.attempts, job.cause) for job in failed] == []

        async def none_failed() -> bool:  # those of a deleted container are forgotten with it
            return not (await jobs_by_state(client))["failed"]

        await eventually(none_failed, what="no failed job")


async def jobs_by_state(client: AsyncClient) -> dict[str, float]:
    found = re.findall(r'latent_queue_jobs\{state="(\w+)"\} (\S+)', await client.metrics())
    return {state: float(count) for state, count in found}


async def check(run: Run, story: Story) -> None:
    """Every accepted document is live exactly once, in its newest version; nothing else is there."""
    async with run.installation.client() as client:
        for container in {container for container, _ in story.live}:
            await check_documents(client, container, story)
        assert {c.id for c in await client.containers()} == {c for c, _ in story.live}
        report = await client.doctor()
        assert report.clean, report.model_dump()
        for counts in (one.counts for one in report.containers.values()):
            assert counts["points"] == counts["points_expected"]
            assert counts["pending_documents"] == 0
    await check_words(run, story)
    code, out, err = await run.installation.cli("doctor", "--json")
    assert (code, orjson.loads(out)["clean"]) == (0, True), (out, err)


async def check_documents(client: AsyncClient, container: str, story: Story) -> None:
    stored = [d async for d in client.documents(container)]
    assert len({d.source_uri for d in stored}) == len(stored)
    expected_hits = {uri: e for (c, uri), e in story.live.items() if c == container}
    assert {d.source_uri for d in stored} == expected_hits.keys()
    for document in stored:
        expected = expected_hits[document.source_uri]
        assert document.state is DocumentState.LIVE, document
        assert expected.sha256 in (None, document.sha256), document


async def check_words(run: Run, story: Story) -> None:
    """By one search each: a live word is in its document, a word that is gone in none."""
    expected_hits: list[tuple[str, str, list[str]]] = [
        (container, e.word, [uri]) for (container, uri), e in story.live.items() if e.word
    ]
    expected_hits += [(container, word, []) for container, word in story.gone]

    async def some(number: int) -> None:
        async with person(run) as reader:
            for container, word, uris in expected_hits[number::AT_ONCE]:
                assert await found(reader, container, word) == uris, (container, word)

    async with asyncio.TaskGroup() as readers:
        for number in range(AT_ONCE):
            readers.create_task(some(number))


def surprises(installation: Installation) -> list[str]:
    """Lines of the log that tell of what nobody foresaw."""
    return [
        orjson.dumps(line).decode()[:2000]
        for line in installation.logged()
        if "exc_info" in line or line.get("status") == 500
    ]


def living(run: Run) -> list[str]:
    return [repr(p) for p in run.seen if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


async def rehearse(run: Run, story: Story, dealt: Sequence[Blow]) -> None:
    for seconds in FIRST_STARTS:
        await run.break_off(seconds)
    await run.start()
    async with run.installation.client() as client:
        for container in sorted({step.container for step in story.steps}):
            await client.create(
                Manifest(id=container, name=container, embedder="openai/test", dims=DIMS)
            )
    await chaos(run, story, dealt)
    await drained(run)
    await check(run, story)
    run.look()
    assert await run.installation.stop() == 0
    assert living(run) == []
    assert surprises(run.installation) == []


def figures(run: Run, story: Story, seed: int, seconds: float) -> str:
    killed = ", ".join(f"{n} of {victim}" for victim, n in run.killed.most_common(MAX_FIGURES))
    return (
        f"seed {seed}: {len(story.steps)} steps, {len(story.live)} documents live, kills: {killed}; "
        f"{run.again} requests sent again; start median {median(run.starts):.1f} s, "
        f"longest {max(run.starts):.1f} s; {seconds:.0f} s in all"
    )


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("seed", "kills", "every"),
    [
        pytest.param(1, 4, 7, marks=pytest.mark.slow),
        pytest.param(1, 12, 1, marks=pytest.mark.slow),
        *(pytest.param(seed, 40, 1, marks=pytest.mark.slow) for seed in (2, 3, 4)),
    ],
)
async def test_killed_at_any_moment_it_loses_nothing_and_shows_everything_once(
    seed: int,
    kills: int,
    every: int,
    install_root: Path,
    embedding_server: EmbeddingServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    story = Teller(seed, every=every).tell()
    settings = {
        "LLC_EMBED_BASE_URL": embedding_server.base_url,
        "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        "LLC_LEASE_SECONDS": str(LEASE_SECONDS),
    }
    run = Run(Installation(install_root / f"kill-{seed}-{kills}", settings))
    begun = time.monotonic()
    try:
        dealt = blows(seed, kills - len(FIRST_STARTS), len(story.steps))
        await rehearse(run, story, dealt)
    finally:
        await run.installation.stop()
    assert run.killed["main"] >= kills
    assert every > 1 or len(story.live) >= 500
    with capsys.disabled():
        print("\n" + figures(run, story, seed, time.monotonic() - begun))
