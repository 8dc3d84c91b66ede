"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from tests.support.harness.installation import Installation
from tests.support.harness.new_database import add_database
from tests.support.memory_folder import fast_folder
from tests.support.on_servers import EMBEDDED_ONLY, ON_SERVERS
from tests.support.servers.embedding_server import EmbeddingServer

DIMS = 64
T = TypeVar("T")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = EMBEDDED_ONLY.get(item.path.stem) if ON_SERVERS else None
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def install_root() -> Iterator[Path]:
    """A folder for data directories; not below pytest's own, which Postgres' user may not enter."""
    folder = Path(tempfile.mkdtemp(prefix="latent-e2e-", dir=fast_folder()))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedding_server() -> AsyncIterator[EmbeddingServer]:
    """A fast, deterministic embedder over HTTP."""
    async with EmbeddingServer(dims=DIMS) as server:
        yield server


@pytest.fixture(scope="session")
def shared_installation(install_root: Path) -> Iterator[Installation]:
    """One running `latent up` and its embedder, for all modules of this process that say ``SHARED_STACK``.

    Both live in a thread with a loop of its own, since each module has another one.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    @asynccontextmanager
    async def started() -> AsyncIterator[Installation]:
        async with (
            EmbeddingServer(dims=DIMS) as server,
            running(install_root, "shared", server.base_url) as one,
        ):
            yield one

    stack = started()
    yield run(stack.__aenter__())
    run(stack.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@asynccontextmanager
async def running(
    install_root: Path, name: str, embedder_url: str, *, lease: float = 5, **settings: str
) -> AsyncIterator[Installation]:
    inbox = install_root / f"inbox-{name}"
    inbox.mkdir(mode=0o755)
    one = Installation(
        install_root / name,
        {
            "LLC_EMBED_BASE_URL": embedder_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_INGEST_ROOTS": str(inbox),
            "LLC_LEASE_SECONDS": str(lease),
            "LLC_WORKER_CONCURRENCY": "4",  # a remote embedder would be given more: a queue is to be seen
            **settings,
        },
    )
    if not ON_SERVERS:
        await asyncio.to_thread(add_database, one.data_dir, install_root / "new-database")
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    install_root: Path, embedding_server: EmbeddingServer, request: pytest.FixtureRequest
) -> AsyncIterator[Installation]:
    """One running `latent up` for the tests of a module, which may set ``LEASE_SECONDS`` and ``SETTINGS``.

    A module that says ``SHARED_STACK`` gets one with others: its containers have names of their own, it asks only
    after these, and neither stops the installation nor steers its embedder.
    """
    if getattr(request.module, "SHARED_STACK", False):
        yield request.getfixturevalue("shared_installation")
        return
    name = request.module.__name__.rpartition(".")[2]
    lease = getattr(request.module, "LEASE_SECONDS", 5)
    settings = getattr(request.module, "SETTINGS", {})
    async with running(
        install_root, name, embedding_server.base_url, lease=lease, **settings
    ) as one:
        yield one


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
