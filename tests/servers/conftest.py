"""Servers that the modules of this folder start, and a gateway with a worker on them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from latent_client import AsyncClient
from tests.support.harness.installation import Installation
from tests.support.on_servers import own_stores
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.launch import ADDRESSES, all_started


@pytest.fixture(scope="module")
def addresses() -> Iterator[Mapping[str, str]]:
    """Given ones, too: `make test-servers` has started them."""
    given = {name: os.environ[name] for name in ADDRESSES if name in os.environ}  # noqa: TID251
    with all_started(["--major", "16"]) as started:
        yield given | started


@pytest.fixture(scope="module")
def settings(embedding_server: EmbeddingServer) -> dict[str, str]:
    return {
        "LLC_EMBED_BASE_URL": embedding_server.base_url,
        "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        "LLC_EMBED_PRICE_PER_MILLION": "2",
        "LLC_LEASE_SECONDS": "2",
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def split(
    install_root: Path, addresses: Mapping[str, str], settings: dict[str, str]
) -> AsyncIterator[Installation]:
    one = Installation(install_root / "split", settings, stores=own_stores(addresses))
    await one.start()
    yield one
    assert await one.stop() == 0


@pytest_asyncio.fixture(loop_scope="module", name="client")
async def client_of_split(split: Installation) -> AsyncIterator[AsyncClient]:
    async with split.client() as opened:
        yield opened
