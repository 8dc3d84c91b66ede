"""The embedded Postgres lives as long as its owner, keeps what it was told, and takes over after a crash."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types
import psycopg
import pytest

from latent_core.db.connection import Database
from latent_core.domain.errors import Conflict, Invalid, Unavailable
from latent_core.runtime.cluster import SOCKET_PATH_LIMIT, Cluster
from latent_core.runtime.data_directory import DataDirectory
from latent_core.runtime.guarded_process import GUARDIAN, end_leftovers, find_leftovers
from latent_core.runtime.postgres import EmbeddedPostgres

OWNER = """
import asyncio, sys
from pathlib import Path
from latent_core.runtime.data_directory import DataDirectory
from latent_core.runtime.postgres import EmbeddedPostgres

async def main():
    with DataDirectory(Path(sys.argv[1])) as directory:
        async with EmbeddedPostgres(directory.path) as postgres:
            print(postgres.pid, postgres.guardian_pid, flush=True)
            await asyncio.Event().wait()

asyncio.run(main())
"""
SHOW = """
SELECT current_setting('server_encoding') AS encoding, current_setting('fsync') AS fsync,
       current_setting('data_checksums') AS checksums, current_setting('listen_addresses') AS listens,
       current_setting('timezone') AS timezone, datlocprovider::text AS provider, datlocale AS locale
FROM pg_database WHERE datname = current_database()
"""
BUSY = "DO $$ BEGIN LOOP END LOOP; END $$"
AS_ROOT = os.geteuid() == 0
# Killed processes lose nothing by it, only machines do.
FAST = {"fsync": "off"}


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """A data directory with a stopped cluster: copied for each test, which saves a second each."""
    place = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    asyncio.run(_make(place / "data"))
    yield place / "data"
    shutil.rmtree(place)


async def _make(path: Path) -> None:
    with DataDirectory(path) as directory:
        async with EmbeddedPostgres(directory.path, overrides=FAST) as postgres:
            await remember(postgres, "before")


@pytest.fixture(autouse=True)
def no_socket_folder_stays(data_root: Path) -> Iterator[None]:
    """A killed owner cannot remove it, and no later start does."""
    yield
    shutil.rmtree(Cluster(data_root / "data").socket_folder, ignore_errors=True)


@pytest.fixture
def directory(made: Path, data_root: Path) -> Iterator[DataDirectory]:
    """A data directory of our own, acquired, with a stopped cluster in it."""
    shutil.copytree(made, data_root / "data", symlinks=True)
    with DataDirectory(data_root / "data") as held:
        yield held


@pytest.fixture
async def postgres(directory: DataDirectory) -> AsyncIterator[EmbeddedPostgres]:
    async with EmbeddedPostgres(directory.path, overrides=FAST) as server:
        yield server


async def remember(postgres: EmbeddedPostgres, word: str) -> None:
    async with opened(postgres) as db, db.transaction() as conn:
        await conn.execute("CREATE TABLE IF NOT EXISTS words (word text)")
        await conn.execute("INSERT INTO words VALUES (%(word)s)", {"word": word})


async def remembered(db: Database) -> list[str]:
    async with db.transaction() as conn:
        rows = await (await conn.execute("SELECT word FROM words")).fetchall()
        return [row["word"] for row in rows]


async def remembered_at_last(db: Database) -> list[str]:
    """For a server that is just recovering: it drops every connection once."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await remembered(db)
            except Unavailable:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def opened(postgres: EmbeddedPostgres) -> AsyncIterator[Database]:
    async with await Database.open(postgres.dsn) as db:
        yield db


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


def pid_of(postgres: EmbeddedPostgres) -> int:
    assert postgres.pid is not None
    return postgres.pid


def guardian_of(postgres: EmbeddedPostgres) -> int:
    assert postgres.guardian_pid is not None
    return postgres.guardian_pid


