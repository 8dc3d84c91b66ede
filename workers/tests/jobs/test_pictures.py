"""Documents in a container whose embedder reads pictures: what is drawn, embedded, mended and left behind."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pymupdf
import pytest
from PIL import Image

from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.doctor.repair import Repairer
from latent_core.domain.chunk import Modality, SourceType, number
from latent_core.domain.errors import (
    IngestFailed,
    LatentError,
    NotFound,
    ServiceUnreachable,
    Unavailable,
)
from latent_core.domain.findings import Remedy
from latent_core.domain.ids import PointId, Sha256, point_id
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.models.embedding.picture import StoredImage
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.refresh.lifecycle import begin
from latent_core.settings import Settings
from latent_core.wire.refresh import RefreshPayload, RefreshRequest
from latent_workers.chunk.pages import page_chunks
from latent_workers.chunk.writing import drafts_of
from latent_workers.ingest import embedded_images, page_drawing
from latent_workers.parse.parsed import BlockType, ParsedDocument, ParsedPage, TextBlock
from latent_workers.render.page import RenderOptions
from latent_workers.render.run import Pages, RenderedPage
from tests.support.harness.worker_harness import (
    CONTAINER,
    DIMS,
    LEASE_SECONDS,
    CountingEmbedder,
    WordTokenizer,
    WorkerHarness,
    open_deps,
)
from tests.support.queue import sql

PICTURE = Sha256("ab" * 32)
DOCUMENT = UUID(int=7)
CHUNKS = """
SELECT c.id, c.generation, c.chunk_no, c.modality, c.page, c.text, p.image_sha256, c.windows
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN pages p ON p.doc_id = c.doc_id AND p.generation = c.generation AND p.page = c.page
ORDER BY c.chunk_no
"""


@dataclass
class Eyes(CountingEmbedder):
    """Sees how light a picture is, and may refuse some."""

    images: int = 0
    images_a_request: int = 1
    refused: set[str] = field(default_factory=set)
    """Shades that a request must not hold."""
    refusal: LatentError = field(
        default_factory=lambda: IngestFailed("the embedder refuses this input (400)")
    )
    model: EmbeddingModel = field(
        default_factory=lambda: EmbeddingModel("vllm/test", "1", DIMS, 128, reads_images=True)
    )

    async def embed_images(self, images: Sequence[bytes]) -> Matrix:
        if self.failure is not None:
            raise self.failure
        shades = [shade(image) for image in images]
        if self.refused & set(shades):
            raise self.refusal
        self.images += len(images)
        return self.words.vectors(shades)

    async def embed_query_image(self, image: bytes) -> Vector:
        row: Vector = self.words.vectors([shade(image)])[0]
        return row


def shade(image: bytes) -> str:
    with Image.open(io.BytesIO(image)) as opened:
        mean: Any = opened.convert("L").resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
    return f"shade{round(mean / 64)}"


def grey(level: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (90, 60), level).save(buffer, "PNG")
    return buffer.getvalue()


def paper(*pages: str) -> bytes:
    document = pymupdf.open()
    for text in pages:
        page = document.new_page()
        if text:
            page.insert_text((72, 72), text)
        else:
            page.draw_rect(page.rect, fill=(0, 0, 0), width=0)
    return bytes(document.tobytes())


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    settings = Settings(_env_file=None, data_dir=tmp_path, lease_seconds=LEASE_SECONDS)
    manifest = Manifest(
        id=CONTAINER,
        name="Plates",
        embedder="vllm/test",
        dims=DIMS,
        modalities=[Modality.TEXT, Modality.IMAGE],
    )
    embedder = Eyes()
    async with open_deps(database, settings, embedder, manifest) as deps:
        yield WorkerHarness(deps, embedder, tmp_path)


def eyes(harness: WorkerHarness) -> Eyes:
    assert isinstance(harness.embedder, Eyes)
    return harness.embedder


async def vectors(harness: WorkerHarness) -> dict[PointId, Vector]:
    async with harness.stack.db.transaction() as conn:
        container = await containers.get(conn, CONTAINER)
    assert container is not None
    rows = await sql(harness.stack.db, CHUNKS)
    request = [point_id(row["id"], row["generation"], 0) for row in rows]
    return await harness.stack.vectors.vectors(container.space.collection(), request)


async def mended(harness: WorkerHarness) -> list[Remedy]:
    repairer = Repairer(
        harness.stack.db,
        harness.stack.vectors,
        harness.stack.blobs,
        principal="local:you",
        lease_seconds=LEASE_SECONDS,
    )
    done = await repairer.repair(await harness.examine())
    assert all(one.done for one in done), done
    assert await harness.work() == []
    return [one.repair for one in done]


async def test_a_page_that_nobody_can_read_is_found_by_how_it_looks(harness: WorkerHarness) -> None:
    await harness.add("plates.pdf", paper("A ledger of the harbour.", ""))
    assert await harness.work() == []
    rows = await sql(harness.stack.db, CHUNKS)
    assert [(row["modality"], row["page"]) for row in rows] == [
        ("text", 1),
        ("image", 1),
        ("image", 2),
    ]
    assert rows[1]["text"].startswith("A ledger")
    assert rows[2]["text"].endswith(", page 2")
    assert all(row["image_sha256"] for row in rows)
    (last,) = harness.embedder.words.vectors(["shade0"])
    stored = await vectors(harness)
    assert np.allclose(stored[point_id(rows[2]["id"], rows[2]["generation"], 0)], last, atol=1e-5)
    assert (await harness.examine()).clean


async def test_an_image_has_one_vector_of_what_it_shows(harness: WorkerHarness) -> None:
    await harness.add("a.png", grey(255))
    assert await harness.work() == []
    (row,) = await sql(harness.stack.db, CHUNKS)
    (vector,) = (await vectors(harness)).values()
    assert np.allclose(vector, harness.embedder.words.vectors(["shade4"])[0], atol=1e-5)
    assert (row["modality"], row["page"], row["windows"]) == ("image", 1, 1)
    assert (eyes(harness).images, harness.embedder.texts) == (1, 0)


async def test_what_cannot_be_drawn_is_found_by_its_text_and_says_so(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> AsyncGenerator[Any]:
        raise IngestFailed("the page renderer gave up")
        yield

    monkeypatch.setattr(embedded_images, "draw", broken)
    await harness.add("plates.pdf", paper("A ledger of the harbour."))
    assert await harness.work(JobKind.INGEST) == []
    (row,) = await sql(harness.stack.db, CHUNKS)
    assert row["modality"] == "text"
    (job,) = await sql(harness.stack.db, "SELECT warnings FROM jobs WHERE kind = 'ingest'")
    assert "only its text is embedded: the page renderer gave up" in str(job["warnings"])
    assert (
        await harness.work(JobKind.RENDER) == []
    )  # that tries again, and tells of its own trouble
    assert (await harness.examine()).clean


async def test_lost_vectors_of_pictures_are_made_again_of_the_pictures(
    harness: WorkerHarness,
) -> None:
    await harness.add("plates.pdf", paper("A ledger of the harbour.", ""))
    assert await harness.work() == []
    before = await vectors(harness)
    async with harness.stack.db.transaction() as conn:
        container = await containers.get(conn, CONTAINER)
    assert container is not None
    (doc,) = await sql(harness.stack.db, "SELECT id FROM documents")
    assert await harness.stack.vectors.delete(container.space.collection(), doc["id"]) == 3
    assert Remedy.REINGEST in await mended(harness)
    after = await vectors(harness)
    assert len(before) == len(after) == 3
    assert np.allclose(list(before.values()), list(after.values()), atol=1e-5)
    assert (await harness.examine()).clean


async def test_a_lost_picture_is_drawn_again_and_found_as_before(harness: WorkerHarness) -> None:
    await harness.add("a.png", grey(0))
    assert await harness.work() == []
    before = await vectors(harness)
    (row,) = await sql(harness.stack.db, CHUNKS)
    await harness.stack.blobs.own.delete(Sha256(row["image_sha256"]))
    assert await mended(harness) == [Remedy.REINGEST]
    (again,) = await sql(harness.stack.db, CHUNKS)
    assert again["image_sha256"] == row["image_sha256"]
    (vector,) = (await vectors(harness)).values()
    assert np.allclose(vector, *before.values(), atol=1e-5)
    assert eyes(harness).images == 1  # the same picture
    assert (await harness.examine()).clean


async def test_pictures_of_an_attempt_that_failed_for_good_are_collected(
    harness: WorkerHarness,
) -> None:
    harness.embedder.failure = IngestFailed("the embedder refuses this input")
    await harness.add("a.png", grey(0))
    (trouble,) = await harness.work(JobKind.INGEST)
    assert "refuses" in str(trouble)
    assert len(await harness.stored()) == 2
    await harness.settle()
    assert len(await harness.stored()) == 1  # the original: its job may be tried again


async def test_a_page_image_is_its_own_chunk_and_text_chunks_keep_their_ids() -> None:
    words = "Rain over the estuary."
    parsed = ParsedDocument(
        text=f"{words}\n \n{words}",
        title="Weather",
        blocks=(
            TextBlock(BlockType.PARAGRAPH, words, 0, 22, page=1),
            TextBlock(BlockType.PARAGRAPH, words, 25, 47, page=3),
        ),
        pages=tuple(ParsedPage(n, t, 1, 1) for n, t in ((1, words), (2, " "), (3, words))),
    )
    shown = page_chunks(
        parsed, {1: PICTURE, 2: PICTURE, 3: PICTURE}, SourceType.PDF, WordTokenizer()
    )
    assert [(d.text, d.place.page) for d in shown] == [
        (words, 1),
        ("Weather, page 2", 2),
        (words, 3),
    ]
    assert [(d.place.offset_start, d.place.offset_end) for d in shown] == [
        (0, 22),
        (23, 24),
        (25, 47),
    ]
    assert {d.modality for d in shown} == {Modality.IMAGE}
    assert page_chunks(parsed, {3: PICTURE}, SourceType.PDF, WordTokenizer())[0].place.page == 3
    _, texts = drafts_of(
        parsed, SourceType.PDF, Manifest(id="c", name="C").chunker, WordTokenizer(), 100
    )
    alone = number(DOCUMENT, texts, range(9))
    with_images = number(DOCUMENT, [*texts, *shown], range(9))
    assert [chunk.id for chunk in with_images[: len(alone)]] == [chunk.id for chunk in alone]
    assert len({chunk.id for chunk in with_images}) == len(with_images)


def leaves(*levels: int) -> bytes:
    """A page for each level of grey, and what its number is."""
    document = pymupdf.open()
    for leaf, level in enumerate(levels, start=1):
        page = document.new_page()
        page.draw_rect(page.rect, fill=[level / 255] * 3, width=0)
        page.insert_text((72, 72), f"Leaf {leaf} of the herbarium.", color=[1 - level / 255] * 3)
    return bytes(document.tobytes())


async def test_a_page_that_ends_the_renderer_costs_no_other_its_picture(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = page_drawing.render

    @asynccontextmanager
    async def render(*given: Any, options: RenderOptions, **named: Any) -> AsyncIterator[Any]:
        async with whole(*given, options=options, **named) as pages:
            yield EndsAt(2, pages)

    monkeypatch.setattr(page_drawing, "render", render)
    await harness.add("plates.pdf", leaves(255, 0, 128))
    assert await harness.work() == []
    assert await seen(harness) == [(1, 1), (3, 1)]
    (warning,) = (await job_row(harness))["warnings"]
    assert warning["details"]["undrawn_pages"] == [2]
    rows = await sql(harness.stack.db, "SELECT page FROM pages WHERE image_sha256 IS NOT NULL")
    assert sorted(row["page"] for row in rows) == [1, 3]
    assert (await harness.examine()).clean


class EndsAt:
    """Pages of a renderer that crashes at one of them."""

    def __init__(self, bad: int, pages: Pages) -> None:
        self._bad = bad
        self._pages = pages

    async def __aiter__(self) -> AsyncIterator[RenderedPage]:
        async for page in self._pages:
            if page.number == self._bad:
                raise IngestFailed("the page renderer crashed (signal 11)", reason="crash")
            yield page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pages, name)


async def job_row(harness: WorkerHarness, kind: JobKind = JobKind.INGEST) -> dict[str, Any]:
    """The newest job of a kind."""
    (job,) = await sql(
        harness.stack.db,
        "SELECT state, cause, warnings, result FROM jobs WHERE kind = %(kind)s ORDER BY id DESC LIMIT 1",
        kind=kind.value,
    )
    return job


async def seen(harness: WorkerHarness) -> list[tuple[int, int]]:
    """Each page that is a chunk, and how many vectors it has."""
    rows = await sql(harness.stack.db, CHUNKS)
    return [(row["page"], row["windows"]) for row in rows if row["modality"] == "image"]


async def refreshed(harness: WorkerHarness, **words: Any) -> dict[str, Any]:
    """The job of a refresh that was run to its end."""
    request = RefreshRequest.model_validate(words)
    payload = RefreshPayload(
        strategy=request.strategy, space_id=0, to=request.to, way=request.way, force=request.force
    )
    async with harness.stack.db.transaction() as conn:
        await begin(
            conn,
            harness.embedder,
            CONTAINER,
            request,
            payload,
            principal="local:you",
            request_id=None,
        )
    await harness.work()
    return await job_row(harness, JobKind.REFRESH)


async def test_a_page_that_the_embedder_refuses_costs_neither_its_document_nor_other_pages(
    harness: WorkerHarness,
) -> None:
    eyes(harness).images_a_request = 8
    eyes(harness).refused = {"shade0"}
    await harness.add("plates.pdf", leaves(255, 0, 128))
    assert await harness.work() == []
    assert await seen(harness) == [(1, 1), (2, 0), (3, 1)]
    job = await job_row(harness)
    (warning,) = job["warnings"]
    assert job["state"] == "done"
    assert warning["details"]["page"] == 2
    assert "refuses this input (400)" in warning["message"]
    assert (await harness.examine()).clean


async def test_a_page_whose_bytes_are_lost_is_left_out_by_name(
    harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = harness.stack.blobs.own.get
    hashes: list[str] = []

    async def get(picture: StoredImage) -> bytes:
        hashes.append(picture.sha256)
        if len(set(hashes)) == 1:
            raise NotFound("blob 12ab is not stored")
        return await whole(picture.sha256)

    monkeypatch.setattr(harness.deps.embedding, "_read_picture", get)
    await harness.add("plates.pdf", leaves(255, 0, 128))
    assert await harness.work() == []
    assert sorted(windows for _, windows in await seen(harness)) == [0, 1, 1]
    assert "blob 12ab is not stored" in str((await job_row(harness))["warnings"])


async def test_an_embedder_that_refuses_all_pictures_fails_the_document_and_says_what_to_do(
    harness: WorkerHarness,
) -> None:
    eyes(harness).refused = {"shade0", "shade2", "shade4"}
    await harness.add("plates.pdf", leaves(255, 0, 128))
    (trouble,) = await harness.work(JobKind.INGEST)
    assert "none of 3 pictures could be embedded" in str(trouble)
    assert "refuses this input (400)" in str(trouble)
    assert "pdf.render_dpi" in str(trouble)
    assert (await job_row(harness))["state"] == "failed"


async def test_a_page_that_the_embedder_took_by_and_by_is_found_when_it_is_added_again(
    harness: WorkerHarness,
) -> None:
    eyes(harness).refused = {"shade0"}
    await harness.add("plates.pdf", leaves(255, 0))
    assert await harness.work() == []
    eyes(harness).refused = set()
    await harness.add("plates.pdf", leaves(255, 0))
    assert await harness.work() == []
    assert await seen(harness) == [(1, 1), (2, 1)]
    before = eyes(harness).images
    await harness.add("plates.pdf", leaves(255, 0))
    assert await harness.work() == []
    assert eyes(harness).images == before
    await harness.settle()
    assert (await harness.examine()).clean


async def test_an_embedder_that_fails_on_one_picture_is_believed_at_the_last_attempt(
    harness: WorkerHarness,
) -> None:
    eyes(harness).refused, eyes(harness).refusal = (
        {"shade0"},
        Unavailable("the embedder failed (500)"),
    )
    await harness.add("plates.pdf", leaves(255, 0))
    for _ in range(4):
        (trouble,) = await harness.work(JobKind.INGEST)
        assert "failed (500)" in str(trouble)
        await sql(harness.stack.db, "UPDATE jobs SET run_at = now() WHERE waits_for = 'time'")
    assert await harness.work(JobKind.INGEST) == []
    assert await seen(harness) == [(1, 1), (2, 0)]


async def test_an_unreachable_embedder_costs_no_page_its_vector(harness: WorkerHarness) -> None:
    eyes(harness).refused, eyes(harness).refusal = (
        {"shade0"},
        ServiceUnreachable("the embedder is away"),
    )
    await harness.add("plates.pdf", leaves(255, 0))
    assert len(await harness.work(JobKind.INGEST)) == 1
    eyes(harness).refused = set()
    await sql(harness.stack.db, "UPDATE jobs SET run_at = now() WHERE waits_for = 'time'")
    assert await harness.work(JobKind.INGEST) == []
    assert await seen(harness) == [(1, 1), (2, 1)]


async def test_a_refresh_without_many_of_its_pictures_switches_by_force_and_counts_them(
    harness: WorkerHarness,
) -> None:
    await harness.add("plates.pdf", leaves(255, 0, 128))
    await harness.add("dark.png", grey(0))
    assert await harness.work() == []
    eyes(harness).model = replace(eyes(harness).model, embedder="vllm/other")
    eyes(harness).refused = {"shade0"}
    request: dict[str, Any] = {
        "strategy": "parallel",
        "to": {"embedder": "vllm/other", "dims": DIMS},
    }
    refused = await refreshed(harness, **request)
    assert refused["state"] == "failed"
    assert "2 of 4 images have no vector in the new space" in refused["cause"]["message"]
    job = await refreshed(harness, **request, force=True)
    assert job["state"] == "done", job["cause"]
    assert job["result"]["skipped_images"] == 2
    named = {
        (w["details"].get("source_uri"), w["details"].get("page")) for w in refused["warnings"]
    }
    assert {("file:///plates.pdf", 2), ("file:///dark.png", 1)} <= named
    assert "2 pages have no image vector" in str(job["warnings"])
    assert (await harness.examine()).clean
    eyes(harness).refused = set()
    again = await refreshed(harness, strategy="inplace")
    assert (again["state"], again["result"]["skipped_images"]) == ("done", 0)
    assert (await harness.examine()).clean


async def test_a_refresh_by_an_embedder_that_refuses_every_picture_fails(
    harness: WorkerHarness,
) -> None:
    await harness.add("plates.pdf", leaves(*range(0, 180, 20)))
    assert await harness.work() == []
    eyes(harness).model = replace(eyes(harness).model, embedder="vllm/other")
    eyes(harness).refused = {f"shade{n}" for n in range(5)}
    job = await refreshed(harness, strategy="parallel", to={"embedder": "vllm/other", "dims": DIMS})
    assert job["state"] == "failed"
    assert "9 of 9 images have no vector in the new space" in job["cause"]["message"]
