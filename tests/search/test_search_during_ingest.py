"""Search while its documents are replaced and deleted: for a minute, nothing is shown that is not there.

Every document holds one text a version, cut into several chunks that all name the version. What is known for
certain at a moment bounds what a search that begins then may show.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from dataclasses import dataclass, field

import pytest

from latent_client import AsyncClient
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Chunker, SearchMode
from latent_core.wire.search import Hit, SearchRequest
from tests.http.test_http_surface import add, manifest

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(400)]

SECONDS = 60.0
CONTAINERS = ("mill", "quay")
DOCUMENTS = 6
WRITERS = 3
SEARCHERS = 3
PARTS = 5
MARK = re.compile(r"(mill|quay)-(\d+)-version(\d+)")


@dataclass
class ToolDocument:
    """What is known of one. ``min_version``: a search that begins now shows no version below it."""

    container: str
    number: int
    doc_id: object = None
    sent: int = 0
    """The newest version that was sent."""
    min_version: int = 1
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        return f"{self.container}-{self.number}"

    def text(self, version: int) -> bytes:
        parts = (
            f"# Part {part}\n\nThe tide wheel turns at dusk, {self.name}-version{version}. "
            + f"Herring and rope number {part} are counted by the keeper of the lamp. " * 4
            for part in range(PARTS)
        )
        return "\n\n".join(parts).encode()


async def test_searches_show_nothing_deleted_half_written_or_foreign_meanwhile(
    client: AsyncClient,
) -> None:
    for name in CONTAINERS:
        await client.create(manifest(name, chunker=Chunker(size=60)))
    documents = [ToolDocument(c, n) for c in CONTAINERS for n in range(DOCUMENTS)]
    until = time.monotonic() + SECONDS
    counts = {"shown": 0, "searches": 0, "written": 0, "deleted": 0}
    async with asyncio.TaskGroup() as work:
        for seed in range(WRITERS):
            work.create_task(_write(client, documents, until, random.Random(seed), counts))
        for seed in range(SEARCHERS):
            work.create_task(_search(client, documents, until, random.Random(seed), counts))
    assert counts["searches"] > 20, counts
    assert counts["written"] > 10, counts
    assert counts["deleted"], counts
    assert counts["shown"] > 50, counts


async def _write(
    client: AsyncClient,
    documents: list[ToolDocument],
    until: float,
    chance: random.Random,
    counts: dict[str, int],
) -> None:
    """Replace documents, and delete every third."""
    while time.monotonic() < until:
        one = chance.choice(documents)
        async with one.lock:
            if one.doc_id is not None and chance.random() < 0.35:
                await client.delete_document(one.container, one.doc_id)  # type: ignore[arg-type]  # a UUID by now
                one.doc_id, one.min_version = None, one.sent + 1  # answered: invisible from now on
                counts["deleted"] += 1
                continue
            one.sent += 1
            added = await add(client, one.container, f"{one.name}.md", one.text(one.sent))
            (job,) = await client.wait([added.job_id], timeout_seconds=120)
            assert job.state is JobState.DONE, job.cause
            one.doc_id, one.min_version = added.doc_id, one.sent
            counts["written"] += 1


async def _search(
    client: AsyncClient,
    documents: list[ToolDocument],
    until: float,
    chance: random.Random,
    counts: dict[str, int],
) -> None:
    known = {document.name: document for document in documents}
    modes = (SearchMode.HYBRID, SearchMode.LEXICAL, SearchMode.SEMANTIC)
    while time.monotonic() < until:
        searched = chance.choice([*((name,) for name in CONTAINERS), CONTAINERS])
        min_version = {name: document.min_version for name, document in known.items()}
        answer = await client.search(
            SearchRequest(
                containers=list(searched),
                query="tide wheel and herring at dusk",
                mode=chance.choice(modes),
                top_k=chance.choice((3, 10, 60)),
                dedup=chance.random() < 0.5,
                must_terms=["keeper"] if chance.random() < 0.2 else [],
            )
        )
        assert not answer.partial, answer.issues
        counts["searches"] += 1
        counts["shown"] += len(answer.hits)
        _check(answer.hits, searched, min_version, known)


def _check(
    hits: list[Hit],
    searched: tuple[str, ...],
    min_version: dict[str, int],
    known: dict[str, ToolDocument],
) -> None:
    versions: dict[str, set[int]] = {}
    for hit in hits:
        assert hit.container_id in searched
        for container, number, version in MARK.findall(hit.text):
            name = f"{container}-{number}"
            assert container == hit.container_id, "a foreign chunk"
            assert int(version) >= min_version[name], f"{name}: version {version} is gone"
            assert int(version) <= known[name].sent
            versions.setdefault(name, set()).add(int(version))
    assert all(len(found) == 1 for found in versions.values()), f"two versions at once: {versions}"
