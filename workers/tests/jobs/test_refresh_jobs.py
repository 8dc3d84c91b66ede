"""Refresh on real stores: nothing is missing after a switch, nothing is embedded twice, one step leads back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from uuid import UUID

import numpy as np
import pytest

from latent_core.blobs.writer import store
from latent_core.db import containers
from latent_core.db.connection import Connection, Database
from latent_core.db.containers import Container, Space
from latent_core.db.documents import chunks
from latent_core.db.documents.documents import SourceInfo
from latent_core.db.spaces import refresh_sources, space_points
from latent_core.doctor.examine import Doctor
from latent_core.doctor.repair import Repairer
from latent_core.domain.errors import (
    Conflict,
    Forbidden,
    Invalid,
    LatentError,
    Misconfigured,
    OutOfSpace,
    Unavailable,
)
from latent_core.domain.golden import GoldenSet
from latent_core.domain.ids import point_id
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.eval import gates
from latent_core.ingest import containers as founding
from latent_core.ingest.accept import IngestPayload, accept
from latent_core.ingest.delete import delete_container, delete_documents
from latent_core.ingest.publish import SpaceSwitched
from latent_core.models.embedding.drift import AdaptedEmbedder, StoredAdapters
from latent_core.models.embedding.port import Embedder, EmbeddingModel, TextsOnly
from latent_core.queue.admin import requeue
from latent_core.queue.claim import claim
from latent_core.refresh.lifecycle import (
    NotComplete,
    begin,
    note_before_rollback,
    rollback,
    switch,
)
from latent_core.refresh.plan import rechunk_notes
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_core.wire.refresh import RefreshPayload, RefreshRequest
from latent_workers.deps import Deps
from latent_workers.ingest import generated as generated_module
from latent_workers.ingest.generated import GeneratedText
from latent_workers.jobs import corpus, ingest
from latent_workers.refresh.fill import SpaceFill
from tests.support.harness.generated import append_as, end, generate, job_of
from tests.support.harness.worker_harness import (
    CONTAINER,
    LEASE_SECONDS,
    WordTokenizer,
    open_deps,
    run_job,
)
from tests.support.hashed_embedder import HashedWords
from tests.support.queue import sql
from tests.support.stand_in_models import StandInModels

OLD_DIMS: Final = 16
WORDS: Final = [
    "harbour",
    "keeper",
    "lantern",
    "signal",
    "tide",
    "vessel",
    "anchor",
    "rope",
    "storm",
    "mast",
    "deck",
    "cargo",
    "reef",
    "chart",
    "pilot",
]

DUE: Final = "UPDATE jobs SET run_at = now(), waits_for = NULL WHERE state = 'queued'"
KEPT_LONG_ENOUGH: Final = "UPDATE spaces SET keep_until = now() WHERE keep_until IS NOT NULL"
EMBEDDED_BY: Final = (
    "SELECT doc_id, mapped, job_id FROM embedded WHERE collection_id = {} ORDER BY doc_id"
)


@dataclass
class Model(TextsOnly):
    """A deterministic embedder that counts, and may be told to stop or to do something in between."""

    model: EmbeddingModel
    vectors: Callable[[Sequence[str]], Matrix]
    tokenizer: WordTokenizer = field(default_factory=WordTokenizer)
    texts: int = 0
    max_texts: int | None = None
    """It is away when it has embedded so many."""
    meanwhile: Callable[[], Awaitable[None]] | None = None
    """Done once, before the next answer."""
    failed_requests: bool = False
    """Questions are not embedded any more."""

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        if self.max_texts is not None and self.texts >= self.max_texts:
            raise Unavailable("the embedder is away")
        if self.meanwhile is not None:
            act, self.meanwhile = self.meanwhile, None
            await act()
        self.texts += len(texts)
        return self.vectors(texts)

    def tokens_of(self, texts: Sequence[str], images: int = 0) -> int:
        return 100 * len(texts) + images

    async def embed_query(self, text: str) -> Vector:
        if self.failed_requests:
            raise Unavailable("the embedder was shut down")
        row: Vector = self.vectors([text])[0]
        return row

    async def close(self) -> None:
        """Nothing is open."""


def turned(dims: int, stretch: float = 1.0) -> Callable[[Sequence[str]], Matrix]:
    """The old model's vectors, turned into ``dims`` dimensions, some of them longer than others, with a little noise."""
    rng = np.random.default_rng(5)
    rotation = np.linalg.qr(rng.normal(size=(dims, dims)))[0][:OLD_DIMS]
    lengths = np.linspace(1 / stretch, stretch, OLD_DIMS)
    words, other = HashedWords(OLD_DIMS), HashedWords(dims)

    def vectors(texts: Sequence[str]) -> Matrix:
        rows = words.vectors(texts) * lengths @ rotation + 0.003 * other.vectors(texts)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    return vectors


class ModelLookup(StandInModels):
    """Embedders by the names of manifests: what ``Embedders`` is to a process."""

    def __init__(self, db: Database) -> None:
        self._adapters = StoredAdapters(db)
        self.known = {
            "openai/old": self._of("openai/old", OLD_DIMS, 128, HashedWords(OLD_DIMS).vectors),
            "openai/new": self._of("openai/new", 24, 128, HashedWords(24).vectors),
            "openai/short": self._of("openai/short", 20, 12, HashedWords(20).vectors),
            "openai/long": self._of("openai/long", 20, 600, HashedWords(20).vectors),
            "openai/turned": self._of("openai/turned", 24, 128, turned(24)),
            "openai/stretched": self._of("openai/stretched", 48, 128, turned(48, 1.5)),
            "openai/blind": self._of(
                "openai/blind",
                8,
                128,
                lambda t: np.ones((len(t), 8), np.float32) / np.float32(8**0.5),
            ),
        }

    def _of(
        self, name: str, dims: int, window: int, vectors: Callable[[Sequence[str]], Matrix]
    ) -> Model:
        return Model(EmbeddingModel(name, "1", dims, window), vectors)

    def model_of(self, manifest: Manifest) -> EmbeddingModel:
        return self.known[manifest.embedder].model

    def for_space(self, space: Space) -> Embedder:
        if space.is_adapted and space.adapter is not None:
            inner = self.known[space.embedder]
            return AdaptedEmbedder(inner, space.adapter, space.dims, self._adapters)
        return self.known[space.embedder]