def gone(process: psutil.Process) -> bool:
    """Ended; whether its new parent has reaped it is not our affair."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def running_in(directory: DataDirectory) -> list[int]:
    return [process.pid for process in find_leftovers([directory.postgres])]


@asynccontextmanager
async def owner(path: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, int, int]]:
    """Another process that owns the directory and runs its Postgres: process, server, guardian."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            server, guardian = map(int, (await process.stdout.readline()).split())
        yield process, server, guardian
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_first_start_makes_a_cluster_that_is_safe_and_private(data_root: Path) -> None:
    with DataDirectory(data_root / "data") as directory:
        async with EmbeddedPostgres(directory.path) as postgres, opened(postgres) as db:
            async with db.transaction() as conn:
                assert await (await conn.execute(SHOW)).fetchone() == {
                    "encoding": "UTF8",
                    "fsync": "on",
                    "checksums": "on",
                    "listens": "",
                    "timezone": "UTC",
                    "provider": "b",
                    "locale": "C.UTF-8",
                }
            socket_folder = Cluster(directory.path).socket_folder
            assert socket_folder.stat().st_mode & 0o077 == 0
            assert psutil.Process(pid_of(postgres)).net_connections("inet") == []
        assert not socket_folder.exists()
        assert running_in(directory) == []


@pytest.mark.skipif(not AS_ROOT, reason="only root runs it as another user")
async def test_as_root_another_user_runs_it_and_owns_its_folder_alone(
    postgres: EmbeddedPostgres, directory: DataDirectory
) -> None:
    uid = psutil.Process(pid_of(postgres)).uids().effective
    assert uid != 0
    assert psutil.Process(pid_of(postgres)).gids().effective != 0
    assert all(path.lstat().st_uid == uid for path in directory.postgres.rglob("*"))
    assert {path.stat().st_uid for path in (directory.blobs, directory.log, directory.vectors)} == {
        0
    }
    assert directory.postgres.stat().st_mode & 0o077 == 0


async def test_data_survive_a_stop_and_a_start(
    postgres: EmbeddedPostgres, directory: DataDirectory
) -> None:
    await remember(postgres, "after")
    await postgres.stop()
    assert postgres.pid is None
    await postgres.start()
    async with opened(postgres) as db:
        assert await remembered(db) == ["before", "after"]


async def test_starting_twice_and_stopping_twice_changes_nothing(
    postgres: EmbeddedPostgres, directory: DataDirectory
) -> None:
    pid = pid_of(postgres)
    await postgres.start()
    assert postgres.pid == pid
    await postgres.stop()
    await postgres.stop()
    assert running_in(directory) == []


async def test_a_killed_server_is_started_again_and_the_next_call_works(
    postgres: EmbeddedPostgres,
) -> None:
    killed = pid_of(postgres)
    async with opened(postgres) as db:
        await db.ping()
        await remember(postgres, "just committed")
        os.kill(killed, signal.SIGKILL)
        await until(lambda: postgres.restarts == 1)
        assert await remembered(db) == ["before", "just committed"]
    assert pid_of(postgres) != killed


async def test_a_backend_that_outlives_its_killed_server_is_ended(
    postgres: EmbeddedPostgres,
) -> None:
    async with opened(postgres) as db, db.dedicated(name="busy") as conn:
        # It never looks up from its loop, and holds the shared memory of the old server.
        backend = psutil.Process(conn.info.backend_pid)
        busy = asyncio.create_task(conn.execute(BUSY))
        await until(lambda: backend.cpu_times().user > 0.1)
        os.kill(pid_of(postgres), signal.SIGKILL)
        await until(lambda: postgres.restarts == 1)
        assert gone(backend)
        with pytest.raises(psycopg.OperationalError):
            await busy
        assert await remembered(db) == ["before"]


async def test_a_killed_backend_costs_its_connection_and_no_restart(
    postgres: EmbeddedPostgres,
) -> None:
    async def die(db: Database) -> None:
        async with db.transaction() as conn:
            os.kill(conn.info.backend_pid, signal.SIGKILL)
            await conn.execute("SELECT pg_sleep(30)")

    pid = pid_of(postgres)
    async with opened(postgres) as db:
        with pytest.raises(Unavailable):
            await die(db)
        assert await remembered_at_last(db) == ["before"]
    assert (postgres.pid, postgres.restarts) == (pid, 0)


async def test_a_killed_guardian_ends_its_server_and_both_are_started_again(
    postgres: EmbeddedPostgres, directory: DataDirectory
) -> None:
    killed, server = guardian_of(postgres), psutil.Process(pid_of(postgres))
    os.kill(killed, signal.SIGKILL)
    await until(lambda: postgres.restarts == 1)
    assert guardian_of(postgres) != killed
    assert gone(server)
    async with opened(postgres) as db:
        assert await remembered(db) == ["before"]


async def test_a_killed_owner_takes_its_server_with_it(made: Path, data_root: Path) -> None:
    directory = DataDirectory(data_root / "data")
    shutil.copytree(made, directory.path)
    async with owner(directory.path) as (process, server, guardian):
        assert {server, guardian} <= set(running_in(directory))
        process.kill()
        await until(lambda: running_in(directory) == [])
        assert not Cluster(directory.path).socket_folder.exists()


