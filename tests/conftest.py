"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from tests.support.harness.installation import Installation
from tests.support.on_servers import EMBEDDED_ONLY, ON_SERVERS
from tests.support.servers.embedding_server import EmbeddingServer

DIMS = 64


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = EMBEDDED_ONLY.get(item.path.stem) if ON_SERVERS else None
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def install_root() -> Iterator[Path]:
    """A folder for data directories; not below pytest's own, which Postgres' user may not enter."""
    folder = Path(tempfile.mkdtemp(prefix="latent-e2e-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedding_server() -> AsyncIterator[EmbeddingServer]:
    """A fast, deterministic embedder over HTTP."""
    async with EmbeddingServer(dims=DIMS) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    install_root: Path, embedding_server: EmbeddingServer, request: pytest.FixtureRequest
) -> AsyncIterator[Installation]:
    """One running `latent up` for the tests of a module, which may set ``LEASE_SECONDS`` and ``SETTINGS``."""
    inbox = install_root / f"inbox-{request.module.__name__.rpartition('.')[2]}"
    inbox.mkdir(mode=0o755)
    one = Installation(
        install_root / request.module.__name__.rpartition(".")[2],
        {
            "LLC_EMBED_BASE_URL": embedding_server.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_INGEST_ROOTS": str(inbox),
            "LLC_LEASE_SECONDS": str(getattr(request.module, "LEASE_SECONDS", 5)),
            "LLC_WORKER_CONCURRENCY": "4",  # a remote embedder would be given more: a queue is to be seen
            **getattr(request.module, "SETTINGS", {}),
        },
    )
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def client(installation: Installation) -> AsyncIterator[AsyncClient]:
    async with installation.client() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def http(installation: Installation) -> AsyncIterator[httpx.AsyncClient]:
    """Plain HTTP with the owner's token, for what the client would not send."""
    headers = {"Authorization": f"Bearer {installation.token}"}
    async with httpx.AsyncClient(
        base_url=installation.url, headers=headers, trust_env=False, timeout=30
    ) as opened:
        yield opened
