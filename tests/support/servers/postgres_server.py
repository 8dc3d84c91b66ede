"""A Postgres server on 127.0.0.1 for tests: that of the wheel (18 or 16), or of any folder of programs.

    python -m tests.support.servers.postgres_server --major 16

Prints ``{"dsn": …}`` and runs until its standard input closes. Loses everything: it is not for data.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

from latent_core.runtime.account import ServerAccount, open_path, open_programs, own, server_account
from latent_core.runtime.cluster import MAJOR_VERSION, programs
from latent_core.runtime.lifeline import watch_parent

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 20.0
USER: Final = "latent"
_OLDER: Final = {16: "pginstall"}
"""Folders of the wheel beside the one we run."""
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
}
_SET_READ_ONLY: Final = SQL("ALTER DATABASE {name} SET default_transaction_read_only = {value}")
_END_SESSIONS: Final = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def wheel_programs(major: int) -> Path:
    """The programs of that version in the embedded server's wheel."""
    newest = programs()
    if major == MAJOR_VERSION:
        return newest
    return newest.parents[1] / _OLDER[major] / "bin"


def system_programs() -> Path | None:
    """The newest version that the system's packages installed; None when there is none."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: float(p.parts[-3])
    )
    return found[-1].parent if found else None


def set_read_only(dsn: str, *, on: bool, end_sessions: bool = True) -> None:
    """As a provider does when the disk is full: for new sessions, and the old ones are ended."""
    name = Identifier(str(conninfo_to_dict(dsn)["dbname"]))
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("SET default_transaction_read_only = off")
        conn.execute(_SET_READ_ONLY.format(name=name, value=SQL("on" if on else "off")))
        if end_sessions:
            conn.execute(_END_SESSIONS)


@contextmanager
def postgres_server(binaries: Path) -> Iterator[str]:
    """A fresh cluster of the server in ``binaries``, reached by TCP with a password; its DSN."""
    folder = Path(tempfile.mkdtemp(prefix="latent-pg-"))
    try:
        account = server_account(folder / "data")
        data, password = _initialised(binaries, folder, account)
        port = free_port()
        dsn = f"postgresql://{USER}:{password}@127.0.0.1:{port}/postgres"
        with _running(binaries, data, port, dsn, account):
            yield dsn
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def standby(binaries: Path, primary: str) -> Iterator[str]:
    """A hot standby of ``primary``, which follows it until it is promoted; its DSN."""
    folder = Path(tempfile.mkdtemp(prefix="latent-pg-"))
    try:
        account = server_account(folder / "data")
        folder.chmod(0o711)
        data = folder / "data"
        argv = [str(binaries / "pg_basebackup"), "-d", primary, "-D", str(data), "-R", "--no-sync"]
        subprocess.run([*argv, "--checkpoint=fast"], check=True)
        own(data, account)
        open_path(data, account)
        port = free_port()
        dsn = make_conninfo(primary, port=port)
        with _running(binaries, data, port, dsn, account):
            yield dsn
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(
    binaries: Path, data: Path, port: int, dsn: str, account: ServerAccount | None
) -> Iterator[None]:
    log = data.parent / "log"
    options = {**_SETTINGS, "port": str(port)}
    argv = [str(binaries / "postgres"), "-D", str(data)]
    argv += [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    with log.open("ab") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, cwd=data, **as_account(account))
        try:
            _await(process, dsn, log)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _initialised(binaries: Path, folder: Path, account: ServerAccount | None) -> tuple[Path, str]:
    data, password = folder / "data", secrets.token_hex(12)
    data.mkdir(0o700)
    own(data, account)
    folder.chmod(0o711)
    open_path(data, account)
    if not str(binaries).startswith("/usr"):
        open_programs(binaries.parent, account)
    given = folder / "password"
    given.write_text(password, encoding="ascii")
    given.chmod(0o644)
    argv = [str(binaries / "initdb"), "-D", str(data), f"--username={USER}", "--encoding=UTF8"]
    argv += ["--locale=C", "--auth=scram-sha-256", f"--pwfile={given}", "--no-sync"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, cwd=data, **as_account(account))
    given.unlink()
    return data, password


def as_account(account: ServerAccount | None) -> dict[str, Any]:
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await(process: subprocess.Popen[bytes], dsn: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                log_tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"Postgres did not start:\n{log_tail}") from None
            time.sleep(0.05)
        else:
            return


def _main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="a Postgres server for tests")
    parser.add_argument("--major", type=int, default=MAJOR_VERSION)
    parser.add_argument("--programs", type=Path, default=None, help="the folder of another server")
    given = parser.parse_args(arguments)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with postgres_server(given.programs or wheel_programs(given.major)) as dsn:
        watch_parent(sys.stdin.fileno(), ended.set)
        sys.stdout.write(orjson.dumps({"dsn": dsn}).decode() + "\n")
        sys.stdout.flush()
        ended.wait()


if __name__ == "__main__":
    _main(sys.argv[1:])