async def test_an_owner_that_ends_properly_stops_its_server(made: Path, data_root: Path) -> None:
    directory = DataDirectory(data_root / "data")
    shutil.copytree(made, directory.path)
    async with owner(directory.path) as (process, _, _):
        process.send_signal(signal.SIGINT)  # as Ctrl-C does
        await asyncio.wait_for(process.wait(), 30)
        assert running_in(directory) == []
    assert "database system is shut down" in (directory.log / "postgres.log").read_text()


async def test_a_start_ends_what_a_killed_owner_and_guardian_left(
    made: Path, data_root: Path
) -> None:
    directory = DataDirectory(data_root / "data")
    shutil.copytree(made, directory.path)
    async with owner(directory.path) as (process, server, guardian):
        os.kill(server, signal.SIGSTOP)  # it does not hear that its guardian dies
        os.kill(guardian, signal.SIGKILL)
        process.kill()
        await process.wait()
        old = psutil.Process(server)
        os.kill(server, signal.SIGCONT)
        with directory:
            async with EmbeddedPostgres(directory.path) as postgres, opened(postgres) as db:
                assert await remembered(db) == ["before"]
                assert pid_of(postgres) != server
                assert gone(old)


async def test_a_left_server_that_hears_nothing_is_ended_by_force(
    postgres: EmbeddedPostgres, directory: DataDirectory
) -> None:
    server = psutil.Process(pid_of(postgres))
    server.suspend()
    ended = await asyncio.to_thread(end_leftovers, [directory.postgres], 0.1)
    assert {server.pid, guardian_of(postgres)} & set(ended)
    assert gone(server)
    await until(lambda: postgres.restarts >= 1)
    async with opened(postgres) as db:
        assert await remembered(db) == ["before"]


async def test_an_owner_killed_while_it_makes_the_cluster_leaves_nothing_that_is_used(
    data_root: Path,
) -> None:
    directory = DataDirectory(data_root / "data")
    cluster = Cluster(directory.path)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, str(directory.path))
    await until(lambda: (cluster.draft / "PG_VERSION").exists())
    process.kill()
    await process.wait()
    with directory:
        assert not cluster.exists()
        async with EmbeddedPostgres(directory.path) as postgres, opened(postgres) as db:
            await db.ping()
        assert not cluster.draft.exists()


async def test_an_innocent_process_with_a_recycled_pid_is_not_touched(
    directory: DataDirectory,
) -> None:
    innocent = await asyncio.create_subprocess_exec("sleep", "300", cwd=directory.postgres)
    try:
        stale = f"{innocent.pid}\n{directory.postgres}\n1700000000\n5432\n/tmp\n\n  1 2\nready   \n"
        (directory.postgres / "postmaster.pid").write_text(stale)
        async with EmbeddedPostgres(directory.path) as postgres:
            assert pid_of(postgres) != innocent.pid
        assert innocent.returncode is None
    finally:
        innocent.kill()
        await innocent.wait()


@pytest.mark.parametrize("content", ["", "not a pid at all\n\n", "-17\n"])
async def test_a_corrupt_pid_file_does_not_matter(directory: DataDirectory, content: str) -> None:
    (directory.postgres / "postmaster.pid").write_text(content)
    async with EmbeddedPostgres(directory.path) as postgres, opened(postgres) as db:
        assert await remembered(db) == ["before"]


async def test_a_folder_that_another_process_owns_is_refused(made: Path, data_root: Path) -> None:
    shutil.copytree(made, data_root / "data")
    async with owner(data_root / "data") as (process, server, _):
        with pytest.raises(Conflict, match=f"process {process.pid}") as caught:
            await EmbeddedPostgres(data_root / "data").start()
        assert caught.value.details == {"pid": process.pid}
        assert psutil.pid_exists(server)


async def test_a_cluster_of_another_release_is_refused(directory: DataDirectory) -> None:
    (directory.postgres / "PG_VERSION").write_text("16\n")
    with pytest.raises(Conflict, match="written by Postgres 16"):
        await EmbeddedPostgres(directory.path).start()


async def test_a_damaged_cluster_is_refused_and_not_made_anew(directory: DataDirectory) -> None:
    (directory.postgres / "PG_VERSION").unlink()
    with pytest.raises(Conflict, match="damaged"):
        await EmbeddedPostgres(directory.path).start()
    assert (directory.postgres / "base").is_dir()


