"""PgBouncer (the system's package) before a Postgres server.

    python -m tests.support.servers.pgbouncer --dsn postgresql://… --mode session

Prints ``{"dsn": …}`` and runs until its standard input closes.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, get_args

import orjson
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from latent_core.runtime.account import own, server_account
from latent_core.runtime.lifeline import watch_parent
from tests.support.servers.postgres_server import as_account, free_port

START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 10.0
MISSING: Final = "not run, since pgbouncer is not installed (Debian: apt-get install pgbouncer)"
POOL_SIZE: Final = 150
CONFIG: Final = """\
[databases]
* = {server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 1000
server_tls_sslmode = prefer
logfile = {log}
"""

Mode = Literal["session", "transaction", "statement"]


def program() -> str | None:
    """The program; None if it is not installed."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def pgbouncer(dsn: str, mode: Mode, *, size: int = POOL_SIZE) -> Iterator[str]:
    """The DSN of a pooler in front of ``dsn`` for all its databases, with ``size`` connections for each."""
    installed = program()
    if installed is None:
        raise RuntimeError(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="latent-pgbouncer-"))
    try:
        account = server_account(folder)
        own(folder, account)
        given, port = conninfo_to_dict(dsn), free_port()
        server = {key: given[key] for key in ("host", "port", "user", "password") if key in given}
        config = folder / "pgbouncer.ini"
        text = " ".join(f"{key}='{value}'" for key, value in server.items())
        config.write_text(
            CONFIG.format(server=text, port=port, mode=mode, size=size, log=folder / "log"),
            encoding="utf-8",
        )
        own(config, account)
        process = subprocess.Popen([installed, "--quiet", str(config)], **as_account(account))
        try:
            reached = make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="disable")
            _await(process, reached, folder / "log")
            yield reached
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _await(process: subprocess.Popen[bytes], dsn: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
        except psycopg.OperationalError as exc:
            if process.poll() is not None or time.monotonic() > deadline:
                output = log.read_text(encoding="utf-8", errors="replace") if log.exists() else exc
                raise RuntimeError(f"pgbouncer did not start:\n{output}") from None
            time.sleep(0.05)
        else:
            return


def _main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="PgBouncer before a Postgres server")
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--mode", choices=get_args(Mode), default="session")
    given = parser.parse_args(arguments)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with pgbouncer(given.dsn, given.mode) as dsn:
        watch_parent(sys.stdin.fileno(), ended.set)
        sys.stdout.write(orjson.dumps({"dsn": dsn}).decode() + "\n")
        sys.stdout.flush()
        ended.wait()


if __name__ == "__main__":
    _main(sys.argv[1:])
