"""The end-to-end tests on servers: ``LLC_TEST_STACK=servers`` and their addresses choose it, nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier
from pydantic import SecretStr

from latent_core.blobs.s3 import PREFIX, S3Address, connect
from tests.support.servers import launch as servers
from tests.support.servers.s3_server import ACCESS_KEY, SECRET_KEY

ON_SERVERS: Final = os.environ.get("LLC_TEST_STACK") == "servers"  # noqa: TID251 - the tests' composition root
TOKEN: Final = "llc_for-tests-on-servers-0123456789abcdef"
EMBEDDED_ONLY: Final = {
    "test_full_disk": "fills the disk of an embedded stack",
    "test_kill": "kills the children of an embedded stack",
    "test_crash_points": "kills `latent up`, the one process of an embedded stack",
    "test_transfer_crashes": "kills `latent up`, the one process of an embedded stack",
    "test_upgrade": "starts on an embedded data directory",
    "test_gateway_processes": "kills the children of an embedded stack",
    "test_processes_end_to_end": "looks at the processes of an embedded stack",
}
"""Modules, and why they say nothing about servers."""
BUCKET: Final = "latent"
"""The default of LLC_S3_BUCKET."""
CREATE: Final = SQL("CREATE DATABASE {name}")


def own_stores(addresses: Mapping[str, str] = os.environ) -> dict[str, str]:  # noqa: TID251 - as above
    """Settings of an installation: its own database, and the default collections and bucket of shared servers."""
    name = f"e2e_{uuid4().hex[:12]}"
    dsn = _address(addresses, servers.POSTGRES)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(CREATE.format(name=Identifier(name)))
    settings = {
        "LLC_POSTGRES_DSN": make_conninfo(dsn, dbname=name),
        "LLC_QDRANT_URL": _address(addresses, servers.QDRANT),
        "LLC_S3_ENDPOINT": _address(addresses, servers.S3),
        "LLC_S3_ACCESS_KEY": addresses.get(servers.S3_ACCESS_KEY) or ACCESS_KEY,
        "LLC_S3_SECRET_KEY": addresses.get(servers.S3_SECRET_KEY) or SECRET_KEY,
        "LLC_MCP_TOKEN": TOKEN,
    }
    key = addresses.get(servers.QDRANT_KEY)
    return settings | ({"LLC_QDRANT_API_KEY": key} if key else {})


def stored_blobs(stores: Mapping[str, str], bucket: str = BUCKET) -> int:
    """How many blobs of the installation are in a bucket."""
    with psycopg.connect(stores["LLC_POSTGRES_DSN"]) as conn:
        found = conn.execute("SELECT id FROM installation").fetchone()
    address = S3Address(
        stores["LLC_S3_ENDPOINT"],
        SecretStr(stores["LLC_S3_ACCESS_KEY"]),
        SecretStr(stores["LLC_S3_SECRET_KEY"]),
        bucket,
    )
    client, _ = connect(address)
    below = f"{found[0]}/{PREFIX}" if found else ""
    return sum(1 for _ in client.list_objects(address.bucket, prefix=below, recursive=True))


def _address(addresses: Mapping[str, str], name: str) -> str:
    value = addresses.get(name)
    if not value:
        raise RuntimeError(f"LLC_TEST_STACK=servers wants {name}: scripts/servers.py starts one")
    return value
