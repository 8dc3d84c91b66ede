"""One container, and machines that have its model in different precisions: workers, archives, the embedding cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pytest

from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.db.containers import Container
from latent_core.domain.errors import Invalid, ModelMissing
from latent_core.domain.ids import point_id
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.vector_types import Vector
from latent_core.domain.versions import HANDLER
from latent_core.ingest import containers as founding
from latent_core.models.embedding import minilm
from latent_core.models.embedding.onnx_format import ElementType, Graph
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.onnx.folder import ModelPrecision, describe, files_needed
from latent_core.models.store.add import Adder, AddLimits, FolderReader
from latent_core.models.store.hub import HubAddress
from latent_core.models.store.record import InstalledModel
from latent_core.settings import Settings
from latent_core.transfer.import_container import with_model
from latent_core.transfer.records import FORMAT, FORMAT_VERSION, Header, SpaceRecord
from latent_workers.embed import DocumentEmbedding, picture_reader
from tests.support.harness.transfers import begin, export, rows, take_in
from tests.support.harness.worker_harness import (
    CONTAINER,
    LEASE_SECONDS,
    TIME_PASSES,
    WorkerHarness,
    open_deps,
)
from tests.support.queue import sql
from tests.support.servers.model_hub import ModelHub
from tests.support.tiny_model import DIMS, tiny_repository

ID: Final = "acme/Tiny-Embed"
NAME: Final = "tiny-embed"
TEXTS: Final = ("lamp oil lamp", "storm boat", "keeper ledger brass")
EMBEDDED: Final = """
SELECT c.id, c.generation, coalesce(c.embed_text, c.embed_head || c.text) AS embed_text FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
WHERE c.container_id = %(id)s
"""
LIMITS: Final = AddLimits(max_bytes=10**9, min_free_bytes=0, wait_seconds=30)


def repository(seed: int) -> dict[str, bytes]:
    """Weights in fp32 and in int8; both precisions give other vectors, so that a mixture is seen."""
    table = np.random.default_rng(seed + 100).normal(size=(40, DIMS)).astype(np.float32)
    graph = Graph("int8")
    for name in ("input_ids", "attention_mask"):
        graph.input(name, ElementType.INT64, ["texts", "tokens"])
    graph.constant("large", np.zeros(100_000, np.int8))
    graph.node("Gather", [graph.constant("table", table), "input_ids"], "last_hidden_state")
    graph.output("last_hidden_state", ElementType.FLOAT, ["texts", "tokens", DIMS])
    return {**tiny_repository(seed), "onnx/model_int8.onnx": graph.model()}


@dataclass(frozen=True)
class Machine:
    """A worker with models of its own, on the same stores as the others."""

    embedders: EmbedderRegistry
    worker: WorkerHarness
    hub: ModelHub

    def install(
        self, reference: str = ID, precision: ModelPrecision | None = None
    ) -> InstalledModel:
        reader = FolderReader(
            lambda files: files_needed(files, precision),
            lambda folder, found: describe(folder, ModelPrecision(found) if found else None),
            precision=precision.value if precision else None,
        )
        address = HubAddress(self.hub.url)
        adder = Adder(
            self.embedders.store, address, reader, LIMITS, lambda _path, _done, _all: None
        )
        return adder.add(reference).model


@dataclass(frozen=True)
class Machines:
    full: Machine
    """Has the model in fp32; its container is ``CONTAINER``."""
    other: Machine
    """Has nothing at first."""
    model: InstalledModel


@pytest.fixture
async def machines(database: Database, tmp_path: Path) -> AsyncIterator[Machines]:
    with ModelHub() as hub:
        hub.publish(ID, repository(1), ref="old")
        hub.publish(ID, repository(2))
        settings = Settings(data_dir=tmp_path, lease_seconds=LEASE_SECONDS)
        registries = [EmbedderRegistry(settings, tmp_path / name, threads=1) for name in ("a", "b")]
        full = Machine(registries[0], cast(Any, None), hub)
        model = full.install(f"{ID}@old")
        manifest = Manifest(id=CONTAINER, name="Notes", embedder=NAME)
        async with open_deps(database, settings, full.embedders, manifest) as deps:
            stack = replace(deps.stack, embedders=registries[1])
            embedding = DocumentEmbedding(
                registries[1], database, stack.metrics, picture_reader(stack)
            )
            second = replace(deps, stack=stack, embedding=embedding)
            yield Machines(
                replace(full, worker=WorkerHarness(deps, cast(Any, None), tmp_path)),
                Machine(registries[1], WorkerHarness(second, cast(Any, None), tmp_path), hub),
                model,
            )
            await embedding.close()
        for registry in registries:
            await registry.close()


async def container_of(machine: Machine, container_id: str) -> Container:
    async with machine.worker.stack.db.transaction() as conn:
        found = await containers.get(conn, container_id)
    assert found is not None
    return found


async def stored_vectors(machine: Machine, container_id: str) -> dict[str, Vector]:
    """By the text that was embedded."""
    container = await container_of(machine, container_id)
    chunks = await rows(machine.worker, EMBEDDED, container_id)
    points = {
        point_id(chunk["id"], chunk["generation"], 0): chunk["embed_text"] for chunk in chunks
    }
    vectors = machine.worker.stack.vectors
    found = await vectors.vectors(container.space.collection(), list(points))
    return {points[point]: vector for point, vector in found.items()}


async def assert_made_by(machine: Machine, container_id: str) -> None:
    """All vectors of the container are those that ``machine`` makes in its space."""
    stored = await stored_vectors(machine, container_id)
    assert len(stored) == len(TEXTS)
    embedder = machine.embedders.for_space((await container_of(machine, container_id)).space)
    expected = await embedder.embed_documents(list(stored))
    assert all(row @ own > 0.9999 for row, own in zip(expected, stored.values(), strict=True))


async def fill(machine: Machine, container_id: str = CONTAINER) -> None:
    for number, text in enumerate(TEXTS):
        await machine.worker.add(f"{number}.txt", text.encode(), container=container_id)


async def test_workers_of_two_precisions_never_mix_their_vectors_in_one_space(
    machines: Machines,
) -> None:
    full, other = machines.full, machines.other
    quantised = other.install(f"{ID}@old", ModelPrecision.INT8)
    assert quantised.version == f"{machines.model.version}+int8"
    await fill(full)
    troubles = await other.worker.work()
    assert [type(trouble) for trouble in troubles] == [ModelMissing] * len(TEXTS)
    waiting = await sql(full.worker.stack.db, "SELECT state, attempts, cause FROM jobs")
    for job in waiting:
        assert (job["state"], job["attempts"]) == ("queued", 0)
        assert f"latent models add {machines.model.version}" in job["cause"]["message"]
    await sql(full.worker.stack.db, TIME_PASSES)
    assert await full.worker.work() == []
    await assert_made_by(full, CONTAINER)

    stack = other.worker.stack
    manifest = Manifest(id="small", name="Small", embedder=NAME)
    await founding.create(
        stack.db,
        stack.vectors,
        stack.blobs,
        other.embedders,
        manifest,
        principal="local:you",
        request_id=None,
    )
    await fill(other, "small")
    troubles = await full.worker.work()
    assert all("--precision int8" in str(trouble) for trouble in troubles)
    assert len(troubles) == len(TEXTS)
    await sql(stack.db, TIME_PASSES)
    assert await other.worker.work() == []
    await assert_made_by(other, "small")
    both = [await stored_vectors(full, one) for one in (CONTAINER, "small")]
    assert all(both[0][text] @ both[1][text] < 0.99 for text in both[0])


@pytest.mark.parametrize(
    ("reference", "precision"),
    [(f"{ID}@old", ModelPrecision.INT8), (ID, None)],
    ids=["another precision", "another revision"],
)
async def test_an_archive_keeps_the_exact_model_on_a_machine_that_has_only_another(
    machines: Machines, reference: str, precision: ModelPrecision | None
) -> None:
    full, other, model = machines.full, machines.other, machines.model
    await fill(full)
    assert await full.worker.work() == []
    data = await export(full.worker)
    other.install(reference, precision)
    assert (await take_in(other.worker, data, "copy"))["embedded"] == 0
    container = await container_of(other, "copy")
    assert (container.space.version, container.manifest.embedder_version) == (model.version, None)
    (job,) = await sql(
        full.worker.stack.db, "SELECT warnings FROM jobs WHERE kind = 'import' AND state = 'done'"
    )
    assert f"latent models add {model.version}" in job["warnings"][0]["message"]
    with pytest.raises(ModelMissing, match=f"latent models add {model.version}"):
        other.embedders.for_space(container.space)
    other.install(f"{ID}@old")
    await assert_made_by(other, "copy")


async def test_an_archive_that_must_be_embedded_is_refused_without_its_model_and_leaves_nothing(
    machines: Machines,
) -> None:
    full, other, model = machines.full, machines.other, machines.model
    await fill(full)
    assert await full.worker.work() == []
    data = await export(full.worker, vectors=False)
    other.install(f"{ID}@old", ModelPrecision.INT8)
    await begin(other.worker, data, "copy")
    (refusal,) = await other.worker.work()
    assert isinstance(refusal, Invalid)
    assert f"latent models add {model.version}" in refusal.message
    async with other.worker.stack.db.transaction() as conn:
        assert await containers.get(conn, "copy") is None


async def test_an_archive_takes_its_own_revision_where_a_newer_one_is_installed_too(
    machines: Machines,
) -> None:
    full, other, model = machines.full, machines.other, machines.model
    await fill(full)
    assert await full.worker.work() == []
    data = await export(full.worker, vectors=False)
    other.install(f"{ID}@old")
    assert other.install().version != model.version
    await take_in(other.worker, data, "copy")
    assert (await container_of(other, "copy")).space.version == model.version
    await assert_made_by(other, "copy")


@pytest.mark.parametrize("variant", [minilm.FP32, minilm.INT8], ids=lambda one: one.embedder)
async def test_an_archive_of_a_built_in_model_keeps_its_precision_and_names_another_release(
    variant: Any, tmp_path: Path
) -> None:
    embedders = EmbedderRegistry(Settings(data_dir=tmp_path), tmp_path / "models")
    manifest = Manifest(id="c", name="C", embedder=variant.embedder)
    made_by = SpaceRecord(embedder=variant.embedder, version=variant.version, dims=minilm.DIMS)
    header = Header(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        container_id="c",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        space=made_by,
        handler=HANDLER,
        analyser=1,
        vectors=True,
        blobs=True,
    )
    kept = await with_model(embedders, manifest, header)
    assert (kept.space, kept.dropped, kept.note) == (made_by, [], None)
    older = header.model_copy(update={"space": made_by.model_copy(update={"version": "old@0"})})
    renewed = await with_model(embedders, manifest, older)
    assert renewed.space == made_by
    assert "old@0" in (renewed.note or "")
    await embedders.close()
