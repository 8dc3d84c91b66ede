"""One Postgres for all processes of a test run, ended when the last of them is gone, however it went.

Every test process holds the writing end of a FIFO; the serving process (this module, run with
``python -m``) holds the reading end, and ends when nobody is left. Joining and ending take the same
file lock, so that nobody joins a server that is about to end.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from latent_core.db.migrate import migrate
from latent_core.runtime.data_directory import DataDirectory
from latent_core.runtime.postgres import EmbeddedPostgres
from tests.support import REPOSITORY
from tests.support.memory_folder import fast_folder

START_SECONDS = 90.0
TEMPLATE = "latent_template"
# Tests lose nothing when the machine does.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "200",
    "max_wal_size": "1GB",
}

CREATE_DATABASE = SQL("CREATE DATABASE {name}")
CLONE_DATABASE = SQL("CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
DROP_DATABASE = SQL("DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@dataclass(frozen=True, slots=True)
class SharedPostgres:
    """A server to test on, and the migrated database that is cloned for every test."""

    dsn: str
    template: str

    def clone(self, name: str) -> str:
        """A fresh migrated database; its DSN."""
        self._run(CLONE_DATABASE.format(name=Identifier(name), template=Identifier(self.template)))
        return make_conninfo(self.dsn, dbname=name)

    def create(self, name: str) -> str:
        """A fresh database without any table; its DSN."""
        self._run(CREATE_DATABASE.format(name=Identifier(name)))
        return make_conninfo(self.dsn, dbname=name)

    def create_template(self) -> None:
        asyncio.run(migrate(self.create(self.template)))

    def drop(self, name: str) -> None:
        self._run(DROP_DATABASE.format(name=Identifier(name)))

    def _run(self, statement: psycopg.sql.Composed) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(statement)


@contextmanager
def shared_server(folder: Path) -> Iterator[SharedPostgres]:
    """The server of the run whose processes share ``folder``; started by whoever comes first."""
    folder.mkdir(exist_ok=True)
    with _locked(folder):
        lifeline = _join(folder) or _start(folder)
        server = SharedPostgres(**json.loads(_state(folder).read_text(encoding="utf-8")))
    try:
        yield server
    finally:
        os.close(lifeline)


def _join(folder: Path) -> int | None:
    try:
        return os.open(_fifo(folder), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # there is none, or nobody reads it any more
        return None


def _start(folder: Path) -> int:
    for file in (_state(folder), _fifo(folder)):
        file.unlink(missing_ok=True)
    os.mkfifo(_fifo(folder))
    # Held for reading too until the server has opened its end: else it would see nobody.
    both_ends = os.open(_fifo(folder), os.O_RDWR)
    try:
        with (folder / "server.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.servers.shared_postgres", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                start_new_session=True,
            )
        _await_state(folder, process)
        return os.open(_fifo(folder), os.O_WRONLY)
    finally:
        os.close(both_ends)


def _await_state(folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _state(folder).exists():
        if process.poll() is not None or time.monotonic() > deadline:
            log = (folder / "server.log").read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"the Postgres of the tests did not start:\n{log[-4000:]}")
        time.sleep(0.02)
    process.returncode = 0  # it outlives us; nobody waits for it


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _state(folder: Path) -> Path:
    return folder / "server.json"


def _fifo(folder: Path) -> Path:
    return folder / "lifeline"


async def serve(folder: Path) -> None:
    """Run the server until nobody holds the FIFO."""
    lifeline = os.open(_fifo(folder), os.O_RDONLY)
    # Not below pytest's own folder: as root its permissions are reset by every new run.
    with (
        tempfile.TemporaryDirectory(
            prefix="latent-test-", dir=fast_folder(), ignore_cleanup_errors=True
        ) as place,
        DataDirectory(Path(place) / "data") as directory,
    ):
        async with EmbeddedPostgres(directory.path, overrides=SETTINGS) as postgres:
            server = SharedPostgres(make_conninfo(postgres.dsn, dbname="postgres"), TEMPLATE)
            await asyncio.to_thread(server.create_template)
            draft = folder / "server.json.new"
            draft.write_text(json.dumps(asdict(server)), encoding="utf-8")
            draft.rename(_state(folder))
            await asyncio.to_thread(_wait_until_unused, folder, lifeline)


def _wait_until_unused(folder: Path, lifeline: int) -> None:
    while True:
        os.set_blocking(lifeline, True)
        os.read(lifeline, 1)  # nobody ever writes: it returns when the last holder is gone
        with _locked(folder):
            if _nobody_holds(lifeline):
                os.close(lifeline)
                _fifo(folder).unlink(missing_ok=True)
                return


def _nobody_holds(lifeline: int) -> bool:
    os.set_blocking(lifeline, False)
    try:
        return os.read(lifeline, 1) == b""
    except BlockingIOError:  # somebody joined meanwhile
        return False


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
