"""Near-duplicates: the verdicts are those of a plain definition, whatever came, went and was judged in between.

Chunks are directions in a plane, so that who is like whom can be said: at a threshold of 0.92 those that are
at most 23 degrees apart.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from latent_core.blobs.files import FileBlobStore, FileBlobStores
from latent_core.bm25.analyser import analyse
from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.db.documents import documents, duplicates
from latent_core.db.documents.documents import LiveGeneration, SourceInfo
from latent_core.domain.chunk import BlockType, DraftChunk, SourcePlace, SourceType, number
from latent_core.domain.ids import content_hash
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import Dedup, Manifest
from latent_core.ingest import containers as founding
from latent_core.ingest.accept import IngestPayload, accept
from latent_core.ingest.delete import delete_documents
from latent_core.ingest.publish import StagedChunk, StagedGeneration, publish
from latent_core.ingest.stage import (
    AddressedChunk,
    enqueue_dedup,
    enqueue_dedup_pending,
    stage_vectors,
)
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.queue import clock
from latent_core.queue.claim import claim
from latent_core.queue.context import JobContext
from latent_core.queue.errors import LeaseLost
from latent_core.queue.lease import HeldClaim
from latent_core.vectors.edge.index import EdgeVectorIndex
from latent_workers.dedup import BITS, bits_allowed, judge, sign
from latent_workers.deps import Deps
from latent_workers.jobs import dedup
from tests.support.queue import sql
from tests.support.stand_in_models import StandInModels

DIMS: Final = 8
CONTAINER: Final = "notes"
DEGREES: Final = 23
NOW: Final = datetime(2026, 11, 20, tzinfo=UTC)
DUE: Final = (
    "UPDATE jobs SET run_at = now(), waits_for = NULL WHERE kind = 'dedup' AND state = 'queued'"
)
LIVE: Final = """
SELECT c.chunk_no, c.text, c.id FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE d.deleted_at IS NULL ORDER BY c.chunk_no
"""


def originals_of(angles: Mapping[int, int], degrees: int = DEGREES) -> dict[int, int]:
    """By definition: going through the chunk_nos, a chunk repeats the first original it is like."""
    leaders: list[int] = []
    verdicts: dict[int, int] = {}
    for chunk_no in sorted(angles):
        found = next((o for o in leaders if abs(angles[o] - angles[chunk_no]) <= degrees), None)
        if found is None:
            leaders.append(chunk_no)
        else:
            verdicts[chunk_no] = found
    return verdicts


@settings(max_examples=200)
@given(
    st.lists(st.integers(0, 120), min_size=1, max_size=14),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_verdicts_do_not_depend_on_the_order_in_which_chunks_come_and_go(
    drawn: list[int], chance: random.Random, data: st.DataObject
) -> None:
    angles = dict(enumerate(drawn))
    gone = data.draw(st.sets(st.sampled_from(sorted(angles))))
    events = [("come", o) for o in angles] + [("go", o) for o in gone]
    chance.shuffle(events)
    live: set[int] = set()
    verdicts: dict[int, int] = {}
    waiting: set[int] = set()
    for kind, chunk_no in events:
        if kind == "come":
            live.add(chunk_no)
        elif chunk_no in live:
            live.remove(chunk_no)
        else:
            continue
        waiting.add(chunk_no)
        while waiting and chance.random() < 0.5:
            _step(angles, live, verdicts, waiting, chance.randint(1, 3))
    while waiting:
        _step(angles, live, verdicts, waiting, 2)
    assert verdicts == originals_of({o: angles[o] for o in live})


def _step(
    angles: Mapping[int, int],
    live: set[int],
    verdicts: dict[int, int],
    waiting: set[int],
    size: int,
) -> None:
    """What a turn of the job does with the rows, in memory."""
    window = sorted(waiting)[:size]
    for chunk_no in window:
        if chunk_no not in live:
            verdicts.pop(chunk_no, None)
    waiting |= _released(verdicts, window)
    judged = [o for o in window if o in live]
    near = {
        o: [n for n in live if n != o and abs(angles[n] - angles[o]) <= DEGREES] for o in judged
    }
    found = judge(near, verdicts)
    for chunk_no in judged:
        verdicts.pop(chunk_no, None)
    verdicts.update(found)
    waiting -= set(window)
    waiting |= _released(verdicts, found)


def _released(verdicts: dict[int, int], originals: Iterable[int]) -> set[int]:
    freed = {o for o, original in verdicts.items() if original in set(originals)}
    for chunk_no in freed:
        del verdicts[chunk_no]
    return freed


def test_signatures_of_vectors_at_the_threshold_are_near_and_of_others_far() -> None:
    rng = np.random.default_rng(7)
    one = rng.normal(size=(4000, 384))
    one /= np.linalg.norm(one, axis=1, keepdims=True)
    other = rng.normal(size=one.shape)
    other -= (one * other).sum(axis=1, keepdims=True) * one
    other /= np.linalg.norm(other, axis=1, keepdims=True)

    def differing(cosine: float) -> Any:
        turned = cosine * one + math.sqrt(1 - cosine**2) * other
        pair = sign(one.astype(np.float32)), sign(turned.astype(np.float32))
        return np.bitwise_count(pair[0] ^ pair[1]).sum(axis=1, dtype=np.int64)

    allowed = bits_allowed(0.92)
    assert (differing(0.92) > allowed).sum() <= 2
    assert (differing(0.3) <= allowed).sum() == 0
    assert (differing(1.0) == 0).all()
    assert bits_allowed(1.0) == 0
    assert bits_allowed(0.0) < BITS


class _Models(StandInModels):
    def model_of(self, manifest: Manifest) -> EmbeddingModel:
        return EmbeddingModel("openai/test", "1", DIMS, 254)


async def _always() -> None:
    """A checkpoint that never ends anything."""


@dataclass
class DedupHarness:
    """The stores, and chunks that are directions."""

    db: Database
    index: EdgeVectorIndex
    words: dict[str, Sequence[int]] = field(default_factory=dict)
    """Text to the angle of each of its windows."""

    async def stage(
        self, uri: str, angles: Sequence[int | Sequence[int]], **draft: Any
    ) -> StagedGeneration:
        """Chunks of a document whose vectors are stored; not visible yet."""
        source = SourceInfo(CONTAINER, uri, "text/plain")
        payload = IngestPayload(uri=uri, filename="a.txt", mime="text/plain", accepted_at=NOW)
        async with self.db.transaction() as conn:
            await accept(conn, source, payload, kind=JobKind.INGEST, principal="local:you")
            row = await documents.row(conn, source.doc_id)
            assert row is not None
            taken = await documents.take_generations(conn, [source.doc_id], row["request"])
            container = await containers.get(conn, CONTAINER)
            first = await containers.take_chunk_nos(conn, CONTAINER, len(angles))
        assert container is not None
        assert first is not None
        generation = taken[source.doc_id].generation
        windows = [(a,) if isinstance(a, int) else tuple(a) for a in angles]
        drafts = [self._draft(uri, generation, n, w, **draft) for n, w in enumerate(windows)]
        made = number(source.doc_id, drafts, range(first, first + len(drafts)))
        addressed = [
            AddressedChunk(source.doc_id, generation, c, len(w))
            for c, w in zip(made, windows, strict=True)
        ]
        vectors = np.array([_direction(a) for w in windows for a in w], dtype=np.float32)
        await stage_vectors(self.index, container.space, addressed, vectors, _always)
        return StagedGeneration(
            doc_id=source.doc_id,
            generation=generation,
            live=LiveGeneration(
                "A",
                "text",
                "0" * 64,
                1,
                "english",
                f"{uri} {generation}",
                len(made),
                "text/plain",
                {},
            ),
            chunks=[
                StagedChunk.of(c, analyse(c.draft.text, "english"), len(w))
                for c, w in zip(made, windows, strict=True)
            ],
            provenance={},
            request=row["request"],
            fetched_at=NOW,
        )

    def _draft(
        self, uri: str, generation: int, n: int, windows: Sequence[int], **more: Any
    ) -> DraftChunk:
        text = more.pop("text", f"{uri} {generation} {n}")
        self.words[text] = windows
        return DraftChunk(
            text=text,
            embed_text=text,
            place=SourcePlace(0, len(text)),
            source_type=SourceType.TEXT,
            content_hash=content_hash(text),
            token_count=3,
            **{"block_type": BlockType.PARAGRAPH, **more},
        )

    async def publish(self, staged: StagedGeneration) -> None:
        async with self.db.transaction() as conn:
            await publish(conn, CONTAINER, [staged])
            await enqueue_dedup_pending(conn, CONTAINER, principal="local:you")

    async def add(self, uri: str, *angles: int | Sequence[int], **draft: Any) -> UUID:
        staged = await self.stage(uri, angles, **draft)
        await self.publish(staged)
        return staged.doc_id

    async def delete(self, doc_id: UUID) -> None:
        async with self.db.transaction() as conn:
            await delete_documents(
                conn, CONTAINER, [doc_id], principal="local:you", lease_seconds=0.0
            )

    async def run_once(self) -> bool:
        """One turn of the job, if one is queued."""
        await sql(self.db, DUE)
        job = await claim(self.db, worker="w", lease_seconds=60, kinds=(JobKind.DEDUP,))
        if job is not None:
            held = HeldClaim(job, lease_seconds=60, since=clock.now())
            await dedup.dedup(JobContext(self.db, held), self.deps)
        return job is not None

    async def judge(self) -> None:
        while await self.run_once():
            continue

    @property
    def deps(self) -> Deps:
        return cast(Deps, SimpleNamespace(stack=SimpleNamespace(db=self.db, vectors=self.index)))

    async def angles(self) -> dict[int, int]:
        return {r["chunk_no"]: self.words[r["text"]][0] for r in await sql(self.db, LIVE)}

    async def verdicts(self) -> dict[int, int]:
        async with self.db.transaction() as conn:
            return await duplicates.originals(conn, CONTAINER, range(1000))


def _direction(degrees: int) -> list[float]:
    return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), *[0.0] * (DIMS - 2)]


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[DedupHarness]:
    index = await EdgeVectorIndex.open(tmp_path / "vectors")
    manifest = Manifest(id=CONTAINER, name="Notes", embedder="openai/test", dims=DIMS)
    try:
        blobs = FileBlobStores(FileBlobStore(tmp_path / "blobs", tmp_path))
        await founding.create(
            database, index, blobs, _Models(), manifest, principal="local:you", request_id=None
        )
        yield DedupHarness(database, index)
    finally:
        await index.close()


async def test_a_chunk_repeats_the_earliest_original_it_is_like_and_never_another_duplicate(
    harness: DedupHarness,
) -> None:
    await harness.add("file:///a", 0, 60)
    await harness.judge()
    await harness.add("file:///b", 20, 40)
    await harness.judge()
    assert await harness.verdicts() == {2: 0, 3: 1}
    await harness.add("file:///c", 30)
    await harness.judge()
    assert await harness.verdicts() == {2: 0, 3: 1}
    assert await sql(harness.db, "SELECT 1 FROM dedup_pending") == []


async def test_duplicates_stand_for_themselves_when_their_original_is_deleted_or_replaced(
    harness: DedupHarness,
) -> None:
    first = await harness.add("file:///a", 0)
    await harness.add("file:///b", 5)
    await harness.add("file:///c", 10)
    await harness.judge()
    assert await harness.verdicts() == {1: 0, 2: 0}
    await harness.delete(first)
    await harness.judge()
    assert await harness.verdicts() == {2: 1}
    await harness.add("file:///b", 90)
    await harness.judge()
    assert await harness.verdicts() == {}
    assert await sql(harness.db, "SELECT chunk_no FROM duplicates ORDER BY chunk_no") == [
        {"chunk_no": 2},
        {"chunk_no": 3},
    ]


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_comes_and_goes_the_verdicts_become_those_of_the_definition(
    harness: DedupHarness, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ords become visible out of order, turns fall between, and a turn covers few of them."""
    monkeypatch.setattr(dedup, "CHUNK_NOS_PER_STEP", 3)
    monkeypatch.setattr(dedup, "CHUNKS_PER_STEP", 2)
    chance = random.Random(seed)
    waiting: list[StagedGeneration] = []
    present: list[UUID] = []
    for step in range(30):
        action = chance.random()
        if action < 0.5:
            angles = [chance.randrange(0, 120, 4) for _ in range(chance.randint(1, 4))]
            waiting.append(await harness.stage(f"file:///{chance.randrange(9)}", angles))
        elif action < 0.65 and present:
            await harness.delete(present.pop(chance.randrange(len(present))))
        if waiting and chance.random() < 0.6:
            staged = waiting.pop(chance.randrange(len(waiting)))
            await harness.publish(staged)
            present.append(staged.doc_id)
        if chance.random() < 0.4:
            await harness.run_once()
        assert step < 30
    await harness.judge()
    angles_now = await harness.angles()
    assert len(angles_now) > 4
    assert await harness.verdicts() == originals_of(angles_now)


