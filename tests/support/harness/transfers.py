"""A container that goes out as an archive and comes in again: what the tests of that do with a worker harness, and compare."""

from __future__ import annotations

from typing import Any, Final

from latent_core.blobs.writer import store
from latent_core.db import containers
from latent_core.db.transfer import archives
from latent_core.domain.ids import Sha256
from latent_core.domain.job import ArchiveKind, JobKind
from latent_core.ingest.delete import delete_container
from latent_core.transfer.requests import (
    ExportPayload,
    ImportPayload,
    request_export,
    request_import,
)
from tests.support.harness.worker_harness import CONTAINER, WorkerHarness
from tests.support.queue import sql

OWNER: Final = "local:you"
WORDS: Final = ("lamp", "lens", "keeper", "fog", "horn", "gull", "tern", "rock", "light", "stair")
DOCUMENTS: Final = """
SELECT uri, title, meta, sha256, external_id, language, source_type, live_chunks, given_meta, created_at, fetched_at,
       first_fetched_at, source_modified_at, parent_id IS NOT NULL AS is_record
FROM documents WHERE container_id = %(id)s AND deleted_at IS NULL AND live_generation IS NOT NULL ORDER BY uri
"""
CHUNKS: Final = """
SELECT c.id, c.text, c.tsv::text, c.length, c.content_hash, c.page, c.heading_path, c.provenance, c.created_at, s.bits
FROM chunks c JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
JOIN signatures s ON s.container_id = c.container_id AND s.chunk_no = c.chunk_no
WHERE c.container_id = %(id)s ORDER BY c.chunk_no
"""
UNDRAWN: Final = "DELETE FROM jobs WHERE kind = 'render' AND state = 'queued'"
"""Drawing costs more than all else here, and one page stands for the others."""
LIKE: Final = """
SELECT c.id AS repeats, o.id AS original
FROM duplicates l JOIN chunks c ON c.container_id = l.container_id AND c.chunk_no = l.chunk_no
JOIN chunks o ON o.container_id = l.container_id AND o.chunk_no = l.original
WHERE l.container_id = %(id)s ORDER BY 1
"""


async def fill(harness: WorkerHarness) -> None:
    """Documents of several kinds, some that repeat others, one with several chunks, and a corpus; one has its page drawn."""
    for n in range(7):
        words = " ".join(WORDS[(n * k) % len(WORDS)] for k in range(1, 9))
        await harness.add(f"{n}.md", f"# Note {n}\n\n{words} number {n}.\n".encode(), meta={"n": n})
    await harness.add("copy.md", b"# Note 3\n\nThe keeper of the lamp said nothing about fog.\n")
    await harness.add("copy2.md", b"# Note 3\n\nThe keeper of the lamp said nothing about fog.\n")
    long = "\n\n".join(f"## Part {n}\n\n{'lamp lens horn rock ' * 60}{n}" for n in range(5))
    await harness.add("long.md", long.encode())
    await harness.add_corpus({f"r{n}": f"record {n} of the {WORDS[n]}" for n in range(6)})
    assert await harness.work(*set(JobKind) - {JobKind.RENDER, JobKind.GARBAGE}) == []
    drawn = await harness.claim(JobKind.RENDER)
    assert drawn is not None
    assert await harness.run(drawn) is None
    await sql(harness.stack.db, UNDRAWN)
    await harness.settle()


async def export(harness: WorkerHarness, container: str = CONTAINER, **options: bool) -> bytes:
    """The archive's bytes."""
    async with harness.stack.db.transaction() as conn:
        job_id = await request_export(conn, container, ExportPayload(**options), principal=OWNER)
    assert await harness.work(JobKind.EXPORT) == []
    (job,) = await sql(harness.stack.db, f"SELECT state, result FROM jobs WHERE id = {job_id}")
    assert job["state"] == "done"
    async with harness.stack.db.transaction() as conn:
        found = await archives.get(conn, job["result"]["archive_id"], ArchiveKind.EXPORT)
    assert found is not None
    return await harness.stack.blobs.of(found.bucket).get(Sha256(found.sha256))


async def begin(harness: WorkerHarness, data: bytes, target: str, **options: Any) -> int:
    sha256 = await store(harness.stack.db, harness.stack.blobs.own, data)
    payload = ImportPayload(sha256=sha256, filename="a.latent.tar.zst", target=target, **options)
    async with harness.stack.db.transaction() as conn:
        return await request_import(conn, payload, size=len(data), principal=OWNER)


async def take_in(
    harness: WorkerHarness, data: bytes, target: str, **options: Any
) -> dict[str, Any]:
    """The result of an import that succeeds."""
    job_id = await begin(harness, data, target, **options)
    assert await harness.work(JobKind.IMPORT) == []
    (job,) = await sql(harness.stack.db, f"SELECT state, result FROM jobs WHERE id = {job_id}")
    assert job["state"] == "done"
    result: dict[str, Any] = job["result"]
    return result


async def delete(harness: WorkerHarness, container_id: str) -> None:
    async with harness.stack.db.transaction() as conn:
        await delete_container(conn, container_id, principal=OWNER)
    await harness.settle()


async def rows(harness: WorkerHarness, query: str, container_id: str) -> list[dict[str, Any]]:
    async with harness.stack.db.transaction() as conn:
        return await (await conn.execute(query.encode(), {"id": container_id})).fetchall()


async def found(harness: WorkerHarness, container_id: str) -> list[Any]:
    """What both channels answer, as (chunk, score), best first."""
    stack = harness.stack
    async with stack.db.transaction() as conn:
        container = await containers.get(conn, container_id)
        assert container is not None
        cursor = await conn.execute(
            "SELECT chunk_no, id FROM chunks WHERE container_id = %(id)s", {"id": container_id}
        )
        names = {r["chunk_no"]: r["id"] for r in await cursor.fetchall()}
    answers: list[Any] = []
    for n, word in enumerate(WORDS):
        terms = [word, WORDS[n - 1]]
        hits = await stack.keywords.search(container_id, terms, 20, timeout_seconds=5)
        vector = await harness.embedder.embed_query(" ".join(terms))
        near = await stack.vectors.search(container.space.collection(), vector, 20)
        answers.append(
            [(names[o], s) for o, s in zip(hits.chunk_nos.tolist(), hits.scores, strict=True)]
        )
        near_hits = zip(near.chunk_nos.tolist(), near.scores.round(5).tolist(), strict=True)
        answers.append(sorted((-s, names[o]) for o, s in near_hits if o in names))
    return answers


async def everything(harness: WorkerHarness, container_id: str) -> list[Any]:
    return [await rows(harness, query, container_id) for query in (DOCUMENTS, CHUNKS, LIKE)]
