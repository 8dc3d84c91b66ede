"""pytest plugin: a real Postgres for the run, a fresh migrated database for every test that asks.

Fixtures: ``database`` (a ``Database``), ``dsn`` (its DSN, for tests that want several of them),
``postgres_dsn`` (the server's DSN), ``data_root`` (a folder for a data directory),
``empty_dsn`` (a database without any table), ``update_golden``. With
``LLC_TEST_POSTGRES_DSN`` set, that server is used; its user must be allowed to create databases.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from latent_core.db.connection import Database
from tests.support.servers.shared_postgres import SharedPostgres, shared_server


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written; the test that does so fails, so that no gate passes."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def postgres_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedPostgres]:
    """The server of this run, shared by all its xdist workers."""
    # The tests' own composition root.
    given = os.environ.get("LLC_TEST_POSTGRES_DSN")  # noqa: TID251
    if given:
        yield from _given_server(given)
        return
    base = tmp_path_factory.getbasetemp()
    run = base.parent if hasattr(request.config, "workerinput") else base
    with shared_server(run / "latent-postgres") as server:
        yield server


def _given_server(dsn: str) -> Iterator[SharedPostgres]:
    server = SharedPostgres(dsn, f"latent_template_{uuid.uuid4().hex}")
    try:
        server.create_template()
        yield server
    finally:
        server.drop(server.template)


@pytest.fixture(scope="session")
def postgres_dsn(postgres_server: SharedPostgres) -> str:
    """DSN of the server of this run, on a database that holds nothing."""
    return postgres_server.dsn


@pytest.fixture
def dsn(postgres_server: SharedPostgres) -> Iterator[str]:
    """DSN of a fresh, migrated database."""
    name = f"test_{uuid.uuid4().hex}"
    yield postgres_server.clone(name)
    postgres_server.drop(name)


@pytest.fixture
def empty_dsn(postgres_server: SharedPostgres) -> Iterator[str]:
    """DSN of a fresh database without any table."""
    name = f"test_{uuid.uuid4().hex}"
    yield postgres_server.create(name)
    postgres_server.drop(name)


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    """A fresh, migrated database, opened."""
    async with await Database.open(dsn, name="test") as db:
        yield db


@pytest.fixture
def data_root() -> Iterator[Path]:
    """A folder to put a data directory in. Not below ``tmp_path``: as root Postgres runs as another
    user, who cannot pass through pytest's own folders."""
    folder = Path(tempfile.mkdtemp(prefix="latent-test-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