async def test_tables_and_chunks_of_several_windows_are_alike_only_as_a_whole(
    harness: DedupHarness,
) -> None:
    await harness.add("file:///a", 0, block_type=BlockType.TABLE, text="| 1 |")
    await harness.add("file:///b", 0, block_type=BlockType.TABLE, text="| 2 |")
    await harness.add("file:///c", 0, block_type=BlockType.TABLE, text="| 1 |")
    await harness.add("file:///d", (60, 90))
    await harness.add("file:///e", (60, 140), (62, 92), 60)
    await harness.judge()
    assert await harness.verdicts() == {2: 0, 5: 3}


async def test_definitions_with_different_names_are_no_duplicates(harness: DedupHarness) -> None:
    await harness.add("file:///a", 0, meta={"symbol": "bind_json"})
    await harness.add("file:///b", 0, meta={"symbol": "bind_toml"})
    await harness.add("file:///c", 0, meta={"symbol": "bind_json"})
    await harness.judge()
    assert await harness.verdicts() == {2: 0}


async def test_another_threshold_has_everything_judged_anew(harness: DedupHarness) -> None:
    await harness.add("file:///a", 0, 20, 50)
    await harness.judge()
    assert await harness.verdicts() == {1: 0}
    for threshold, degrees in ((0.85, 31), (0.99, 8), (1.0, 0)):
        async with harness.db.transaction() as conn:
            current = await containers.get(conn, CONTAINER)
            assert current is not None
            changed = current.manifest.model_copy(
                update={"dedup": Dedup(semantic_threshold=threshold)}
            )
            await containers.update_manifest(conn, changed, str(threshold), current.etag)
            await enqueue_dedup(conn, CONTAINER, principal="local:you")
        await harness.judge()
        assert await harness.verdicts() == originals_of(await harness.angles(), degrees)


async def test_a_worker_that_lost_its_job_writes_no_verdict(harness: DedupHarness) -> None:
    await harness.add("file:///a", 0)
    await harness.add("file:///b", 1)
    await sql(harness.db, DUE)
    job = await claim(harness.db, worker="w", lease_seconds=60, kinds=(JobKind.DEDUP,))
    assert job is not None
    await sql(harness.db, "UPDATE jobs SET claim_id = claim_id + 1000 WHERE kind = 'dedup'")
    held = HeldClaim(job, lease_seconds=60, since=clock.now())
    with pytest.raises(LeaseLost):
        await dedup.dedup(JobContext(harness.db, held), harness.deps)
    assert await sql(harness.db, "SELECT 1 FROM duplicates") == []
    assert len(await sql(harness.db, "SELECT 1 FROM dedup_pending")) == 2
