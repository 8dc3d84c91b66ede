"""Which revision the schema is at, without Alembic: loading it takes a tenth of a start, and most starts migrate nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import psycopg

from latent_core.db.errors import mapped_errors
from latent_core.db.server import CONNECT_SECONDS
from latent_core.db.start import check_server
from latent_core.domain.errors import Unavailable

REVISION: Final = "SELECT version_num FROM alembic_version"


async def is_newest(dsn: str) -> bool:
    """Whether the database is at this release's newest revision.

    Raises ``Unavailable`` when the server cannot be reached, ``Invalid`` when it is too old.
    """
    await check_server(dsn)
    return await asyncio.to_thread(_is_newest, dsn)


def migrations_folder() -> Path:
    """Inside the package when installed as a wheel, at the root of the repository in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "migrations", package.parents[2] / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise Unavailable("the migrations folder is missing: the installation is incomplete")


def _is_newest(dsn: str) -> bool:
    # Files are named after their revision, and their numbers ascend.
    newest = max(path.stem for path in (migrations_folder() / "versions").glob("*.py"))
    with mapped_errors(), psycopg.connect(dsn, connect_timeout=CONNECT_SECONDS) as conn:
        try:
            return conn.execute(REVISION).fetchall() == [(newest,)]
        except psycopg.errors.UndefinedTable:
            return False