async def test_a_cluster_that_vanishes_is_waited_for_and_not_made_anew(
    postgres: EmbeddedPostgres, directory: DataDirectory
) -> None:
    moved = directory.path / "away"
    directory.postgres.rename(moved)
    os.kill(pid_of(postgres), signal.SIGKILL)
    await until(lambda: postgres.pid is None)
    moved.rename(directory.postgres)
    await until(lambda: postgres.restarts == 1)
    async with opened(postgres) as db:
        assert await remembered(db) == ["before"]


async def test_a_server_that_does_not_start_tells_why(directory: DataDirectory) -> None:
    postgres = EmbeddedPostgres(directory.path, overrides={"shared_buffers": "nonsense"})
    with pytest.raises(Unavailable, match=r"shared_buffers.*nonsense.*log: "):
        await postgres.start()
    assert running_in(directory) == []
    assert not Cluster(directory.path).socket_folder.exists()


async def test_ctrl_c_in_the_terminal_does_not_reach_it(postgres: EmbeddedPostgres) -> None:
    sessions = {os.getsid(pid_of(postgres)), os.getsid(guardian_of(postgres))}
    assert os.getsid(0) not in sessions


async def test_a_socket_path_that_is_too_long_is_refused(directory: DataDirectory) -> None:
    long = directory.tmp / ("x" * SOCKET_PATH_LIMIT)
    long.mkdir()
    with pytest.raises(Invalid, match=f"longer than {SOCKET_PATH_LIMIT} bytes.*TMPDIR"):
        await EmbeddedPostgres(directory.path, socket_root=long).start()


@pytest.mark.skipif(not AS_ROOT, reason="only root can make what belongs to another")
async def test_a_socket_folder_that_another_user_put_there_is_refused(
    directory: DataDirectory,
) -> None:
    folder = Cluster(directory.path).socket_folder
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    with pytest.raises(Conflict, match="belongs to another user"):
        await EmbeddedPostgres(directory.path).start()
    folder.rmdir()


def guard(
    folder: Path, *argv: str, log_bytes: int = 1000, text: str = ""
) -> subprocess.Popen[bytes]:
    """A guardian over any command; its log is ``folder/log``."""
    options = [f"cwd={folder}", f"log={folder / 'log'}", f"log_bytes={log_bytes}", "grace=0.3"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", GUARDIAN, *options, f"text={text}", "--", *argv],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )


def let_go(guardian: subprocess.Popen[bytes]) -> int:
    assert guardian.stdin is not None
    guardian.stdin.close()
    return guardian.wait(30)


def test_a_guardian_passes_on_input_output_and_status(tmp_path: Path) -> None:
    guardian = guard(tmp_path, "/bin/sh", "-c", "cat; pwd; exit 7", text="hello\n")
    assert guardian.wait(30) == 7
    let_go(guardian)
    assert (tmp_path / "log").read_text() == f"hello\n{tmp_path}\n"


def test_a_guardian_asks_its_command_to_end_when_the_owner_lets_go(tmp_path: Path) -> None:
    guardian = guard(tmp_path, "/bin/sleep", "300")
    assert let_go(guardian) == 128 + signal.SIGINT


async def test_a_guardian_ends_a_command_that_does_not_listen(tmp_path: Path) -> None:
    script = "trap '' INT; echo deaf; while :; do sleep 0.01; done"
    guardian = guard(tmp_path, "/bin/sh", "-c", script)
    await until(lambda: "deaf" in (tmp_path / "log").read_text())
    assert let_go(guardian) == 128 + signal.SIGQUIT


def test_a_guardian_says_what_it_cannot_run(tmp_path: Path) -> None:
    guardian = guard(tmp_path, str(tmp_path / "nothing"))
    assert guardian.wait(30) != 0
    let_go(guardian)
    assert "FATAL: cannot run" in (tmp_path / "log").read_text()


def test_a_guardian_keeps_the_log_and_one_older_within_bounds(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x" * 5000 + "newest\n")
    guardian = guard(tmp_path, "/bin/sh", "-c", "echo fresh", log_bytes=1000)
    assert guardian.wait(30) == 0
    let_go(guardian)
    assert (tmp_path / "log").read_text() == "fresh\n"
    older = (tmp_path / "log.1").read_text()
    assert len(older) == 1000
    assert older.endswith("newest\n")
