"""The one place that maps errors of psycopg to errors of this project."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from latent_core.domain.errors import (
    Invalid,
    LatentError,
    ServiceUnreachable,
    StoreFull,
    TimedOut,
    Unavailable,
)


@contextmanager
def mapped_errors() -> Iterator[None]:
    """Map psycopg's errors to ``LatentError`` with their cause. Errors that a repository must handle itself
    (violated constraints, wrong SQL) pass unchanged."""
    try:
        yield
    except psycopg.Error as exc:
        mapped = translate(exc)
        if mapped is None:
            raise
        raise mapped from exc
    except (
        UnicodeEncodeError
    ) as exc:  # raised by psycopg before it sends the statement: a lone surrogate
        raise Invalid(
            "a text contains a lone surrogate, which is not valid Unicode: remove it"
        ) from exc


def translate(exc: psycopg.Error) -> LatentError | None:
    """The ``LatentError`` for an error of psycopg, or None if the caller must handle it."""
    quotes = isinstance(exc, psycopg.DataError | psycopg.IntegrityError | psycopg.ProgrammingError)
    if isinstance(exc, errors.DiskFull) or (os.strerror(errno.ENOSPC) in str(exc) and not quotes):
        return StoreFull(
            "the disk of Postgres is full: free disk space, then retry", service="postgres"
        )
    if isinstance(exc, errors.QueryCanceled | errors.LockNotAvailable):
        return TimedOut(f"Postgres cancelled the statement: {first_line(exc)}")
    if isinstance(exc, errors.IdleInTransactionSessionTimeout):
        return TimedOut("Postgres ended the transaction because it was idle for too long")
    if isinstance(exc, PoolTimeout):
        return ServiceUnreachable("no connection to Postgres became free in time: retry")
    if isinstance(exc, PoolClosed):
        return ServiceUnreachable("the process is shutting down")
    if isinstance(exc, psycopg.DataError | errors.ProgramLimitExceeded):
        return Invalid(f"Postgres cannot store a value: {first_line(exc)}")
    if isinstance(exc, errors.TransactionRollback | errors.OutOfMemory):
        return Unavailable(f"Postgres ended the transaction: {first_line(exc)}")
    if isinstance(exc, errors.FeatureNotSupported) and "cached plan" in str(exc):
        return Unavailable("the database schema changed during the statement: retry")
    # The only InterfaceError that is not a programming error: the connection broke earlier.
    broken = isinstance(exc, psycopg.InterfaceError) and "connection is" in str(exc)
    if broken or isinstance(exc, psycopg.OperationalError):
        return unreachable()
    return None


def unreachable() -> ServiceUnreachable:
    """Without the cause, which contains sockets and hosts."""
    return ServiceUnreachable(
        "Postgres is not available: retry. The log has the cause under postgres_unreachable"
    )


def first_line(exc: psycopg.Error) -> str:
    return str(exc).strip().partition("\n")[0]
