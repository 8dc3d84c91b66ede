"""The life of documents and corpora in a running installation: added again, changed, deleted, and gone for good."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from latent_client import AsyncClient
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import SearchMode
from tests.http.test_http_surface import add, ingest, manifest, search, settled
from tests.support.harness.installation import Installation, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASE_SECONDS: Final = 2
"""Purges wait two leases, the collection of garbage four."""
PLACES = ("north cliff", "harbour wall", "old quay", "lamp room", "herring shed", "south beach")
RECORDS = {f"r{n}": f"Gull {n} was ringed at the {p}, in {p}." for n, p in enumerate(PLACES)}


def _jsonl(records: dict[str, str]) -> bytes:
    return "\n".join(
        f'{{"_id": "{i}", "title": "", "text": "{t}"}}' for i, t in records.items()
    ).encode()


async def _found(client: AsyncClient, container: str) -> set[str]:
    answer = await search(client, container, "gull ringed", mode=SearchMode.LEXICAL, top_k=50)
    return {hit.external_id for hit in answer.hits}


async def _all_done(client: AsyncClient, container: str) -> None:
    """Wait until no job of the container is open, also those that wait two leases."""

    async def quiet() -> bool:
        jobs = [j async for j in client.jobs(container_id=container)]
        return not any(j.state in (JobState.QUEUED, JobState.RUNNING) for j in jobs)

    await eventually(quiet, seconds=60, what="the end of all jobs")


async def test_a_corpus_that_is_deleted_and_added_again_is_there_and_stays(
    client: AsyncClient,
) -> None:
    await client.create(manifest("phoenix-corpus"))
    added = await add(client, "phoenix-corpus", "gulls.jsonl", _jsonl(RECORDS))
    await client.wait([added.job_id], timeout_seconds=60)
    await client.delete_document("phoenix-corpus", added.doc_id)
    assert await _found(client, "phoenix-corpus") == set()
    await ingest(client, "phoenix-corpus", "gulls.jsonl", _jsonl(RECORDS))
    assert await _found(client, "phoenix-corpus") == set(RECORDS)
    await _all_done(client, "phoenix-corpus")
    assert await _found(client, "phoenix-corpus") == set(RECORDS)
    assert (await client.doctor("phoenix-corpus")).clean


async def test_a_record_that_is_missing_from_a_changed_corpus_is_not_found_any_more(
    client: AsyncClient,
) -> None:
    await client.create(manifest("shrinking"))
    await ingest(client, "shrinking", "gulls.jsonl", _jsonl(RECORDS))
    fewer = {name: text for name, text in RECORDS.items() if name != "r5"}
    await ingest(client, "shrinking", "gulls.jsonl", _jsonl(fewer))

    async def gone() -> bool:
        return await _found(client, "shrinking") == set(fewer)

    await eventually(gone, what="the record to vanish")


async def test_an_upload_that_is_sent_as_jsonl_is_a_corpus_whatever_its_name(
    client: AsyncClient,
) -> None:
    await client.create(manifest("typed"))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "export"
        path.write_bytes(_jsonl(RECORDS))
        upload = await client.upload("typed", path, mime="application/x-ndjson")
    added = await client.add("typed", file_ref=upload.file_ref)
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert (job.kind.value, job.state) == ("corpus", JobState.DONE)
    assert await _found(client, "typed") == set(RECORDS)


async def test_documents_and_containers_that_are_deleted_leave_no_bytes_behind(
    client: AsyncClient, installation: Installation
) -> None:
    for name in ("emptied", "dropped"):
        await client.create(manifest(name))
    first = await add(client, "emptied", "a.txt", b"A lamp that is soon put out.")
    second = await add(client, "dropped", "b.txt", b"A lamp in a house that is soon torn down.")
    await client.wait([first.job_id, second.job_id], timeout_seconds=60)
    for name in ("emptied", "dropped"):
        await settled(client, name)
    before = installation.stored_blobs()
    await client.delete_document("emptied", first.doc_id, now=True)
    queued = await client.delete("dropped")
    await client.wait([queued.job_id], timeout_seconds=60)

    async def gone() -> bool:
        return installation.stored_blobs() <= before - 4

    await eventually(gone, seconds=60, what="both originals and both page images to be gone")
    assert (await client.doctor()).clean