@dataclass
class RefreshHarness:
    """The stores, and a worker that does one job when it is told."""

    deps: Deps
    models: ModelLookup

    @property
    def stack(self) -> Stack:
        return self.deps.stack

    async def add(
        self, name: str, text: str, *, kind: JobKind = JobKind.INGEST, **more: Any
    ) -> UUID:
        sha256 = await store(self.stack.db, self.stack.blobs.own, text.encode())
        payload = IngestPayload(
            uri=f"file:///{name}",
            filename=name,
            mime="text/plain",
            sha256=sha256,
            accepted_at=datetime.now(UTC),
            **more,
        )
        source = SourceInfo(CONTAINER, payload.uri, payload.mime)
        async with self.stack.db.transaction() as conn:
            accepted = await accept(conn, source, payload, kind=kind, principal="local:you")
        return accepted.doc_id

    async def stock(self, count: int, *, first: int = 0) -> dict[str, UUID]:
        """Small documents, each with words that no other has."""
        found = {}
        for n in range(first, first + count):
            found[f"zx{n:04d}"] = await self.add(f"n{n:04d}.txt", text_of(n))
        assert await self.work(JobKind.INGEST) == []
        return found

    async def stock_records(self, count: int) -> dict[str, UUID]:
        """As many documents by one job, as records of a corpus: where there must be enough of them to learn from."""
        records = [{"_id": f"zx{n:04d}", "text": text_of(n)} for n in range(count)]
        await self.add(
            "c.jsonl", "".join(f"{json.dumps(r)}\n" for r in records), kind=JobKind.CORPUS
        )
        assert await self.work(JobKind.CORPUS) == []
        rows = await sql(self.stack.db, "SELECT id, uri FROM documents WHERE uri ~ '#zx'")
        assert len(rows) == count
        return {row["uri"].rpartition("#")[2]: row["id"] for row in rows}

    async def delete(self, doc_id: UUID) -> None:
        async with self.stack.db.transaction() as conn:
            await delete_documents(
                conn, CONTAINER, [doc_id], principal="local:you", lease_seconds=LEASE_SECONDS
            )

    async def container(self) -> Container:
        async with self.stack.db.transaction() as conn:
            found = await containers.get(conn, CONTAINER)
        assert found is not None
        return found

    async def spaces(self) -> dict[str, Space]:
        async with self.stack.db.transaction() as conn:
            return {s.embedder: s for s in await containers.spaces(conn, CONTAINER)}

    async def begin(self, *, golden: GoldenSet | None = None, **words: Any) -> int:
        request = RefreshRequest.model_validate(words)
        payload = RefreshPayload(
            strategy=request.strategy,
            space_id=0,
            to=request.to,
            way=request.way,
            force=request.force,
            golden=golden,
        )
        async with self.stack.db.transaction() as conn:
            begun = await begin(
                conn,
                self.models,
                CONTAINER,
                request,
                payload,
                principal="local:you",
                request_id=None,
            )
        return begun.job_id

    async def rollback(self) -> None:
        async with self.stack.db.transaction() as conn:
            await rollback(
                conn, CONTAINER, keep_days=7, lease_seconds=LEASE_SECONDS, principal="local:you"
            )

    async def work(self, *kinds: JobKind) -> list[LatentError]:
        """Do all that is due, of these kinds or of all but dedup, garbage and page images."""
        later = {JobKind.GARBAGE, JobKind.DEDUP, JobKind.RENDER}
        troubles = []
        while True:
            job = await claim(
                self.stack.db,
                worker="w",
                lease_seconds=LEASE_SECONDS,
                kinds=kinds or tuple(set(JobKind) - later),
            )
            if job is None:
                return troubles
            if (trouble := await run_job(self.deps, job)) is not None:
                troubles.append(trouble)

    async def job(self, job_id: int) -> dict[str, Any]:
        (row,) = await sql(
            self.stack.db, f"SELECT state, cause, warnings, result FROM jobs WHERE id = {job_id}"
        )
        return row

    async def nearest(self, query: str) -> UUID:
        """The document that the container's live space finds by meaning."""
        container = await self.container()
        vector = await self.models.for_space(container.space).embed_query(query)
        hits = await self.stack.vectors.search(container.space.collection(), vector, 20)
        async with self.stack.db.transaction() as conn:
            keys = [(CONTAINER, chunk_no) for chunk_no in hits.chunk_nos.tolist()]
            places = await chunks.places(conn, keys)
        return next(places[key].doc_id for key in keys if key in places)

    async def lacking(self, space: Space) -> int:
        """Points that a collection should hold and does not, and (negative) those that nobody awaits."""
        async with self.stack.db.transaction() as conn:
            rows = await chunks.points(
                conn, CONTAINER, after=-1, limit=100_000, collection_id=space.collection_id
            )
        request = {point_id(r["id"], r["generation"], w) for r in rows for w in range(r["windows"])}
        there = await self.stack.vectors.vectors(space.collection(), list(request))
        if len(there) < len(request):
            return len(request) - len(there)
        return len(request) - await self.stack.vectors.count(space.collection())


def text_of(n: int) -> str:
    """What the ``n``-th document says, and no other."""
    words = [WORDS[(n * k) % len(WORDS)] for k in range(1, 9)]
    return f"zx{n:04d} the {' '.join(words)} number {n} yq{n:04d}\n"


def to(name: str) -> dict[str, Any]:
    return {"embedder": name}


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[RefreshHarness]:
    settings = Settings(data_dir=tmp_path, lease_seconds=LEASE_SECONDS, drift_min_recall=0.9)
    models = ModelLookup(database)
    manifest = Manifest(id=CONTAINER, name="Notes", embedder="openai/old", dims=OLD_DIMS)
    async with open_deps(database, settings, models, manifest) as deps:
        yield RefreshHarness(deps, models)


async def test_a_parallel_refresh_switches_to_a_complete_space_and_one_step_leads_back(
    harness: RefreshHarness,
) -> None:
    found = await harness.stock(12)
    job_id = await harness.begin(strategy="parallel", to=to("openai/new"))
    assert await harness.work(JobKind.REFRESH) == []
    job = await harness.job(job_id)
    assert job["state"] == "done", job
    assert "not measured" in job["warnings"][0]["message"]
    container = await harness.container()
    assert (container.space.embedder, container.space.dims) == ("openai/new", 24)
    assert (container.manifest.embedder, container.manifest.dims) == ("openai/new", 24)
    assert await harness.lacking(container.space) == 0
    assert await harness.nearest(text_of(3)) == found["zx0003"]

    later = await harness.stock(2, first=50)
    assert await harness.work() == []
    await harness.rollback()
    container = await harness.container()
    assert container.space.embedder == container.manifest.embedder == "openai/old"
    assert await harness.lacking(container.space) == 0
    assert await harness.nearest(text_of(51)) == later["zx0051"]
    await harness.rollback()
    assert (await harness.container()).space.embedder == "openai/new"


async def test_a_parallel_refresh_without_another_embedder_makes_the_vectors_anew_each_time(
    harness: RefreshHarness,
) -> None:
    found = await harness.stock(6)
    first = (await harness.container()).space
    await sql(harness.stack.db, "DELETE FROM embedding_cache")
    old = harness.models.known["openai/old"]
    old.texts = 0
    job_id = await harness.begin(strategy="parallel")
    assert await harness.work(JobKind.REFRESH) == []
    second = (await harness.container()).space
    assert (await harness.job(job_id))["result"]["space_id"] == second.id
    assert (second.embedder, second.version, second.dims) == ("openai/old", "1", OLD_DIMS)
    assert second.collection_id != first.collection_id
    assert old.texts == 6
    assert await harness.lacking(second) == 0
    assert await harness.nearest(text_of(3)) == found["zx0003"]

    await harness.begin(strategy="parallel")  # not into the one that is kept: that was made before
    assert await harness.work(JobKind.REFRESH) == []
    third = (await harness.container()).space
    assert third.collection_id not in (first.collection_id, second.collection_id)
    await harness.rollback()
    assert (await harness.container()).space.id == second.id
    with pytest.raises(Conflict, match="without 'to'"):
        await harness.begin(strategy="parallel", to=to("openai/old"))


async def test_a_build_of_the_live_model_goes_on_where_it_was_left(harness: RefreshHarness) -> None:
    await harness.stock(4)
    await sql(harness.stack.db, "DELETE FROM embedding_cache")
    await harness.begin(strategy="parallel")
    await sql(harness.stack.db, "UPDATE jobs SET state = 'cancelled' WHERE kind = 'refresh'")
    job_id = await harness.begin(strategy="parallel")
    assert await harness.work() == []
    job = await harness.job(job_id)
    assert job["state"] == "done", job
    spaces = await sql(harness.stack.db, "SELECT id, state FROM spaces ORDER BY id")
    assert [row["state"] for row in spaces] == ["retired", "live"]


