"""A Qdrant cluster by the addresses of its nodes (``LLC_TEST_QDRANT_URL``, separated by commas), one of them unreachable."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from latent_core.domain.job import JobState
from tests.http.test_http_surface import add, ingest, manifest, search, settled
from tests.support.harness.installation import Installation
from tests.support.on_servers import own_stores
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.faulty_link import FaultyLink, LinkState
from tests.support.servers.launch import ADDRESSES, QDRANT, all_started, given

NODES: Final = tuple(filter(None, (given(QDRANT) or "").split(",")))

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(len(NODES) < 2, reason=f"{QDRANT} does not name several nodes of a cluster"),
]

DOCUMENTS: Final = 5
TEXT: Final = "Document number {n} describes the lighthouse keeper's log of night {n}."


@pytest.fixture(scope="module")
def addresses() -> Iterator[Mapping[str, str]]:
    known = {name: os.environ[name] for name in ADDRESSES if name in os.environ}  # noqa: TID251 - the tests' own
    with all_started(["--major", "16"]) as started:
        yield known | started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def links() -> AsyncIterator[list[FaultyLink]]:
    async with AsyncExitStack() as running:
        targets = [urlsplit(node.strip()) for node in NODES]
        yield [
            await running.enter_async_context(FaultyLink(one.hostname or "", one.port or 6333))
            for one in targets
        ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    install_root: Path,
    addresses: Mapping[str, str],
    links: list[FaultyLink],
    embedding_server: EmbeddingServer,
) -> AsyncIterator[Installation]:
    stores = own_stores(addresses)
    stores["LLC_QDRANT_URL"] = ",".join(f"http://127.0.0.1:{link.port}" for link in links)
    settings = {
        "LLC_EMBED_BASE_URL": embedding_server.base_url,
        "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
    }
    one = Installation(install_root / "cluster", settings, stores=stores)
    await one.start()
    yield one
    assert await one.stop() == 0


async def test_the_death_of_a_node_that_requests_go_to_stops_neither_searches_nor_ingests(
    cluster: Installation, links: list[FaultyLink]
) -> None:
    async with cluster.client() as client:
        vectors = {"shards": len(NODES), "replicas": 2}
        await client.create(manifest("nodes", vectors=vectors))
        for n in range(DOCUMENTS):
            await ingest(client, "nodes", f"{n}.md", TEXT.format(n=n).encode())
        await settled(client, "nodes")
        for link in links:
            link.become(LinkState.KILLED)
            first = await add(client, "nodes", f"{link.port}.md", TEXT.format(n=link.port).encode())
            answers = await asyncio.gather(
                *(search(client, "nodes", TEXT.format(n=n), top_k=3) for n in range(DOCUMENTS))
            )
            assert not any(answer.partial for answer in answers)
            (job,) = await client.wait([first.job_id], timeout_seconds=60)
            assert job.state is JobState.DONE
            link.become(LinkState.OPEN)
        report = await client.doctor("nodes")
        assert report.clean, report
