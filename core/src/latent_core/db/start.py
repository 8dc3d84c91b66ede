"""The checks of a start: wait for the server, then check its version, and that it keeps a session on one backend."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Final

import psycopg
from psycopg.rows import dict_row

from latent_core.db.errors import first_line, mapped_errors
from latent_core.db.server import CONNECT_SECONDS, PostgresServer, Session
from latent_core.domain.errors import Invalid, ServiceUnreachable

logger = logging.getLogger(__name__)

OLDEST_SERVER: Final = 160000  # DESIGN §2: Postgres 16+
WAIT_SECONDS = 60.0
"""For a server that starts at the same time, such as in compose, or that is being restarted."""
RETRY_SECONDS: Final = 1.0
POOLER_SECONDS: Final = 10.0
POOLER_ROUNDS: Final = 3

BACKEND: Final = "SELECT pg_backend_pid() AS pid"

# The server's messages are not numbered before a session exists. In another language they are waited for, too.
PERMANENT: Final = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|does not exist"
    r"|no such database|no such user|permission denied for database|does not support SSL|root certificate|certificate verify"
)


async def await_server(dsn: str) -> None:
    """Wait until the server can be used, at most ``WAIT_SECONDS``.

    Raises ``ServiceUnreachable`` with the cause when it stays away, ``Invalid`` when waiting would not help.
    """
    until = time.monotonic() + WAIT_SECONDS
    cause = None
    while True:
        try:
            await _check_version(dsn)
            await check_sessions(dsn)
        except ServiceUnreachable as error:
            before, cause = cause, _cause(error)
        else:
            if cause is not None:
                logger.info("postgres_reachable")
            return
        if PERMANENT.search(cause):
            raise Invalid(f"Postgres refuses the connection ({cause}): check LLC_POSTGRES_DSN")
        if time.monotonic() >= until:
            raise ServiceUnreachable(
                f"Postgres did not become available within {WAIT_SECONDS:g} s ({cause}): start it, or check "
                "LLC_POSTGRES_DSN"
            )
        if before is None:
            logger.warning("waiting_for_postgres", extra={"cause": cause, "seconds": WAIT_SECONDS})
        await asyncio.sleep(RETRY_SECONDS)


def _cause(error: ServiceUnreachable) -> str:
    """For the operator, who may see the host."""
    cause = error.__cause__
    return first_line(cause) if isinstance(cause, psycopg.Error) else error.message


async def check_server(dsn: str) -> None:
    """``Unavailable`` when the server cannot be reached, ``Invalid`` when it is too old. Logs the cause."""
    with PostgresServer(dsn).noting():
        await _check_version(dsn)


async def _check_version(dsn: str) -> None:
    async with await _connect(dsn) as conn:
        version = conn.info.server_version
    if version < OLDEST_SERVER:
        raise Invalid(f"Postgres {version // 10000} is too old: use version 16 or newer")


async def check_sessions(dsn: str) -> None:
    """``Invalid`` when a pooler gives a session another backend for every transaction.

    Two connections tell: with a backend each, both always have their own. Without, the second one uses the backend
    that the first one has just left, or keeps it from the first one's next statement.
    """
    try:
        async with asyncio.timeout(POOLER_SECONDS):
            async with await _connect(dsn) as one, await _connect(dsn) as other:
                shared = await _share_backends(one, other)
    except TimeoutError as exc:
        raise ServiceUnreachable(
            f"two connections got no answer within {POOLER_SECONDS:g} s: the server hangs, or a pooler allows fewer"
        ) from exc
    if shared:
        raise Invalid(POOLED)


POOLED: Final = (
    "LLC_POSTGRES_DSN leads to a transaction pooler (such as PgBouncer with pool_mode=transaction, Supavisor, or "
    "pgcat): it gives a connection another session of Postgres for every transaction, and LISTEN, advisory locks, "
    "prepared statements and SET need one that stays. Use the address of Postgres itself, or of the pooler's session mode"
)


async def _share_backends(one: Session, other: Session) -> bool:
    with mapped_errors():
        mine = await _backend(one)
        if (
            await _backend(other) == mine
        ):  # also with statement pooling, which knows no transactions
            return True
        for _ in range(POOLER_ROUNDS):
            async with other.transaction():
                if await _backend(other) == mine or await _backend(one) != mine:
                    return True
    return False


async def _backend(conn: Session) -> int:
    row = await (await conn.execute(BACKEND, prepare=False)).fetchone()
    return int(row["pid"]) if row is not None else 0


async def _connect(dsn: str) -> Session:
    try:
        with mapped_errors():
            return await Session.connect(
                dsn,
                row_factory=dict_row,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                application_name="latent start",
            )
    except psycopg.ProgrammingError as exc:
        raise Invalid(f"the Postgres DSN (LLC_POSTGRES_DSN) is invalid: {exc}") from exc
