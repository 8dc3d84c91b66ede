"""Questions at full rate while their container goes out as an archive and comes in again: no error, no mixed answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Chunker, Manifest, SearchMode
from latent_core.wire.containers import ContainerState
from latent_core.wire.search import Hit, SearchRequest
from tests.conftest import DIMS
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

DOCUMENTS: Final = 60
PARTS: Final = 4
ASKERS: Final = 2
VERSIONS: Final = ("early", "late")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    install_root: Path, embedding_server: EmbeddingServer
) -> AsyncIterator[Installation]:
    """One running `latent up`, which waits for slow machines: how long an answer takes is no matter here."""
    settings = {
        "LLC_EMBED_BASE_URL": embedding_server.base_url,
        "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        "LLC_SEARCH_TIMEOUT_MS": "60000",
        "LLC_LEASE_SECONDS": "5",
    }
    one = Installation(install_root / "search-transfers", settings)
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


def text_of(number: int, version: str) -> str:
    """Of several chunks, each with words that no other document has; all of them tell the version."""
    own = " ".join(f"zx{number} yq{number} w{number * k % 997}" for k in range(3, 12))
    parts = (f"## Part {part}\n\n{own} {version} part{part} keeper.\n" for part in range(PARTS))
    return f"# Note {number}\n\n" + "\n".join(parts)


@dataclass
class SearchObservations:
    """What askers saw, over all of their questions."""

    answers: int = 0
    wrong: list[str] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)


def check(seen: SearchObservations, number: int, hits: list[Hit]) -> None:
    """The document that was asked for comes first, and of no document two versions are shown."""
    if not hits or hits[0].source_uri != uri_of(number):
        seen.wrong.append(f"{number} was not found first")
    message: dict[Any, set[str]] = {}
    for hit in hits:
        versions_seen = {version for version in VERSIONS if version in (hit.text or "").split()}
        message.setdefault(hit.source_uri, set()).update(versions_seen)
        seen.versions |= versions_seen
    seen.wrong += [
        f"{uri}: {versions_seen}"
        for uri, versions_seen in message.items()
        if len(versions_seen) > 1
    ]
    if len({hit.provenance.embedder_version for hit in hits}) > 1:
        seen.wrong.append("vectors of two models")


def uri_of(number: int) -> str:
    return f"file:///n{number}.md"


async def ask(
    client: AsyncClient, seen: SearchObservations, first: int, ended: asyncio.Event
) -> None:
    """One question after the other."""
    number = first
    while not ended.is_set():
        number = (number + 7) % DOCUMENTS
        request = SearchRequest(
            containers=["busy"],
            query=f"zx{number} yq{number} w{number * 5 % 997}",
            mode=SearchMode.HYBRID,
            top_k=10,
            dedup=False,
        )
        try:
            answer = await client.search(request)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it must not be
            seen.wrong.append(f"{type(exc).__name__}: {exc}")
            continue
        seen.answers += 1
        if answer.partial or answer.issues:
            seen.wrong.append(str(answer.issues))
        check(seen, number, answer.hits)


@asynccontextmanager
async def questions(one: Installation) -> AsyncIterator[SearchObservations]:
    """Asked all the time while the block runs; what was seen is whole when it ends."""
    seen, ended = SearchObservations(), asyncio.Event()
    async with one.client() as client:
        tasks = [asyncio.create_task(ask(client, seen, n, ended)) for n in range(ASKERS)]
        try:
            yield seen
        finally:
            ended.set()
            await asyncio.gather(*tasks)


async def filled(client: AsyncClient, folder: Path, version: str) -> None:
    """Every document in this version."""
    jobs = []
    for number in range(DOCUMENTS):
        file = folder / f"n{number}.md"
        file.write_text(text_of(number, version), encoding="utf-8")
        upload = await client.upload("busy", file)
        added = await client.add("busy", file_ref=upload.file_ref, source_uri=uri_of(number))
        jobs.append(added.job_id)
    await ended(client, *jobs)


async def ended(client: AsyncClient, *job_ids: int) -> None:
    for job in await client.wait(job_ids, timeout_seconds=120):
        assert job.state is JobState.DONE, job.cause


async def exported(client: AsyncClient, file: Path) -> None:
    answer = await client.export("busy")
    assert answer.job_id is not None
    (job,) = await client.wait([answer.job_id], timeout_seconds=120)
    assert job.state is JobState.DONE, job.cause
    assert job.result is not None
    await client.download(await client.exported(int(job.result["archive_id"])), file)


async def more(seen: SearchObservations) -> None:
    """Some further answers."""
    min_answers = seen.answers + 10

    async def come() -> bool:
        return seen.answers >= min_answers

    await eventually(come, seconds=60, what="further answers")


@pytest.mark.timeout(400)
async def test_hybrid_questions_at_full_rate_while_archives_are_made_and_taken_in(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    manifest = Manifest(
        id="busy", name="Busy", embedder="openai/test", dims=DIMS, chunker=Chunker(size=40)
    )
    await client.create(manifest)
    await filled(client, tmp_path, "early")
    early, late = tmp_path / "early.zst", tmp_path / "late.zst"
    await exported(client, early)
    await filled(client, tmp_path, "late")
    async with questions(installation) as seen:
        await more(seen)
        assert seen.versions == {"late"}
        await exported(client, late)
        await ended(client, (await client.backup("busy")).job_id)
        merged = await client.import_archive(
            early, container_id="busy", merge=True, policy="replace"
        )
        await ended(client, merged.job_id)
        seen.versions.clear()
        await more(seen)
        twin = await client.import_archive(late, container_id="twin")
        await ended(client, twin.job_id)
        for state in (ContainerState.ARCHIVED, ContainerState.ACTIVE):
            await client.set_state("twin", state)
        await more(seen)
    assert seen.wrong == []
    assert seen.versions == {"early"}
    report = await client.doctor("busy")
    assert report.clean, report
