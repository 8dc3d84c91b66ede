"""Real servers that a run of the tests was given the addresses of (``LLC_TEST_…``).

What is not given is skipped, and the summary of the run says which suite that was; what is given and
cannot be reached fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final
from uuid import uuid4

import pytest
from pydantic import SecretStr

from latent_core.blobs.s3 import S3Address
from latent_core.vectors.qdrant.connection import QdrantAddress
from tests.support import REPOSITORY
from tests.support.servers.s3_server import ACCESS_KEY, SECRET_KEY

POSTGRES: Final = "LLC_TEST_POSTGRES_DSN"
QDRANT: Final = "LLC_TEST_QDRANT_URL"
QDRANT_KEY: Final = "LLC_TEST_QDRANT_API_KEY"
S3: Final = "LLC_TEST_S3_ENDPOINT"
S3_ACCESS_KEY: Final = "LLC_TEST_S3_ACCESS_KEY"
S3_SECRET_KEY: Final = "LLC_TEST_S3_SECRET_KEY"
ADDRESSES: Final = (POSTGRES, QDRANT, QDRANT_KEY, S3, S3_ACCESS_KEY, S3_SECRET_KEY)
STOP_SECONDS: Final = 60.0


def given(name: str) -> str | None:
    """The tests' own composition root reads the environment here."""
    return os.environ.get(name) or None  # noqa: TID251 - as said


def required_setting(name: str, suite: str) -> str:
    """The address, or the test is skipped with the name of its suite."""
    value = given(name)
    if value is None:
        pytest.skip(f"{suite}: not run, since {name} is not set")
    return value


def qdrant_address(suite: str) -> QdrantAddress:
    """A place of this run's own on the given Qdrant server."""
    key = given(QDRANT_KEY)
    return QdrantAddress(
        required_setting(QDRANT, suite), SecretStr(key) if key else None, f"t{uuid4().hex[:8]}_"
    )


def s3_address(suite: str) -> S3Address:
    """A bucket of this test's own on the given S3 server."""
    return S3Address(
        required_setting(S3, suite),
        SecretStr(given(S3_ACCESS_KEY) or ACCESS_KEY),
        SecretStr(given(S3_SECRET_KEY) or SECRET_KEY),
        f"latent-test-{uuid4().hex[:12]}",
    )


@contextmanager
def started(module: str, *arguments: str) -> Iterator[dict[str, str]]:
    """A test server (a module beside this one) as a process that ends with us; what it told of itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.support.servers.{module}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        start_new_session=True,  # Ctrl-C is for who uses it: it ends when we let go of it
    )
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("both were asked for")
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{module} did not start; it says why above")
        yield json.loads(line)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(STOP_SECONDS)


@contextmanager
def all_started(postgres: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """The three servers, but for those whose address is given; ``LLC_TEST_…`` of those that were started."""
    found: dict[str, str] = {}
    with ExitStack() as running:
        if given(POSTGRES) is None:
            found[POSTGRES] = running.enter_context(started("postgres_server", *postgres))["dsn"]
        if given(S3) is None:
            found[S3] = running.enter_context(started("s3_server"))["endpoint"]
            found |= {S3_ACCESS_KEY: ACCESS_KEY, S3_SECRET_KEY: SECRET_KEY}
        if given(QDRANT) is None:
            found[QDRANT] = running.enter_context(started("qdrant_server"))["url"]
        yield found