async def test_a_way_back_to_the_same_model_that_lacks_something_is_refused_with_what_leads_on(
    harness: RefreshHarness,
) -> None:
    await harness.stock(2)
    await harness.begin(strategy="parallel")
    assert await harness.work(JobKind.REFRESH) == []
    await sql(
        harness.stack.db,
        "DELETE FROM embedded WHERE collection_id = (SELECT id FROM spaces WHERE state = 'retired')",
    )
    with pytest.raises(
        Conflict, match=f"`latent refresh {CONTAINER} --strategy parallel` to build"
    ):
        await harness.rollback()


async def test_a_refresh_that_dies_goes_on_without_embedding_anything_twice(
    harness: RefreshHarness,
) -> None:
    await harness.stock(20)
    new = harness.models.known["openai/new"]
    new.max_texts = 5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("latent_workers.refresh.fill.DOCUMENTS_PER_BATCH", 4)
        job_id = await harness.begin(strategy="parallel", to=to("openai/new"))
        (trouble,) = await harness.work(JobKind.REFRESH)
        assert isinstance(trouble, Unavailable)
        embedded = new.texts
        assert 0 < embedded < 20
        new.max_texts = None
        await sql(harness.stack.db, DUE)
        assert await harness.work(JobKind.REFRESH) == []
    assert (await harness.job(job_id))["state"] == "done"
    assert new.texts == 20
    assert await harness.lacking((await harness.container()).space) == 0


async def test_what_comes_and_goes_while_a_space_is_built_is_right_in_both(
    harness: RefreshHarness,
) -> None:
    found = await harness.stock(10)
    await harness.begin(strategy="parallel", to=to("openai/new"))
    spaces = await harness.spaces()
    new = harness.models.known["openai/new"]

    async def meanwhile() -> None:
        await harness.stock(3, first=100)
        await harness.delete(found["zx0002"])
        await harness.add("n0004.txt", "zx0004 has become quite another text yq9999\n")
        assert await harness.work(JobKind.INGEST) == []

    new.meanwhile = meanwhile
    assert await harness.work(JobKind.REFRESH) == []
    container = await harness.container()
    assert container.space.embedder == "openai/new"
    await sql(
        harness.stack.db, "UPDATE jobs SET run_at = now(), waits_for = NULL WHERE kind = 'purge'"
    )
    assert await harness.work(JobKind.PURGE) == []
    for space in (container.space, spaces["openai/old"]):
        assert await harness.lacking(space) == 0
    assert await harness.nearest("another text yq9999") == found["zx0004"]
    await harness.rollback()
    assert await harness.nearest("another text yq9999") == found["zx0004"]


async def test_a_refresh_embeds_generated_chunks_as_any_chunk(harness: RefreshHarness) -> None:
    found = await harness.stock(3)
    doc = found["zx0001"]
    await generate(harness, doc, [GeneratedText(text_of(77), 1)])
    assert await harness.nearest(text_of(77)) == doc
    await harness.begin(strategy="parallel", to=to("openai/new"))
    assert await harness.work() == []
    container = await harness.container()
    assert container.space.embedder == "openai/new"
    assert await harness.lacking(container.space) == 0
    assert await harness.nearest(text_of(77)) == doc


@pytest.mark.parametrize("dual_written", [True, False], ids=["dual-written", "not-dual-written"])
async def test_what_is_appended_while_a_space_is_built_is_right_in_both(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch, dual_written: bool
) -> None:
    """After the refresh has read the document's texts, and again after it has recorded the document."""
    found = await harness.stock(3)
    doc = found["zx0001"]
    await generate(harness, doc, [GeneratedText(text_of(70), 1), GeneratedText(text_of(71), 2)])
    plain, times = space_points.still_live, []

    async def append_first(*given: Any, **more: Any) -> Any:
        times.append(len(times))
        if len(times) <= 2:
            texts = [GeneratedText(text_of(80 + len(times)), 1)]
            await generate(harness, doc, texts, pages=[1])
        return await plain(*given, **more)

    async def nothing(*_: Any) -> dict[int, list[int]]:
        return {}

    monkeypatch.setattr(space_points, "still_live", append_first)
    if not dual_written:
        monkeypatch.setattr(generated_module, "stage_dual_write", nothing)
    old = (await harness.container()).space
    await harness.begin(strategy="parallel", to=to("openai/new"))
    assert await harness.work(JobKind.REFRESH) == []
    container = await harness.container()
    assert container.space.embedder == "openai/new"
    assert len(times) > 1
    for _ in range(2):
        await sql(
            harness.stack.db,
            "UPDATE jobs SET run_at = now(), finished_at = finished_at - interval '1 hour'",
        )
        assert await harness.work(JobKind.PURGE) == []
    for space in (old, container.space):
        assert await harness.lacking(space) == 0
    assert await harness.nearest(text_of(82)) == doc


