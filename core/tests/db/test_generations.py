"""The writing protocol on real Postgres and the real vector engine: what is visible, what never becomes so."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from uuid import UUID

import numpy as np
import pytest

from latent_core.blobs.files import FileBlobStore, FileBlobStores
from latent_core.blobs.writer import store
from latent_core.bm25.analyser import analyse, query_terms
from latent_core.bm25.bm25 import PostgresKeywordIndex
from latent_core.db import containers
from latent_core.db.conditions import FilterCondition
from latent_core.db.connection import Database
from latent_core.db.doctor import checks
from latent_core.db.documents import chunks, documents, records
from latent_core.db.documents.documents import LiveGeneration, SourceInfo
from latent_core.doctor.examine import Doctor
from latent_core.domain.chunk import BlockType, DraftChunk, SourcePlace, SourceType, number
from latent_core.domain.errors import NotFound
from latent_core.domain.findings import DoctorReport
from latent_core.domain.ids import content_hash
from latent_core.domain.job import JobKind, JobState
from latent_core.domain.manifest.model import Manifest
from latent_core.ingest import containers as founding
from latent_core.ingest.accept import IngestPayload, accept
from latent_core.ingest.delete import (
    PurgePayload,
    delete_container,
    delete_documents,
    delete_records,
    enqueue_collection,
    enqueue_purges,
)
from latent_core.ingest.publish import PublicationResult, StagedChunk, StagedGeneration, publish
from latent_core.ingest.purge import purge_blobs, purge_points, purge_rows
from latent_core.ingest.stage import AddressedChunk, stage_vectors
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.queue import admin
from latent_core.queue.claim import claim
from latent_core.queue.finish import finish
from latent_core.vectors.edge.index import EdgeVectorIndex
from latent_core.vectors.port import CollectionLayout, VectorIndex
from tests.support.stand_in_models import StandInModels

DIMS = 8
NOW = datetime(2026, 11, 20, tzinfo=UTC)


class _Models(StandInModels):
    def model_of(self, manifest: Manifest) -> EmbeddingModel:
        return EmbeddingModel("local", "test@1", DIMS, 254)


async def _always() -> None:
    """A checkpoint that never ends anything."""


@dataclass
class PublishHarness:
    """The stores, and the protocol's steps as a worker takes them."""

    db: Database
    index: EdgeVectorIndex
    blobs: FileBlobStore

    async def request(self, uri: str) -> tuple[UUID, int]:
        source = SourceInfo("notes", uri, "text/plain")
        payload = IngestPayload(uri=uri, filename="a.txt", mime="text/plain", accepted_at=NOW)
        async with self.db.transaction() as conn:
            await accept(conn, source, payload, kind=JobKind.INGEST, principal="local:you")
            row = await documents.row(conn, source.doc_id)
        assert row is not None
        return source.doc_id, row["request"]

    async def stage(self, doc_id: UUID, request: int, texts: list[str]) -> StagedGeneration | None:
        async with self.db.transaction() as conn:
            attempt = (await documents.take_generations(conn, [doc_id], request)).get(doc_id)
        if attempt is None:
            return None
        async with self.db.transaction() as conn:
            container = await containers.get(conn, "notes")
            first = await containers.take_chunk_nos(conn, "notes", len(texts))
        assert container is not None
        assert first is not None
        drafts = [_draft(text) for text in texts]
        made = number(doc_id, drafts, range(first, first + len(drafts)))
        rng = np.random.default_rng(len(texts))
        vectors = rng.normal(size=(len(made), DIMS)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        addressed = [AddressedChunk(doc_id, attempt.generation, c, 1) for c in made]
        await stage_vectors(self.index, container.space, addressed, vectors, _always)
        return StagedGeneration(
            doc_id=doc_id,
            generation=attempt.generation,
            live=LiveGeneration(
                "A", "text", "0" * 64, 1, "english", f"print-{texts}", len(made), "text/plain", {}
            ),
            chunks=[StagedChunk.of(c, analyse(c.draft.text, "english"), 1) for c in made],
            provenance={
                "handler": "test",
                "handler_version": "1",
                "embedder": "local",
                "embedder_version": "1",
            },
            request=request,
            fetched_at=NOW,
        )

    async def publish(self, staged: StagedGeneration) -> PublicationResult:
        async with self.db.transaction() as conn:
            published = await publish(conn, "notes", [staged])
            await enqueue_purges(
                conn,
                "notes",
                below=[(staged.doc_id, staged.generation)] if published.now_live else [],
                only=[(staged.doc_id, staged.generation)] if published.refused else [],
                principal="local:you",
                lease_seconds=0.0,
            )
        return published

    async def ingest(self, uri: str, texts: list[str]) -> PublicationResult:
        doc_id, request = await self.request(uri)
        staged = await self.stage(doc_id, request, texts)
        assert staged is not None
        return await self.publish(staged)

    async def delete(self, doc_id: UUID) -> None:
        async with self.db.transaction() as conn:
            await delete_documents(
                conn, "notes", [doc_id], principal="local:you", lease_seconds=0.0
            )

    async def records(self, corpus: UUID, request: int, *names: str) -> list[UUID]:
        """Records of a corpus as one run of it makes them visible."""
        sources = [
            SourceInfo("notes", f"file:///c.jsonl#{name}", "text/plain", name, corpus)
            for name in names
        ]
        async with self.db.transaction() as conn:
            await records.accept(conn, sources, corpus, request)
        for source, name in zip(sources, names, strict=True):
            staged = await self.stage(source.doc_id, request, [f"record {name}"])
            if staged is not None:
                await self.publish(staged)
        return [source.doc_id for source in sources]

    async def found(self, query: str) -> set[str]:
        """Texts a keyword search shows, through the join every search makes."""
        hits = await PostgresKeywordIndex(self.db).search(
            "notes", query_terms(query, ["english"]), 1000, timeout_seconds=10
        )
        async with self.db.transaction() as conn:
            live = await chunks.live(conn, "notes", hits.chunk_nos, FilterCondition())
            rows = await chunks.hydrate(conn, [("notes", chunk_no) for chunk_no in live])
        return {row.text for row in rows.values()}

    async def drain(self) -> None:
        """Do what purge jobs would, and end the ingest jobs that these tests do by hand."""
        while (job := await claim(self.db, worker="test", lease_seconds=60)) is not None:
            if job.kind is JobKind.PURGE:
                payload = PurgePayload.model_validate(job.payload)
                await purge_points(self.db, self.index, "notes", payload, _always)
                await delete_records(
                    self.db, "notes", payload.records, principal="local:you", lease_seconds=0.0
                )
                async with self.db.transaction() as conn:
                    await purge_rows(conn, payload)
            async with self.db.transaction() as conn:
                await finish(conn, job)

    async def examine(self) -> DoctorReport:
        return await Doctor(
            self.db, self.index, FileBlobStores(self.blobs), grace_seconds=0.0
        ).examine(None)


def _draft(text: str) -> DraftChunk:
    return DraftChunk(
        text,
        text,
        SourcePlace(0, len(text)),
        SourceType.TEXT,
        BlockType.PARAGRAPH,
        content_hash(text),
        len(text.split()),
    )


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[PublishHarness]:
    (tmp_path / "tmp").mkdir()
    index = await EdgeVectorIndex.open(tmp_path / "vectors")
    try:
        manifest = Manifest(id="notes", name="Notes")
        blobs = FileBlobStore(tmp_path / "blobs", tmp_path / "tmp")
        await founding.create(
            database,
            index,
            FileBlobStores(blobs),
            _Models(),
            manifest,
            principal="local:you",
            request_id=None,
        )
        yield PublishHarness(database, index, blobs)
    finally:
        await index.close()


@dataclass
class ListedCollections:
    """An engine that holds collections of whomever."""

    names: list[str]

    async def collections(self) -> list[str]:
        return list(self.names)

    async def create_collection(self, name: str, dims: int, layout: CollectionLayout) -> None:
        """There already."""

    async def drop_collection(self, name: str) -> None:
        self.names.remove(name)


async def test_collections_of_nobody_are_dropped_where_we_are_alone_and_never_on_a_server(
    harness: PublishHarness,
) -> None:
    engine = ListedCollections(["c_of-another-installation_text", "theirs"])
    index = cast(VectorIndex, engine)
    await founding.ensure_collections(harness.db, index, alone=False)
    assert engine.names == ["c_of-another-installation_text", "theirs"]
    await founding.ensure_collections(harness.db, index, alone=True)
    assert engine.names == ["theirs"]


async def test_what_is_staged_is_not_visible_until_it_is_published(harness: PublishHarness) -> None:
    doc_id, request = await harness.request("file:///a.txt")
    staged = await harness.stage(doc_id, request, ["the lamp is lit"])
    assert staged is not None
    assert await harness.found("lamp") == set()
    assert (await harness.publish(staged)).now_live == {doc_id}
    assert await harness.found("lamp") == {"the lamp is lit"}


async def test_a_new_version_replaces_the_old_one_at_once_and_leaves_nothing_behind(
    harness: PublishHarness,
) -> None:
    await harness.ingest("file:///a.txt", ["the lamp is lit", "the lens turns"])
    await harness.ingest("file:///a.txt", ["the lamp is out"])
    assert await harness.found("lamp lens") == {"the lamp is out"}
    await harness.drain()
    report = await harness.examine()
    assert report.clean, report
    assert report.containers["notes"].counts["points"] == 1


async def test_the_later_request_wins_whatever_the_order_of_publication(
    harness: PublishHarness,
) -> None:
    doc_id, first = await harness.request("file:///a.txt")
    _, second = await harness.request("file:///a.txt")
    newer = await harness.stage(doc_id, second, ["newer words"])
    assert newer is not None
    await harness.publish(newer)
    assert await harness.stage(doc_id, first, ["older words"]) is None
    assert await harness.found("words") == {"newer words"}


async def test_an_older_attempt_that_was_staged_before_never_becomes_visible(
    harness: PublishHarness,
) -> None:
    doc_id, first = await harness.request("file:///a.txt")
    older = await harness.stage(doc_id, first, ["older words"])
    _, second = await harness.request("file:///a.txt")
    newer = await harness.stage(doc_id, second, ["newer words"])
    assert older is not None
    assert newer is not None
    await harness.publish(newer)
    assert (await harness.publish(older)).refused == {doc_id}
    assert await harness.found("words") == {"newer words"}
    await harness.drain()
    assert (await harness.examine()).clean


async def test_a_deleted_document_is_invisible_at_once_and_gone_after_its_purge(
    harness: PublishHarness,
) -> None:
    published = await harness.ingest("file:///a.txt", ["the lamp is lit"])
    (doc_id,) = published.now_live
    await harness.delete(doc_id)
    assert await harness.found("lamp") == set()
    await harness.drain()
    report = await harness.examine()
    assert report.clean, report
    assert report.containers["notes"].counts["points"] == 0


async def test_an_attempt_from_before_a_deletion_never_brings_the_document_back(
    harness: PublishHarness,
) -> None:
    doc_id, request = await harness.request("file:///a.txt")
    staged = await harness.stage(doc_id, request, ["the lamp is lit"])
    assert staged is not None
    await harness.delete(doc_id)
    assert (await harness.publish(staged)).refused == {doc_id}
    again, request = await harness.request("file:///a.txt")
    assert again == doc_id
    assert (await harness.publish(staged)).refused == {doc_id}
    fresh = await harness.stage(doc_id, request, ["lit again"])
    assert fresh is not None
    await harness.publish(fresh)
    assert await harness.found("lamp lit") == {"lit again"}


async def test_nothing_is_published_into_a_container_that_was_deleted(
    harness: PublishHarness,
) -> None:
    doc_id, request = await harness.request("file:///a.txt")
    staged = await harness.stage(doc_id, request, ["the lamp is lit"])
    assert staged is not None
    async with harness.db.transaction() as conn:
        await delete_container(conn, "notes", principal="local:you")
    with pytest.raises(NotFound):
        await harness.publish(staged)
    with pytest.raises(NotFound):
        await harness.request("file:///b.txt")


async def test_a_document_is_never_named_twice_in_one_publication(harness: PublishHarness) -> None:
    doc_id, request = await harness.request("file:///a.txt")
    staged = await harness.stage(doc_id, request, ["x y z"])
    assert staged is not None
    with pytest.raises(ValueError, match="twice"):
        async with harness.db.transaction() as conn:
            await publish(conn, "notes", [staged, staged])


async def test_identical_chunks_keep_distinct_ids_and_points(harness: PublishHarness) -> None:
    await harness.ingest("file:///a.txt", ["same words", "same words"])
    await harness.drain()
    report = await harness.examine()
    assert report.clean, report
    assert report.containers["notes"].counts["points"] == 2


async def test_doctor_tells_of_a_live_chunk_without_a_vector_and_of_a_stray_point(
    harness: PublishHarness,
) -> None:
    published = await harness.ingest("file:///a.txt", ["the lamp is lit"])
    (doc_id,) = published.now_live
    stray_doc, request = await harness.request("file:///b.txt")
    assert await harness.stage(stray_doc, request, ["stray words"]) is not None
    await harness.drain()
    async with harness.db.transaction() as conn:
        container = await containers.get(conn, "notes")
    assert container is not None
    await harness.index.delete(container.space.collection(), doc_id)
    report = await harness.examine()
    messages = [d.message for d in report.containers["notes"].differences]
    assert any("is live and has no vector" in message for message in messages)
    assert any("belongs to no live chunk" in message for message in messages)


async def test_concurrent_adds_publications_and_deletions_neither_lock_up_nor_drift(
    harness: PublishHarness,
) -> None:
    """Every order of locks the protocol knows, at once; afterwards all stores agree."""
    rng = random.Random(7)
    uris = [f"file:///{n}.txt" for n in range(6)]

    async def one(number: int) -> None:
        uri = rng.choice(uris)
        doc_id, request = await harness.request(uri)
        if rng.random() < 0.25:
            await harness.delete(doc_id)
            return
        staged = await harness.stage(
            doc_id, request, [f"version {number} part {p}" for p in range(rng.randint(1, 4))]
        )
        if staged is not None:
            await harness.publish(staged)

    for start in range(0, 60, 6):
        await asyncio.gather(*(one(start + n) for n in range(6)))
    await harness.drain()
    report = await harness.examine()
    assert report.clean, list(report.containers["notes"].differences)


async def test_a_purge_of_a_deleted_corpus_spares_the_records_of_its_next_life(
    harness: PublishHarness,
) -> None:
    """The second purge of a deletion comes late: the corpus may be there again by then."""
    corpus, request = await harness.request("file:///c.jsonl")
    await harness.records(corpus, request, "one", "two")
    await harness.delete(corpus)
    again, request = await harness.request("file:///c.jsonl")
    assert again == corpus
    await harness.records(corpus, request, "one")
    await harness.drain()
    assert await harness.found("record") == {"record one"}


async def test_a_deleted_record_stays_deleted_for_every_earlier_run(
    harness: PublishHarness,
) -> None:
    corpus, first = await harness.request("file:///c.jsonl")
    one, _ = await harness.records(corpus, first, "one", "two")
    _, second = await harness.request("file:///c.jsonl")
    await harness.delete(one)
    await harness.records(corpus, second, "one")
    assert await harness.found("record") == {"record two"}
    _, third = await harness.request("file:///c.jsonl")
    await harness.records(corpus, third, "one")
    assert await harness.found("record") == {"record one", "record two"}


async def test_records_that_a_later_run_does_not_hold_vanish_and_may_come_back(
    harness: PublishHarness,
) -> None:
    corpus, first = await harness.request("file:///c.jsonl")
    await harness.records(corpus, first, "one", "two")
    _, second = await harness.request("file:///c.jsonl")
    await harness.records(corpus, second, "one")

    async def sweep(below: int) -> None:
        await delete_records(
            harness.db, "notes", [(corpus, below)], principal="local:you", lease_seconds=0.0
        )

    await sweep(first)
    assert await harness.found("record") == {"record one", "record two"}
    await sweep(second)
    assert await harness.found("record") == {"record one"}
    await harness.records(corpus, first, "two")
    assert await harness.found("record") == {"record one"}
    await harness.records(corpus, second, "two")
    assert await harness.found("record") == {"record one", "record two"}


async def test_all_blobs_without_a_purpose_go_in_one_collection_however_many(
    harness: PublishHarness,
) -> None:
    for page in range(5):
        await store(harness.db, harness.blobs, b"page %d" % page)
    removed = await purge_blobs(
        harness.db, harness.blobs, older_than_seconds=0.0, checkpoint=_always, limit=2
    )
    assert removed == 5
    assert [h async for h in harness.blobs.hashes()] == []


async def test_a_collection_of_a_removed_container_is_found_and_dropped_by_the_doctor(
    harness: PublishHarness,
) -> None:
    await store(harness.db, harness.blobs, b"a page")
    assert [d.kind for d in (await harness.examine()).stores] == ["blob"]
    async with harness.db.transaction() as conn:
        first = await enqueue_collection(conn, principal="local:you", delay_seconds=30.0)
        again = await enqueue_collection(conn, principal="local:you", delay_seconds=60.0)
        await admin.cancel_all(conn, "notes", but=0)
        view = await admin.get(conn, first)
        soon = await checks.blob_garbage(conn, 60.0, 10)
    assert again == first
    assert view.state is JobState.QUEUED
    assert soon == []


@pytest.mark.parametrize("state", ["queued", "running", "failed", "cancelled"])
async def test_bytes_of_a_job_that_runs_or_may_be_requeued_are_kept(
    harness: PublishHarness, state: str
) -> None:
    sha256 = await store(harness.db, harness.blobs, b"an original")
    await harness.request("file:///a.txt")
    async with harness.db.transaction() as conn:
        await conn.execute(
            "UPDATE jobs SET state = %(state)s, payload = payload || %(part)s::jsonb",
            {"state": state, "part": f'{{"sha256": "{sha256}"}}'},
        )
    assert (
        await purge_blobs(harness.db, harness.blobs, older_than_seconds=0.0, checkpoint=_always)
        == 0
    )
    assert (await harness.examine()).stores == []


async def test_a_document_without_chunks_brings_no_language_and_chunks_are_counted_in_theirs(
    harness: PublishHarness,
) -> None:
    await harness.ingest("file:///a.txt", ["the lamp is lit", "the lens turns"])
    doc_id, request = await harness.request("file:///c.jsonl")
    empty = await harness.stage(doc_id, request, [])
    assert empty is not None
    live = dataclasses.replace(empty.live, language="simple")
    await harness.publish(dataclasses.replace(empty, live=live))
    async with harness.db.transaction() as conn:
        container = await containers.get(conn, "notes")
        cursor = await conn.execute("SELECT languages FROM keyword_stats")
        row = await cursor.fetchone()
    assert container is not None
    assert container.languages == ("english",)
    assert row == {"languages": {"english": 2}}
