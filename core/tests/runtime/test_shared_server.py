"""The tests' own Postgres serves every process of a run, and ends with the last, however that ends."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.servers.shared_postgres import SharedPostgres, shared_server

HOLDER = """
import sys
from pathlib import Path
from tests.support.servers.shared_postgres import shared_server
with shared_server(Path(sys.argv[1])) as server:
    print(server.dsn, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that uses the server of ``tmp_path / "run"`` until its standard input closes."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate(timeout=20)


def dsn_of(holder: subprocess.Popen[str]) -> str:
    assert holder.stdout is not None
    return holder.stdout.readline().strip()


def answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def wait_until_it_ends(dsn: str) -> None:
    deadline = time.monotonic() + 30
    while answers(dsn):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_server_serves_all_and_outlives_the_one_that_started_it(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    dsn = dsn_of(holder)
    with shared_server(tmp_path / "run") as server:
        assert server.dsn == dsn
        holder.communicate(timeout=20)
        assert is_migrated(server)
    wait_until_it_ends(dsn)


def test_a_server_ends_when_its_user_is_killed(holder: subprocess.Popen[str]) -> None:
    dsn = dsn_of(holder)
    assert answers(dsn)
    holder.kill()
    wait_until_it_ends(dsn)


def is_migrated(server: SharedPostgres) -> bool:
    with psycopg.connect(server.clone("fresh")) as conn:
        row = conn.execute("SELECT count(*) FROM alembic_version").fetchone()
    return row == (1,)