async def test_an_append_that_a_switch_overtakes_is_made_again_for_the_space_that_is_live(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The space that it does not know of was begun and switched to after its vectors were stored."""
    doc = (await harness.stock(2))["zx0001"]
    plain = generated_module.stage_dual_write

    async def switched(*given: Any) -> dict[int, list[int]]:
        monkeypatch.setattr(generated_module, "stage_dual_write", plain)
        written = await plain(*given)
        await harness.begin(strategy="parallel", to=to("openai/new"))
        assert await harness.work(JobKind.REFRESH) == []
        return written

    monkeypatch.setattr(generated_module, "stage_dual_write", switched)
    ctx = await job_of(harness, doc)
    texts = [GeneratedText(text_of(70), 1)]
    with pytest.raises(SpaceSwitched):
        await append_as(ctx, harness, doc, texts)
    assert await append_as(ctx, harness, doc, texts)
    await end(ctx)
    for _ in range(2):
        await sql(harness.stack.db, DUE)
        await sql(harness.stack.db, "UPDATE jobs SET finished_at = finished_at - interval '1 hour'")
        assert await harness.work(JobKind.PURGE) == []
    for space in (await harness.spaces()).values():
        assert await harness.lacking(space) == 0
    assert await harness.nearest(text_of(70)) == doc


async def test_points_of_a_chunk_that_is_replaced_before_the_refresh_writes_them_are_purged(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    doc = (await harness.stock(2))["zx0001"]
    await generate(harness, doc, [GeneratedText(text_of(70), 1)])
    plain = refresh_sources.texts

    async def replaced_after(*given: Any, **more: Any) -> Any:
        read = await plain(*given, **more)
        monkeypatch.setattr(refresh_sources, "texts", plain)
        await generate(harness, doc, [GeneratedText(text_of(71), 1)])
        for _ in range(2):
            await sql(harness.stack.db, DUE)
            assert await harness.work(JobKind.PURGE) == []
        return read

    monkeypatch.setattr(refresh_sources, "texts", replaced_after)
    await harness.begin(strategy="parallel", to=to("openai/new"))
    assert await harness.work(JobKind.REFRESH) == []
    assert await harness.work(JobKind.PURGE) == []
    assert await harness.lacking((await harness.container()).space) == 0


async def test_a_way_back_that_lacks_a_generated_chunk_is_refused_until_it_is_made_up_for(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: Any) -> dict[int, list[int]]:
        return {}

    doc = (await harness.stock(2))["zx0001"]
    await harness.begin(strategy="parallel", to=to("openai/new"))
    assert await harness.work() == []
    with monkeypatch.context() as patch:
        patch.setattr(generated_module, "stage_dual_write", nothing)
        await generate(harness, doc, [GeneratedText(text_of(70), 1)])
    with pytest.raises(Conflict, match="latent refresh"):
        await harness.rollback()
    await generate(harness, doc, [GeneratedText(text_of(71), 1)])
    with pytest.raises(Conflict, match="latent refresh"):
        await harness.rollback()


async def test_an_ingest_that_a_switch_overtakes_is_made_again_for_the_space_that_is_live(
    harness: RefreshHarness,
) -> None:
    await harness.stock(4)

    async def meanwhile() -> None:
        await harness.begin(strategy="parallel", to=to("openai/new"))
        assert await harness.work(JobKind.REFRESH) == []
        harness.models.known["openai/new"].max_texts = 0

    harness.models.known["openai/old"].meanwhile = meanwhile
    doc_id = await harness.add("late.txt", "zx7777 a late vessel yq7777\n")
    (trouble,) = await harness.work(JobKind.INGEST)
    assert isinstance(trouble, SpaceSwitched)
    assert trouble.transient
    harness.models.known["openai/new"].max_texts = None
    await sql(harness.stack.db, DUE)
    assert await harness.work(JobKind.INGEST) == []
    container = await harness.container()
    assert container.space.embedder == "openai/new"
    assert await harness.nearest("zx7777 a late vessel") == doc_id
    await sql(harness.stack.db, DUE)
    await harness.work()
    await harness.rollback()
    assert await harness.nearest("zx7777 a late vessel") == doc_id


async def test_nothing_is_switched_to_that_lacks_a_visible_document(
    harness: RefreshHarness,
) -> None:
    await harness.stock(3)
    await harness.begin(strategy="parallel", to=to("openai/new"))
    space = (await harness.spaces())["openai/new"]
    with pytest.raises(NotComplete, match="has no vectors"):
        async with harness.stack.db.transaction() as conn:
            await switch(
                conn, CONTAINER, space.id, keep_days=1, lease_seconds=1, principal="local:you"
            )
    assert (await harness.container()).space.embedder == "openai/old"


async def test_points_that_vanish_from_a_space_are_noticed_before_the_switch(
    harness: RefreshHarness,
) -> None:
    found = await harness.stock(6)
    await harness.begin(strategy="parallel", to=to("openai/new"))
    space = (await harness.spaces())["openai/new"]
    await harness.stack.vectors.create_collection(space.collection(), space.dims)
    late = await harness.stock(3, first=200)
    await harness.stack.vectors.delete(space.collection(), late["zx0201"])
    assert await harness.work(JobKind.REFRESH) == []
    container = await harness.container()
    assert container.space.id == space.id
    assert await harness.lacking(container.space) == 0
    assert len(found) + len(late) == await harness.stack.vectors.count(space.collection())


async def test_an_embedder_that_reads_less_has_more_points_a_chunk_and_loses_none(
    harness: RefreshHarness,
) -> None:
    doc_id = await harness.add("long.txt", " ".join(f"word{n}" for n in range(60)) + "\n")
    assert await harness.work(JobKind.INGEST) == []
    await harness.begin(strategy="parallel", to=to("openai/short"))
    assert await harness.work(JobKind.REFRESH) == []
    container = await harness.container()
    count = await harness.stack.vectors.count(container.space.collection(), doc_id=doc_id)
    assert count == 5
    assert await harness.lacking(container.space) == 0
    await harness.rollback()
    await harness.begin(strategy="inplace")
    assert await harness.work(JobKind.REFRESH) == []
    assert await harness.lacking((await harness.container()).space) == 0


async def test_chunks_follow_an_embedder_that_reads_more_and_the_way_back_stays_open(
    harness: RefreshHarness,
) -> None:
    doc_id = await harness.add("long.txt", " ".join(f"word{n}" for n in range(300)) + "\n")
    assert await harness.work(JobKind.INGEST) == []
    of_document = f"SELECT live_chunks AS n FROM documents WHERE id = '{doc_id}'"
    (before,) = await sql(harness.stack.db, of_document)
    assert before["n"] > 2
    live = harness.models.known["openai/old"]
    longer = harness.models.known["openai/long"].model
    (note,) = rechunk_notes((await harness.container()).manifest, live.model.window, longer)
    assert "600 tokens, the present one 128" in note
    job_id = await harness.begin(strategy="parallel", to=to("openai/long"))
    assert await harness.work(JobKind.REFRESH) == []
    assert (await harness.job(job_id))["result"]["rechunks"] is True
    assert await harness.work(JobKind.INGEST, JobKind.PURGE) == []
    (after,) = await sql(harness.stack.db, of_document)
    assert after["n"] == 1
    assert await harness.lacking((await harness.container()).space) == 0
    await harness.rollback()
    assert (await harness.container()).space.embedder == "openai/old"
    assert await harness.nearest("word299") == doc_id
    job_id = await harness.begin(strategy="parallel", to=to("openai/new"))
    assert await harness.work(JobKind.REFRESH) == []
    assert "rechunks" not in (await harness.job(job_id))["result"], "its window is the same"


async def test_a_space_goes_when_it_was_kept_long_enough_and_never_one_that_is_in_use(
    harness: RefreshHarness,
) -> None:
    await harness.stock(5)
    old = (await harness.container()).space
    await harness.begin(strategy="parallel", to=to("openai/new"))
    assert await harness.work(JobKind.REFRESH) == []
    await sql(harness.stack.db, DUE)
    assert await harness.work() == []
    assert old.collection() in await harness.stack.vectors.collections()

    await harness.rollback()
    new = (await harness.spaces())["openai/new"]
    await sql(harness.stack.db, KEPT_LONG_ENOUGH)
    await sql(harness.stack.db, DUE)
    assert await harness.work() == []
    assert await harness.stack.vectors.collections() == [old.collection()]
    assert list(await harness.spaces()) == ["openai/old"]
    assert await sql(harness.stack.db, EMBEDDED_BY.format(new.id)) == []
    assert await harness.lacking(old) == 0
    with pytest.raises(Conflict, match="no earlier space"):
        await harness.rollback()


async def test_a_build_that_is_given_up_leaves_nothing(harness: RefreshHarness) -> None:
    await harness.stock(3)
    await harness.begin(strategy="parallel", to=to("openai/new"))
    with pytest.raises(Conflict, match="already"):
        await harness.begin(strategy="inplace")
    await sql(harness.stack.db, "UPDATE jobs SET state = 'cancelled' WHERE kind = 'refresh'")
    await harness.stock(2, first=10)
    await harness.rollback()
    assert await harness.work() == []
    assert list(await harness.spaces()) == ["openai/old"]
    assert len(await harness.stack.vectors.collections()) == 1
    assert await harness.lacking((await harness.container()).space) == 0


async def test_documents_are_ingested_while_the_embedder_of_a_building_space_is_unreachable(
    harness: RefreshHarness,
) -> None:
    await harness.stock(3)
    await harness.begin(strategy="parallel", to=to("openai/new"))
    harness.models.known["openai/new"].max_texts = 0
    found = await harness.stock(2, first=30)
    assert await harness.nearest(text_of(31)) == found["zx0031"]
    harness.models.known["openai/new"].max_texts = None
    await sql(harness.stack.db, DUE)
    assert await harness.work(JobKind.REFRESH) == []
    assert await harness.lacking((await harness.container()).space) == 0


async def test_a_way_back_that_lacks_something_is_refused_with_what_makes_up_for_it(
    harness: RefreshHarness,
) -> None:
    await harness.stock(3)
    await harness.begin(strategy="parallel", to=to("openai/new"))
    assert await harness.work(JobKind.REFRESH) == []
    harness.models.known["openai/old"].max_texts = 0
    await harness.stock(1, first=40)
    with pytest.raises(Conflict, match="--strategy parallel --to openai/old"):
        await harness.rollback()
    harness.models.known["openai/old"].max_texts = None
    await harness.begin(strategy="parallel", to=to("openai/old"))
    assert await harness.work(JobKind.REFRESH) == []
    container = await harness.container()
    assert container.space.embedder == "openai/old"
    assert await harness.lacking(container.space) == 0
    assert len(await harness.spaces()) == 2


async def test_an_inplace_refresh_fills_the_deleted_collection_and_resumes(
    harness: RefreshHarness,
) -> None:
    await harness.stock(9)
    container = await harness.container()
    old = harness.models.known["openai/old"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("latent_workers.refresh.fill.DOCUMENTS_PER_BATCH", 2)
        await sql(harness.stack.db, "DELETE FROM embedding_cache")
        old.texts, old.max_texts = 0, 4
        await harness.begin(strategy="inplace", force=True)
        (trouble,) = await harness.work(JobKind.REFRESH)
        assert isinstance(trouble, Unavailable)
        assert await harness.lacking(container.space) == 5
        old.max_texts = None
        await sql(harness.stack.db, DUE)
        assert await harness.work(JobKind.REFRESH) == []
    assert old.texts == 10  # and the one before anything was emptied
    assert (await harness.container()).space == container.space
    assert await harness.lacking(container.space) == 0


async def test_a_job_that_meets_a_missing_collection_is_requeued(
    harness: RefreshHarness,
) -> None:
    await harness.stock(3)
    space = (await harness.container()).space
    await harness.stack.vectors.drop_collection(space.collection())
    await sql(harness.stack.db, DUE)
    (trouble,) = await harness.work(JobKind.DEDUP)
    assert isinstance(trouble, Unavailable)
    assert trouble.transient
    await harness.add("late.txt", text_of(70))
    (trouble,) = await harness.work(JobKind.INGEST)
    assert not trouble.counts_as_attempt
    await harness.begin(strategy="inplace", force=True)
    assert await harness.work(JobKind.REFRESH) == []
    await sql(harness.stack.db, DUE)
    assert await harness.work(JobKind.DEDUP, JobKind.INGEST) == []
    assert await harness.lacking(space) == 0


async def test_a_collection_is_kept_when_there_is_no_capacity_for_another(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_conn: Connection) -> None:
        raise OutOfSpace("no room")

    await harness.stock(3)
    space = (await harness.container()).space
    await harness.begin(strategy="inplace", force=True)
    monkeypatch.setattr(harness.stack.capacity, "check", full)
    (trouble,) = await harness.work(JobKind.REFRESH)
    assert isinstance(trouble, OutOfSpace)
    assert await harness.lacking(space) == 0


def not_installed(space: Space) -> Embedder:
    raise Misconfigured(f"{space.embedder} {space.version} is not to be had here")


async def test_a_collection_is_kept_when_the_new_embedder_is_unavailable(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.stock(3)
    before = await harness.container()
    monkeypatch.setattr(harness.models, "for_space", not_installed)
    await harness.begin(strategy="inplace", force=True)
    (trouble,) = await harness.work(JobKind.REFRESH)
    assert isinstance(trouble, Misconfigured)
    assert await harness.lacking(before.space) == 0
    assert await harness.container() == before


async def test_a_collection_is_deleted_only_after_its_embedder_answers(
    harness: RefreshHarness,
) -> None:
    await harness.stock(3)
    space = (await harness.container()).space
    harness.models.known["openai/old"].max_texts = 0
    await harness.begin(
        strategy="inplace", to={"embedder": "openai/old", "version": "2"}, force=True
    )
    (trouble,) = await harness.work(JobKind.REFRESH)
    assert isinstance(trouble, Unavailable)
    assert await harness.lacking(space) == 0
    harness.models.known["openai/old"].max_texts = None
    await sql(harness.stack.db, DUE)
    assert await harness.work(JobKind.REFRESH) == []
    assert (await harness.container()).space.version == "2"
    assert await harness.lacking(space) == 0


async def test_a_collection_is_kept_when_the_embedder_gives_other_dimensions(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.stock(3)
    space = (await harness.container()).space
    monkeypatch.setattr(harness.models.known["openai/old"], "vectors", HashedWords(8).vectors)
    await harness.begin(strategy="inplace", force=True)
    (trouble,) = await harness.work(JobKind.REFRESH)
    assert "8 dimensions" in trouble.message
    assert await harness.lacking(space) == 0


async def test_an_inplace_refresh_to_what_is_not_installed_is_refused_and_gives_nothing_up(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await drifted(harness)
    await harness.rollback()  # there is a way back to the adapter as long as nothing is rewritten
    spaces = await harness.spaces()

    def refuse(manifest: Manifest) -> EmbeddingModel:
        raise Invalid(f"version {manifest.embedder_version} is not installed")

    with monkeypatch.context() as patch:
        patch.setattr(harness.models, "model_of", refuse)
        with pytest.raises(Invalid, match="version 7"):
            await harness.begin(
                strategy="inplace", to={"embedder": "openai/old", "version": "7"}, force=True
            )
    assert await harness.spaces() == spaces
    await harness.rollback()
    assert (await harness.container()).space.is_adapted


def golden(found: dict[str, UUID]) -> GoldenSet:
    queries = [
        {"id": word, "query": f"number {int(word[2:])} yq{word[2:]}", "expect_docs": [str(doc_id)]}
        for word, doc_id in found.items()
    ]
    return GoldenSet.model_validate({"queries": queries, "thresholds": {"ndcg@10": 0.5}})


async def test_a_space_that_answers_worse_is_not_switched_to_unless_by_force(
    harness: RefreshHarness,
) -> None:
    # Twenty neighbours of one text, told apart by meaning alone: stop words are no keywords.
    found = await harness.stock(30)
    queries = [
        {
            "id": f"q{n}",
            "query": WORDS[n],
            "expect_docs": [str(d) for d in list(found.values())[n::15]],
        }
        for n in range(10)
    ]
    golden_set = GoldenSet.model_validate({"queries": queries, "thresholds": {"ndcg@10": 0.99}})
    job_id = await harness.begin(strategy="parallel", to=to("openai/blind"), golden=golden_set)
    (trouble,) = await harness.work(JobKind.REFRESH)
    assert "not switched" in trouble.message
    job = await harness.job(job_id)
    assert job["state"] == "failed"
    report = job["cause"]["details"]["gates"]
    assert report["failures"]
    assert report["new"]["ndcg_at_10"] <= report["old"]["ndcg_at_10"]
    assert (await harness.container()).space.embedder == "openai/old"

    embedded = harness.models.known["openai/blind"].texts
    forced = await harness.begin(
        strategy="parallel", to=to("openai/blind"), golden=golden_set, force=True
    )
    assert await harness.work(JobKind.REFRESH) == []
    assert harness.models.known["openai/blind"].texts == embedded
    assert (await harness.container()).space.embedder == "openai/blind"
    assert "by force" in (await harness.job(forced))["warnings"][0]["message"]


async def test_a_container_that_is_to_be_evaluated_is_not_switched_unmeasured_unless_by_force(
    harness: RefreshHarness,
) -> None:
    found = await harness.stock(3)
    enabled = "UPDATE containers SET manifest = jsonb_set(manifest, '{eval,enabled}', 'true'), etag = 'judged'"
    await sql(harness.stack.db, enabled)
    for strategy in ("parallel", "drift"):
        with pytest.raises(Forbidden, match="no golden queries to measure"):
            await harness.begin(strategy=strategy, to=to("openai/new"))
    assert set(await harness.spaces()) == {"openai/old"}
    await harness.begin(strategy="inplace")
    assert await harness.work(JobKind.REFRESH) == []
    await harness.begin(strategy="parallel", to=to("openai/new"), golden=golden(found), force=True)
    assert await harness.work(JobKind.REFRESH) == []
    await harness.begin(strategy="parallel", to=to("openai/turned"), force=True)
    assert await harness.work(JobKind.REFRESH) == []
    assert (await harness.container()).space.embedder == "openai/turned"


async def test_a_space_that_answers_as_well_passes_its_gates(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "NOTICEABLE_MS", 1e6)  # what the machine does dual_written it
    found = await harness.stock(12)
    job_id = await harness.begin(strategy="parallel", to=to("openai/new"), golden=golden(found))
    assert await harness.work(JobKind.REFRESH) == []
    job = await harness.job(job_id)
    assert job["result"]["gates"]["failures"] == []
    assert job["result"]["gates"]["new"]["ndcg_at_10"] > 0.9
    assert job["warnings"] == [], "a success is not a warning"
    assert "switched: 12 golden queries" in job["result"]["outcome"]


SENT: Final = "SELECT texts, tokens FROM embed_usage WHERE job_id = {} AND embedder = '{}'"


async def test_a_refresh_tells_what_its_embedder_was_sent(harness: RefreshHarness) -> None:
    await harness.stock(7)
    job_id = await harness.begin(strategy="parallel", to=to("openai/new"))
    assert await harness.work(JobKind.REFRESH) == []
    (sent,) = await sql(harness.stack.db, SENT.format(job_id, "openai/new"))
    assert (sent["texts"], sent["tokens"]) == (7, 700)


async def test_a_drift_adapter_for_queries_is_taken_and_can_be_taken_back(
    harness: RefreshHarness,
) -> None:
    found = await harness.stock_records(120)
    old = (await harness.container()).space
    # A model of which the new one is a turned copy could simply be kept: its service has ended.
    harness.models.known["openai/old"].failed_requests = True
    job_id = await harness.begin(strategy="drift", to=to("openai/turned"))
    assert await harness.work(JobKind.REFRESH) == []
    job = await harness.job(job_id)
    measured = job["result"]["drift"]
    (sent,) = await sql(harness.stack.db, SENT.format(job_id, "openai/turned"))
    assert sent["texts"] >= 72  # of the sample, three for each dimension
    assert measured["recall"] >= 0.95
    assert measured["status_quo"] is None
    container = await harness.container()
    assert (container.space.embedder, container.space.dims) == ("openai/turned", OLD_DIMS)
    assert container.space.collection() == old.collection()
    assert await harness.nearest(text_of(17)) == found["zx0017"]

    later = await harness.stock(1, first=500)
    assert await harness.nearest(text_of(500)) == later["zx0500"]
    (row,) = await sql(
        harness.stack.db,
        "SELECT c.provenance FROM chunks c JOIN documents d ON d.id = c.doc_id WHERE d.uri = 'file:///n0500.txt'",
    )
    assert row["provenance"]["embedder"] == "openai/turned"
    assert row["provenance"]["embedder_version"].startswith("1+drift")
    assert await harness.lacking(container.space) == 0

    await harness.rollback()
    harness.models.known["openai/old"].failed_requests = False
    assert (await harness.container()).space.id == old.id
    assert await harness.nearest(text_of(500)) == later["zx0500"]
    await sql(harness.stack.db, KEPT_LONG_ENOUGH)
    await sql(harness.stack.db, DUE)
    assert await harness.work() == []
    assert list(await harness.spaces()) == ["openai/old"]
    assert old.collection() in await harness.stack.vectors.collections()
    assert await harness.lacking(old) == 0


async def test_an_adapter_that_is_not_good_enough_is_refused_with_what_was_measured(
    harness: RefreshHarness,
) -> None:
    await harness.stock_records(80)
    for way in ("query", "forward"):
        job_id = await harness.begin(strategy="drift", to=to("openai/new"), way=way)
        (trouble,) = await harness.work(JobKind.REFRESH)
        assert "--strategy parallel" in trouble.message
        measured = (await harness.job(job_id))["cause"]["details"]["measured"]
        assert measured["recall"] < 0.95
        assert measured["status_quo"] is not None
    assert list(await harness.spaces()) == ["openai/old"]


async def test_vectors_mapped_forward_are_searched_at_once_and_replaced_by_and_by(
    harness: RefreshHarness,
) -> None:
    found = await harness.stock_records(150)
    job_id = await harness.begin(strategy="drift", to=to("openai/stretched"), way="forward")
    job = await claim(
        harness.stack.db, worker="w", lease_seconds=LEASE_SECONDS, kinds=[JobKind.REFRESH]
    )
    assert job is not None
    assert await run_job(harness.deps, job) is None
    assert (await harness.job(job_id))["state"] == "done"
    container = await harness.container()
    assert (container.space.embedder, container.space.dims) == ("openai/stretched", 48)
    rows = await sql(harness.stack.db, EMBEDDED_BY.format(container.space.id))
    assert len(rows) == 150
    assert all(row["mapped"] for row in rows)
    assert await harness.nearest(text_of(17)) == found["zx0017"]

    assert await harness.work(JobKind.REFRESH) == []
    rows = await sql(harness.stack.db, EMBEDDED_BY.format(container.space.id))
    assert not any(row["mapped"] for row in rows)
    assert await harness.lacking(container.space) == 0
    own = harness.models.known["openai/stretched"]
    (stored,) = await sql(
        harness.stack.db,
        "SELECT id, generation, coalesce(c.embed_text, c.embed_head || c.text) AS embed_text FROM chunks c ORDER BY chunk_no LIMIT 1",
    )
    point = point_id(stored["id"], stored["generation"], 0)
    there = await harness.stack.vectors.vectors(container.space.collection(), [point])
    np.testing.assert_allclose(there[point], own.vectors([stored["embed_text"]])[0], atol=1e-5)
    await harness.rollback()
    assert (await harness.container()).space.embedder == "openai/old"


async def test_a_reparse_ingests_every_document_again_and_keeps_the_sent_meta(
    harness: RefreshHarness,
) -> None:
    text = "\n\n".join(f"Paragraph {n} " + "of the lamp keeper's log " * 6 for n in range(8))
    doc_id = await harness.add("a.md", text, meta={"shelf": 3})
    await harness.stock(2)
    (before,) = await sql(
        harness.stack.db,
        f"SELECT live_generation, live_chunks FROM documents WHERE id = '{doc_id}'",
    )
    container = await harness.container()
    smaller = container.manifest.model_copy(
        update={"chunker": container.manifest.chunker.model_copy(update={"size": 32})}
    )
    async with harness.stack.db.transaction() as conn:
        assert await containers.update_manifest(
            conn, smaller, founding.etag(smaller), container.etag
        )
    job_id = await harness.begin(strategy="reparse")
    assert await harness.work() == []
    assert (await harness.job(job_id))["result"] == {"documents_queued": 3}
    (after,) = await sql(
        harness.stack.db,
        f"SELECT live_generation, live_chunks, meta FROM documents WHERE id = '{doc_id}'",
    )
    assert after["live_generation"] > before["live_generation"]
    assert after["live_chunks"] > before["live_chunks"]
    assert after["meta"]["shelf"] == 3


async def test_thresholds_of_the_manifest_hold_where_the_golden_set_names_none(
    harness: RefreshHarness,
) -> None:
    found = await harness.stock(6)
    await sql(
        harness.stack.db,
        "UPDATE containers SET manifest = jsonb_set(manifest, '{eval,thresholds}', '{\"p95_latency_ms\": 0.0001}'),"
        " etag = 'slow'",
    )
    await harness.begin(strategy="parallel", to=to("openai/new"), golden=golden(found))
    (trouble,) = await harness.work(JobKind.REFRESH)
    assert "not switched" in trouble.message


async def test_an_unreachable_store_during_a_comparison_keeps_the_old_space(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "NOTICEABLE_MS", 1e6)
    found = await harness.stock(6)
    job_id = await harness.begin(strategy="parallel", to=to("openai/new"), golden=golden(found))

    async def unreachable(*args: Any) -> Any:
        raise Unavailable("the registry is away")

    with monkeypatch.context() as patch:
        patch.setattr(chunks, "hydrate", once(unreachable, chunks.hydrate))
        (trouble,) = await harness.work(JobKind.REFRESH)
    assert isinstance(trouble, Unavailable)
    await sql(harness.stack.db, DUE)
    assert await harness.work(JobKind.REFRESH) == []
    assert (await harness.job(job_id))["result"]["gates"]["old"] is not None


def once(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    calls = iter([first])

    async def call(*args: Any) -> Any:
        return await next(calls, then)(*args)

    return call


async def test_an_inplace_refresh_to_another_version_embeds_what_comes_in_before_it_ends(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.stock(4)
    late: dict[str, UUID] = {}
    verify = SpaceFill.verify

    async def verified(self: SpaceFill) -> None:
        await verify(self)
        if not late:
            late.update(await harness.stock(1, first=70))

    monkeypatch.setattr(SpaceFill, "verify", verified)
    job_id = await harness.begin(strategy="inplace", to={"embedder": "openai/old", "version": "2"})
    assert await harness.work(JobKind.REFRESH) == []
    space = (await harness.container()).space
    assert space.version == "2"
    written = await sql(harness.stack.db, EMBEDDED_BY.format(space.id))
    assert {row["doc_id"] for row in written if row["job_id"] == job_id} >= set(late.values())


def version_two_overtakes(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str
) -> None:
    """A whole refresh in place runs when the attempt has done ``step``."""
    real = getattr(module, step)

    async def overtaken(*args: Any, **words: Any) -> Any:
        made = await real(*args, **words)
        monkeypatch.undo()
        await harness.begin(strategy="inplace", to={"embedder": "openai/old", "version": "2"})
        assert await harness.work(JobKind.REFRESH) == []
        return made

    monkeypatch.setattr(module, step, overtaken)


async def test_an_ingest_that_another_version_overtakes_in_place_is_made_again(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.stock(3)
    version_two_overtakes(harness, monkeypatch, ingest, "embed")
    doc_id = await harness.add("late.txt", "zx7777 a late vessel yq7777\n")
    (trouble,) = await harness.work(JobKind.INGEST)
    assert isinstance(trouble, SpaceSwitched)
    await sql(harness.stack.db, DUE)
    assert await harness.work(JobKind.INGEST) == []
    (row,) = await sql(
        harness.stack.db, f"SELECT DISTINCT provenance FROM chunks WHERE doc_id = '{doc_id}'"
    )
    assert row["provenance"]["embedder_version"] == "2"


async def test_records_that_another_version_overtakes_in_place_are_made_again(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.stock(1)
    version_two_overtakes(harness, monkeypatch, corpus, "stage")
    await harness.add("c.jsonl", '{"_id": "r1", "text": "a late vessel"}\n', kind=JobKind.CORPUS)
    (trouble,) = await harness.work(JobKind.CORPUS)
    assert isinstance(trouble, SpaceSwitched)
    await sql(harness.stack.db, DUE)
    assert await harness.work(JobKind.CORPUS) == []
    (row,) = await sql(
        harness.stack.db, "SELECT DISTINCT provenance FROM chunks WHERE text ~ 'late vessel'"
    )
    assert row["provenance"]["embedder_version"] == "2"


async def drifted(harness: RefreshHarness) -> Space:
    """The space from before, which the one that is live now reads by way of an adapter."""
    await harness.stock_records(120)
    await harness.stock(1, first=400)
    old = (await harness.container()).space
    harness.models.known["openai/old"].failed_requests = True
    await harness.begin(strategy="drift", to=to("openai/turned"))
    assert await harness.work(JobKind.REFRESH) == []
    harness.models.known["openai/old"].failed_requests = False
    assert (await harness.container()).space.is_adapted
    return old


async def test_a_parallel_refresh_back_to_the_base_of_an_adapter_embeds_everything_anew(
    harness: RefreshHarness,
) -> None:
    old = await drifted(harness)
    later = await harness.stock(1, first=500)  # its vector went through the adapter
    await harness.begin(strategy="parallel", to=to("openai/old"))
    assert await harness.work(JobKind.REFRESH) == []
    space = (await harness.container()).space
    assert (space.embedder, space.is_adapted) == ("openai/old", False)
    assert space.collection_id != old.collection_id
    assert await harness.lacking(space) == 0
    (row,) = await sql(
        harness.stack.db,
        f"SELECT id, generation, coalesce(c.embed_text, c.embed_head || c.text) AS embed_text FROM chunks c WHERE doc_id = '{later['zx0500']}'",
    )
    point = point_id(row["id"], row["generation"], 0)
    there = await harness.stack.vectors.vectors(space.collection(), [point])
    own = harness.models.known["openai/old"].vectors([row["embed_text"]])[0]
    np.testing.assert_allclose(there[point], own, atol=1e-5)


async def test_there_is_no_way_back_to_an_adapter_whose_collection_was_rewritten(
    harness: RefreshHarness,
) -> None:
    old = await drifted(harness)
    await harness.rollback()
    assert (await harness.container()).space.id == old.id
    await harness.begin(strategy="inplace", to={"embedder": "openai/old", "version": "2"})
    assert await harness.work(JobKind.REFRESH) == []
    with pytest.raises(Conflict, match="no earlier space"):
        await harness.rollback()
    assert await harness.work() == []
    assert list(await harness.spaces()) == ["openai/old"]
    assert await harness.lacking((await harness.container()).space) == 0


@pytest.mark.parametrize("strategy", ["parallel", "inplace"])
async def test_a_container_that_is_not_active_is_neither_refreshed_nor_switched(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    async def state(value: str) -> None:
        await sql(harness.stack.db, f"UPDATE containers SET state = '{value}'")

    request: dict[str, Any] = {
        "parallel": {"to": to("openai/new")},
        "inplace": {"to": {"embedder": "openai/old", "version": "2"}},
    }[strategy]
    await harness.stock(2)
    before = (await harness.container()).space
    await state("readonly")
    with pytest.raises(Conflict, match="readonly"):
        await harness.begin(strategy=strategy, **request)
    await state("active")
    job_id = await harness.begin(strategy=strategy, **request)
    verify = SpaceFill.verify

    async def closed(self: SpaceFill) -> None:
        await verify(self)
        await state("archived")

    monkeypatch.setattr(SpaceFill, "verify", closed)
    (trouble,) = await harness.work(JobKind.REFRESH)
    assert "archived" in trouble.message
    assert (await harness.job(job_id))["state"] == "failed"
    assert (await harness.container()).space == before
    monkeypatch.undo()
    await state("active")
    async with harness.stack.db.transaction() as conn:
        await requeue(conn, job_id)
    assert await harness.work(JobKind.REFRESH) == []
    assert (await harness.container()).space != before


async def test_a_container_that_is_not_active_is_not_rolled_back(harness: RefreshHarness) -> None:
    await harness.stock(2)
    await harness.begin(strategy="parallel", to=to("openai/new"))
    assert await harness.work(JobKind.REFRESH) == []
    for state in ("readonly", "archived"):
        await sql(harness.stack.db, f"UPDATE containers SET state = '{state}'")
        with pytest.raises(Conflict, match=f"{state}; only active containers can be"):
            await harness.rollback()
    assert (await harness.container()).space.embedder == "openai/new"


async def test_a_rollback_finds_the_content_of_the_live_space_current(
    harness: RefreshHarness,
) -> None:
    await harness.stock(5)
    await harness.begin(strategy="parallel", to=to("openai/new"))
    assert await harness.work(JobKind.REFRESH) == []
    live = (await harness.container()).space
    await sql(harness.stack.db, "DELETE FROM embedded WHERE collection_id = " + str(live.id))
    async with harness.stack.db.transaction() as conn:
        await note_before_rollback(conn, CONTAINER)
    assert len(await sql(harness.stack.db, EMBEDDED_BY.format(live.id))) == 5
    await harness.rollback()
    assert (await harness.container()).space.embedder == "openai/old"


async def repaired(harness: RefreshHarness) -> None:
    """Doctor's repairs of the container, and the jobs that follow from them."""
    stack = harness.stack
    report = await Doctor(stack.db, stack.vectors, stack.blobs, grace_seconds=600.0).examine(
        [CONTAINER]
    )
    repairer = Repairer(
        stack.db, stack.vectors, stack.blobs, principal="local:you", lease_seconds=LEASE_SECONDS
    )
    repairs = await repairer.repair(report)
    assert repairs
    assert all(one.done for one in repairs), repairs
    assert await harness.work(JobKind.INGEST, JobKind.PURGE) == []


async def lose_vectors(harness: RefreshHarness, doc_id: UUID) -> Any:
    """Removes the vectors of a document of one chunk, repairs, and answers the chunk and its vector."""
    space = (await harness.container()).space
    assert await harness.stack.vectors.delete(space.collection(), doc_id) == 1
    await repaired(harness)
    (chunk,) = await sql(
        harness.stack.db,
        "SELECT c.*, coalesce(c.embed_text, c.embed_head || c.text) AS embedded FROM chunks c JOIN documents d ON d.id = c.doc_id "
        f"AND d.live_generation = c.generation WHERE d.id = '{doc_id}'",
    )
    point = point_id(chunk["id"], chunk["generation"], 0)
    return chunk, (await harness.stack.vectors.vectors(space.collection(), [point]))[point]


async def test_a_repair_in_a_space_that_is_read_by_an_adapter_says_which_model_made_the_vectors(
    harness: RefreshHarness,
) -> None:
    await drifted(harness)
    space = (await harness.container()).space
    (doc,) = await sql(harness.stack.db, "SELECT id FROM documents WHERE uri ~ 'n0400'")
    chunk, vector = await lose_vectors(harness, doc["id"])
    assert chunk["provenance"]["embedder"] == "openai/turned"
    assert chunk["provenance"]["embedder_version"] == space.lineage
    assert "+drift" in space.lineage
    adapted = harness.models.for_space(space)
    expected = (await adapted.embed_documents([chunk["embedded"]]))[0]
    np.testing.assert_allclose(vector, expected, atol=1e-5)


async def test_a_repair_in_a_space_of_mapped_vectors_stores_the_models_own(
    harness: RefreshHarness,
) -> None:
    await harness.stock_records(150)
    found = await harness.stock(1, first=400)
    await harness.begin(strategy="drift", to=to("openai/stretched"), way="forward")
    job = await claim(
        harness.stack.db, worker="w", lease_seconds=LEASE_SECONDS, kinds=[JobKind.REFRESH]
    )
    assert job is not None
    assert await run_job(harness.deps, job) is None
    space = (await harness.container()).space
    chunk, vector = await lose_vectors(harness, found["zx0400"])
    own = harness.models.known["openai/stretched"].vectors([chunk["embedded"]])[0]
    np.testing.assert_allclose(vector, own, atol=1e-5)
    assert chunk["provenance"]["embedder_version"] == space.lineage
    mapped = await sql(
        harness.stack.db,
        "SELECT e.mapped FROM embedded e JOIN documents d ON d.id = e.doc_id AND d.live_generation = e.generation "
        f"WHERE d.id = '{found['zx0400']}' AND e.collection_id = {space.collection_id} AND e.mapped",
    )
    assert mapped == []
    assert await harness.work(JobKind.REFRESH) == []
    assert await harness.lacking(space) == 0


async def test_vectors_of_a_document_without_its_original_come_from_its_stored_text_by_a_refresh(
    harness: RefreshHarness,
) -> None:
    found = await harness.stock(2)
    await sql(harness.stack.db, "DELETE FROM blob_refs WHERE role = 'original'")
    stack, space = harness.stack, (await harness.container()).space
    await stack.vectors.delete(space.collection(), found["zx0000"])
    doctor = Doctor(stack.db, stack.vectors, stack.blobs, grace_seconds=600.0)
    report = await doctor.examine([CONTAINER])
    (repair,) = await Repairer(
        stack.db, stack.vectors, stack.blobs, principal="local:you", lease_seconds=LEASE_SECONDS
    ).repair(report)
    assert not repair.done
    assert "Add file:///n0000.txt again" in repair.message
    assert f"latent refresh {CONTAINER} --strategy inplace" in repair.message
    await harness.begin(strategy="inplace")
    assert await harness.work() == []
    assert (await doctor.examine([CONTAINER])).clean


async def test_doctor_counts_and_mends_the_points_of_an_embedder_that_reads_less(
    harness: RefreshHarness,
) -> None:
    stack = harness.stack
    doc_id = await harness.add("long.txt", " ".join(f"word{n}" for n in range(60)) + "\n")
    assert await harness.work(JobKind.INGEST) == []
    await harness.begin(strategy="parallel", to=to("openai/short"))
    assert await harness.work(JobKind.REFRESH) == []
    space = (await harness.container()).space
    doctor = Doctor(stack.db, stack.vectors, stack.blobs, grace_seconds=600.0)
    counts = (await doctor.examine([CONTAINER])).containers[CONTAINER].counts
    assert counts["points"] == counts["points_expected"] == 5
    await stack.vectors.delete(space.collection(), doc_id)
    await repaired(harness)
    assert await harness.lacking(space) == 0
    assert (await doctor.examine([CONTAINER])).clean


async def test_points_in_a_collection_that_spaces_share_are_proven_gone_once(
    harness: RefreshHarness,
) -> None:
    old = await drifted(harness)
    points = await harness.stack.vectors.count(old.collection())
    async with harness.stack.db.transaction() as conn:
        await delete_container(conn, CONTAINER, principal="local:you")
    await harness.work()
    (job,) = await sql(harness.stack.db, "SELECT result FROM jobs WHERE kind = 'delete_container'")
    assert job["result"]["points"] == points
