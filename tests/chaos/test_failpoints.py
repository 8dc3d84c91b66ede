"""`kill -9` at every named point: after a restart all is as it would have been without it (DESIGN §12.2)."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.errors import Conflict, NotFound, TimedOut, Unavailable
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobState
from latent_core.domain.manifest.language_models import ModelBlock
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.note import note_uri
from latent_core.domain.token import Scope
from latent_core.wire.refresh import RefreshRequest, RefreshTarget, Strategy, Way
from latent_core.wire.search import SearchRequest
from latent_core.wire.transfers import ArchiveAnswer
from tests.conftest import DIMS
from tests.support import REPOSITORY
from tests.support.harness.installation import Installation, eventually
from tests.support.page_answers import book, described, sides
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.llm_server import MODEL, LanguageModelServer

SOURCES: Final = [
    path
    for package in ("core", "workers", "mcp-server")
    for path in (REPOSITORY / package / "src").rglob("*.py")
]
POINT: Final = re.compile(r'failpoint\(\s*"([^"]+)"')
ANY_POINT: Final = re.compile(r"(?<!def )failpoint\((?!\))")
KILLED: Final = 137
LEASE_SECONDS: Final = 3.0
SETTLE_SECONDS: Final = 240.0
REPEATED_REQUESTS: Final = 20
OPEN: Final = (JobState.QUEUED, JobState.RUNNING)
KEEP_SECONDS: Final = 90.0
"""There is a way back for so long: longer than a crash and a start take, and every job is waited for."""
ALWAYS: Final = ("ingest.after_vectors",)
"""Also tried where there is little time."""

T = TypeVar("T")


def named_points() -> dict[str, Path]:
    """Every point with the file it stands in."""
    return {name: path for path in SOURCES for name in POINT.findall(path.read_text("utf-8"))}


@dataclass
class CrashHarness:
    """One installation that is started again and again, with a point to die at or without."""

    folder: Path
    settings: dict[str, str]
    embedder: EmbeddingServer
    model: LanguageModelServer
    running: Installation | None = None
    codes: list[int] = field(default_factory=list)
    """How its processes ended that were not stopped."""

    async def start(self, failpoint_name: str | None = None) -> None:
        more = {"LLC_FAILPOINT": failpoint_name} if failpoint_name else {}
        self.running = Installation(self.folder, self.settings | more)
        with suppress(AssertionError):  # it may die before it is ready
            await self.running.start()

    async def stop(self) -> None:
        if self.running is not None:
            await self.running.stop()
        self.running = None

    async def ask(self, what: Callable[[AsyncClient], Awaitable[T]], token: str | None = None) -> T:
        """As a person does it: who gets no answer starts what has died, and asks again."""
        last_error: Exception | None = None
        for _ in range(REPEATED_REQUESTS):
            await self.revive()
            try:
                if (
                    self.running is not None and self.running.url
                ):  # else it died before it was ready
                    async with self.running.client(token) as client:
                        return await what(client)
            except (Unavailable, TimedOut) as error:
                last_error = error
            await asyncio.sleep(0.1)
        tail = self.running.tail() if self.running is not None else ""
        raise AssertionError(f"nothing answers: {last_error!r}\n{tail}")

    async def revive(self) -> None:
        assert self.running is not None
        code = self.running.exit_code
        if code is not None:
            self.codes.append(code)
            await self.start()

    async def died(self) -> bool:
        await self.revive()
        return bool(self.codes)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model_server() -> AsyncIterator[LanguageModelServer]:
    async with LanguageModelServer(answer=described) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    install_root: Path, embedding_server: EmbeddingServer, model_server: LanguageModelServer
) -> AsyncIterator[CrashHarness]:
    providers = install_root / "crash-providers.yaml"
    providers.write_text(
        f"providers:\n- {{name: work, kind: openai, base_url: '{model_server.base_url}/v1', reads: [pdf], concurrency: 1}}\n",
        encoding="utf-8",
    )
    one = CrashHarness(
        install_root / "crash-points",
        {
            "LLC_PROVIDERS": str(providers),
            "LLC_EMBED_BASE_URL": embedding_server.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_LEASE_SECONDS": str(LEASE_SECONDS),
            "LLC_REFRESH_KEEP_DAYS": str(KEEP_SECONDS / 86_400),
            "LLC_DRIFT_MIN_RECALL": "0",  # how good an adapter is, is no matter here
        },
        embedding_server,
        model_server,
    )
    yield one
    await one.stop()


FIRST: Final = "# Lamps\n\nThe lamp is lit at dusk.\n\n## Lens\n\nThe lens turns.\n"
SECOND: Final = "# Lamps\n\nThe lamp is lit at dawn.\n\n## Fog\n\nThe horn blows.\n"
LAMP_PAGES: Final = tuple(f"Lamp {n} is lit." for n in range(1, 7))
LAMPS: Final = book(*LAMP_PAGES)
GONE: Final = "The keeper of this note was forgotten.\n"
RECORDS: Final = '{"_id": "a", "text": "gulls"}\n{"_id": "b", "text": "terns"}\n'


async def comings_and_goings(harness: CrashHarness, container: str, folder: Path) -> None:
    """Containers come, documents come, change and go, a container goes."""
    for name in (container, f"{container}-doomed"):
        await create(harness, name)
    await add(harness, container, folder, "lamp.md", FIRST)
    await add(harness, f"{container}-doomed", folder, "brief.txt", GONE)
    await add(harness, container, folder, "note.txt", GONE)
    await add(harness, container, folder, "birds.jsonl", RECORDS)
    await add(harness, container, folder, "lamp.md", SECOND)
    await delete(harness, container, "note.txt")
    with suppress(NotFound):  # asked for before, and only the answer was lost
        await harness.ask(lambda client: client.delete(f"{container}-doomed"))


async def another_model(harness: CrashHarness, container: str, folder: Path) -> None:
    """A container changes to another embedder, and the old space goes."""
    await create(harness, container)
    await add(harness, container, folder, "lamp.md", SECOND)
    await add(harness, container, folder, "birds.jsonl", RECORDS)
    request = RefreshRequest(strategy=Strategy.PARALLEL, to=OTHER, keep_days=0)
    await refreshed(harness, container, request)


async def anew_in_place(harness: CrashHarness, container: str, folder: Path) -> None:
    """The server has another version of the model: the collection is emptied, and filled again."""
    await create(harness, container)
    await add(harness, container, folder, "lamp.md", SECOND)
    await add(harness, container, folder, "birds.jsonl", RECORDS)
    to = RefreshTarget(embedder="openai/test", version="2", dims=DIMS)
    request = RefreshRequest(strategy=Strategy.INPLACE, to=to, force=True)
    await refreshed(harness, container, request)


async def there_and_back(harness: CrashHarness, container: str, folder: Path) -> None:
    """A container changes to another embedder, and back in one step."""
    await create(harness, container)
    await add(harness, container, folder, "lamp.md", SECOND)
    await refreshed(harness, container, RefreshRequest(strategy=Strategy.PARALLEL, to=OTHER))

    async def back() -> bool:
        described = await harness.ask(lambda client: client.describe(container))
        if described.manifest["embedder"] == "openai/test":
            return True
        with suppress(Conflict):  # once more would lead forth again: it is looked at first
            await harness.ask(lambda client: client.rollback(container))
        return False

    await eventually(back, seconds=SETTLE_SECONDS, what="the way back")


async def by_adapter(harness: CrashHarness, container: str, folder: Path) -> None:
    """A model is not served any more: an adapter maps the questions of another one, or the stored vectors."""
    ways = {Way.QUERY: container, Way.FORWARD: f"{container}-forward"}
    harness.embedder.gone.discard("leaving")
    for name in ways.values():
        await create(harness, name, embedder="openai/leaving")
        await add(harness, name, folder, "many.jsonl", MANY)
    harness.embedder.gone.add("leaving")
    for way, name in ways.items():
        request = RefreshRequest(strategy=Strategy.DRIFT, to=OTHER, way=way, keep_days=0)
        await refreshed(harness, name, request)


async def refreshed(harness: CrashHarness, container: str, request: RefreshRequest) -> None:
    """Asked for again until it is so."""
    to = request.to
    assert to is not None

    async def changed() -> bool:
        described = await harness.ask(lambda client: client.describe(container))
        now = described.manifest["embedder"], described.manifest["embedder_version"]
        if now == (to.embedder, to.version or "1"):
            return True
        with suppress(Conflict):  # it is under way
            await harness.ask(lambda client: client.refresh(container, request))
        return False

    await eventually(changed, seconds=SETTLE_SECONDS, what="the switch")


async def out_and_in(harness: CrashHarness, container: str, folder: Path) -> None:
    """A container is exported with and without its vectors, taken in again twice, and backed up."""
    await create(harness, container)
    await add(harness, container, folder, "lamp.md", SECOND)
    await idle(harness)  # with its pages
    for suffix, vectors in (("-whole", True), ("-words", False)):
        await copied(harness, container, container + suffix, vectors=vectors, folder=folder)
    await idle(harness)

    async def backed_up() -> bool:
        if await harness.ask(lambda client: client.backups(container)):
            return True
        await harness.ask(lambda client: client.backup(container))
        await idle(harness)
        return False

    await eventually(backed_up, seconds=SETTLE_SECONDS, what="the backup")


async def copied(
    harness: CrashHarness, container: str, target: str, *, vectors: bool, folder: Path
) -> None:
    async def made() -> bool:
        answer = await harness.ask(lambda client: client.export(container, vectors=vectors))
        if answer.archive is None:
            await idle(harness)
            return False
        link = ArchiveAnswer(url=answer.url or "", archive=answer.archive)
        await harness.ask(lambda client: client.download(link, folder / f"{target}.llc"))
        return True

    await eventually(made, seconds=SETTLE_SECONDS, what=f"the export to {target}")

    async def taken_in() -> bool:
        if target in [c.id for c in await harness.ask(lambda client: client.containers())]:
            return True
        with suppress(Conflict):  # an import of it is under way
            await harness.ask(
                lambda client: client.import_archive(folder / f"{target}.llc", container_id=target)
            )
        await idle(harness)
        return False

    await eventually(taken_in, seconds=SETTLE_SECONDS, what=f"the import as {target}")


async def notes_written(harness: CrashHarness, container: str, folder: Path) -> None:
    """An agent writes a note, replaces it twice, supersedes another one and continues a conversation."""
    await create(harness, container)
    token = await harness.ask(
        lambda client: client.create_token(
            AGENT, name=container, scopes=[Scope.READ, Scope.WRITE], containers=[container]
        )
    )
    outdated = document_id(container, note_uri(AGENT, "lens"))
    for note in (*NOTES, {**SUCCESSOR, "supersedes": outdated}):
        await harness.ask(lambda client, note=note: client.add(container, **note), token.secret)
    await idle(harness)

    async def current(client: AsyncClient) -> None:
        request = SearchRequest(containers=[container], query="lamp lens", top_k=10, dedup=False)
        uris = {hit.source_uri for hit in (await client.search(request)).hits}
        assert uris == {note_uri(AGENT, name) for name in ("lamp", "new lens", "talk")}
        former = request.model_copy(update={"include_superseded": True})
        assert len((await client.search(former)).hits) == 6

    await harness.ask(current)


async def pages_described(harness: CrashHarness, container: str, folder: Path) -> None:
    """The pages of a PDF are described, and no answer that was received is requested again: at a kill, one request of this
    provider may be under way and one answer not stored yet."""
    manifest = Manifest(
        id=container,
        name=container,
        embedder="openai/test",
        dims=DIMS,
        extraction=ModelBlock(enabled=True, provider=f"work/{MODEL}"),
    )
    with suppress(Conflict):
        await harness.ask(lambda client: client.create(manifest))
    harness.model.seen.clear()
    await add(harness, container, folder, "lamps.pdf", LAMPS)
    await idle(harness)
    shown = [sides(seen)[0] for seen in harness.model.seen]
    assert set(shown) == set(LAMP_PAGES)
    assert shown.count(shown[0]) == 1
    assert len(shown) <= len(LAMP_PAGES) + 2


AGENT: Final = "agent:ada"
TALK: Final = [
    {"role": "user", "content": "Is the lamp lit?", "time": "2026-05-01T10:00:00Z"},
    {"role": "assistant", "content": "Yes, with its lens.", "time": "2026-05-01T10:00:05Z"},
]
NOTES: Final[tuple[dict[str, Any], ...]] = (
    {"name": "lens", "text": "The lens is of brass."},
    {"name": "lamp", "text": "The lamp is lit at dusk."},
    {"name": "lamp", "text": "The lamp is lit at dawn."},
    {"name": "talk", "messages": TALK[:1], "session": "s1"},
    {"name": "lamp", "text": "The lamp is lit at noon.", "session": "s1"},
    {"name": "talk", "messages": TALK},
)
SUCCESSOR: Final = {"name": "new lens", "text": "The lens is of glass."}

OTHER: Final = RefreshTarget(embedder="openai/other", dims=DIMS)
MANY: Final = "".join(
    f'{{"_id": "n{n}", "text": "buoy{n} lies {n % 7} miles off cape{n % 11} by wreck{n % 5}"}}\n'
    for n in range(44)
)
"""Enough for an adapter to learn from."""

Story = Callable[[CrashHarness, str, Path], Awaitable[None]]
STORIES: Final[dict[Story, frozenset[str]]] = {
    comings_and_goings: frozenset(
        {"blob", "corpus", "create", "delete", "drop", "garbage", "ingest", "purge", "render"}
    ),
    another_model: frozenset({"refresh", "space"}),
    anew_in_place: frozenset({"inplace"}),
    there_and_back: frozenset({"rollback"}),
    by_adapter: frozenset({"drift"}),
    out_and_in: frozenset({"export", "import"}),
    notes_written: frozenset({"note"}),
    pages_described: frozenset({"extract"}),
}
"""Each with the operations whose points it comes by."""
ALSO: Final[dict[Story, tuple[str, ...]]] = {
    anew_in_place: ("refresh.after_vectors", "refresh.after_record"),
    by_adapter: ("refresh.after_vectors", "refresh.before_switch"),
    pages_described: ("model.after_answer", "generated.after_intent", "generated.after_vectors"),
    notes_written: (
        "blob.before_bytes",
        "blob.after_bytes",
        "ingest.before_embedding",
        "ingest.before_vectors",
        "ingest.after_vectors",
        "ingest.before_commit",
        "ingest.after_commit",
    ),
}
"""Points of another story that this one comes by in its own way."""


def story_of(point: str) -> Story | None:
    operation = point.partition(".")[0]
    return next((story for story, covered in STORIES.items() if operation in covered), None)


def cases() -> Iterator[Any]:
    for name in sorted(named_points()):
        if (story := story_of(name)) is not None:
            marks = () if name in ALWAYS else pytest.mark.slow
            yield pytest.param(name, story, marks=marks, id=name)
    for story, names in ALSO.items():
        for name in names:
            last_error = f"{name}-{story.__name__}"
            yield pytest.param(name, story, marks=pytest.mark.slow, id=last_error)


async def create(harness: CrashHarness, name: str, *, embedder: str = "openai/test") -> None:
    manifest = Manifest(id=name, name=name, embedder=embedder, dims=DIMS)
    with suppress(Conflict):
        await harness.ask(lambda client: client.create(manifest))


async def add(
    harness: CrashHarness, container: str, folder: Path, name: str, text: str | bytes
) -> None:
    """Add, and wait until it is there: a later version must not overtake it in the queue."""
    file = folder / name
    data = text.encode() if isinstance(text, str) else text
    file.write_bytes(data)

    async def added(client: AsyncClient) -> None:
        upload = await client.upload(container, file)
        await client.add(container, file_ref=upload.file_ref, source_uri=f"file:///{name}")

    await harness.ask(added)
    digest = hashlib.sha256(data).hexdigest()
    doc_id = document_id(container, f"file:///{name}")

    async def there() -> bool:
        with suppress(NotFound):
            document = await harness.ask(lambda client: client.document(container, doc_id))
            return document.sha256 == digest
        return False

    await eventually(there, seconds=SETTLE_SECONDS, what=f"{name} in {container}")


async def delete(harness: CrashHarness, container: str, name: str) -> None:
    doc_id = document_id(container, f"file:///{name}")
    with suppress(NotFound):
        await harness.ask(lambda client: client.delete_document(container, doc_id, now=True))


async def idle(harness: CrashHarness) -> None:
    """All jobs are done."""

    async def done() -> bool:
        async def open_jobs(client: AsyncClient) -> int:
            return len([j async for j in client.jobs(states=OPEN)])

        return await harness.ask(open_jobs) == 0

    await eventually(done, seconds=SETTLE_SECONDS, what="the end of all jobs")


async def settled(harness: CrashHarness) -> None:
    """All jobs are done, purges and the garbage included."""
    await idle(harness)

    async def swept() -> bool:
        return await harness.ask(lambda client: unneeded(client, harness)) == set()

    await eventually(swept, seconds=SETTLE_SECONDS, what="the collection of garbage")


async def unneeded(client: AsyncClient, harness: CrashHarness) -> set[str]:
    """Stored blobs of the first story that nothing needs any more."""
    gone = {hashlib.sha256(text.encode()).hexdigest() for text in (FIRST, GONE)}
    stored = {p.name for p in (harness.folder / "data" / "blobs").rglob("*") if p.is_file()}
    await client.healthy()  # so that whoever died is revived
    return gone & stored


async def state(harness: CrashHarness, container: str) -> dict[str, Any]:
    """What a reader can tell of a container and of those beside it, without what names or numbers their history."""

    async def read(client: AsyncClient) -> dict[str, Any]:
        known = [c.id for c in await client.containers()]
        ours = [c for c in known if c == container or c.startswith(f"{container}-")]
        return {name.removeprefix(container): await contents(client, name) for name in ours}

    return await harness.ask(read)


async def contents(client: AsyncClient, container: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    documents = [d async for d in client.documents(container)]
    uris = {d.doc_id: d.source_uri for d in documents}
    for d in documents:
        texts = [c.text async for c in client.chunks(container, doc_id=d.doc_id)]
        listed = [
            (page.page, page.page_image)
            async for pages in client.pages(d.doc_id)
            for page in pages.pages
        ]
        note = d.origin, d.written_by, d.session, d.version, uris.get(d.superseded_by)
        found[d.source_uri] = (d.state, d.sha256, sorted(texts), listed, *note)
    manifest = (await client.describe(container)).manifest
    found["embedder"] = manifest["embedder"], manifest["embedder_version"]
    return found


async def failed_jobs(client: AsyncClient) -> list[tuple[str, object]]:
    """Each with its cause."""
    return [(job.kind, job.cause) async for job in client.jobs(states=(JobState.FAILED,))]


async def check_clean(harness: CrashHarness) -> None:
    report = await harness.ask(lambda client: client.doctor(deep=True))
    assert report.clean, report.model_dump()
    for one in report.containers.values():
        assert one.counts["points"] == one.counts["points_expected"]
    assert await harness.ask(failed_jobs) == []


class UndisturbedOutcomes:
    """The states to which the stories lead when nothing happens; each is told once."""

    def __init__(self, harness: CrashHarness, folder: Path) -> None:
        self._harness = harness
        self._folder = folder
        self._known: dict[Story, dict[str, Any]] = {}

    async def state(self, story: Story) -> dict[str, Any]:
        if story not in self._known:
            harness, name = self._harness, f"calm{len(self._known)}"
            harness.codes.clear()
            await harness.start()
            try:
                await story(harness, name, self._folder)
                await settled(harness)
                await check_clean(harness)
                assert harness.codes == []
                self._known[story] = await state(harness, name)
            finally:
                await harness.stop()
        return self._known[story]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calm(harness: CrashHarness, install_root: Path) -> UndisturbedOutcomes:
    folder = install_root / "story"
    folder.mkdir()
    return UndisturbedOutcomes(harness, folder)


@pytest.mark.timeout(1200)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("point", "story"), list(cases()))
async def test_a_crash_there_changes_nothing_in_the_end(
    point: str, story: Story, harness: CrashHarness, calm: UndisturbedOutcomes, install_root: Path
) -> None:
    undisturbed = await calm.state(story)
    last_error = point if story is story_of(point) else f"{point}-{story.__name__}"
    container = "at-" + re.sub("[^a-z]", "-", last_error)
    harness.codes.clear()
    await harness.start(failpoint_name=point)
    try:
        await story(harness, container, install_root / "story")
        await eventually(harness.died, seconds=SETTLE_SECONDS, what=f"the crash at {point}")
        await settled(harness)
        assert harness.codes == [KILLED]
        assert await state(harness, container) == undisturbed
        await check_clean(harness)
    finally:
        await harness.stop()


def test_every_point_is_named_by_a_literal_and_belongs_to_a_story() -> None:
    for path in SOURCES:
        text = path.read_text("utf-8")
        assert len(ANY_POINT.findall(text)) == len(POINT.findall(text)), path
    tests = {p: p.read_text("utf-8") for p in REPOSITORY.glob("**/tests/**/test_*.py")}
    last_error = [text for p, text in tests.items() if p != Path(__file__)]
    forgotten = [
        name
        for name in named_points()
        if story_of(name) is None and not any(name in text for text in last_error)
    ]
    assert forgotten == [], "no test kills at these points"


def test_before_each_call_there_is_a_point_and_after_it_another() -> None:
    names = named_points().keys()
    for name in names:
        operation, _, place = name.partition(".")
        side, _, call = place.partition("_")
        assert side in ("before", "after"), name
        if call in ("bytes", "vectors", "points", "collection", "commit", "adapter", "drop"):
            assert {f"{operation}.before_{call}", f"{operation}.after_{call}"} <= names, name
