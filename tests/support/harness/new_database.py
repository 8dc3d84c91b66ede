"""The database of a new installation in tests: created and migrated once in a test process, then copied.

Creating and migrating it is a third of the processor time of a first start. Tests of the start itself make an
``Installation`` on an empty folder.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from pathlib import Path
from typing import Final

from latent_core.db.migrate import migrate
from latent_core.runtime.data_directory import DataDirectory
from latent_core.runtime.postgres import EmbeddedPostgres

_ONE: Final = threading.Lock()  # installations that start at the same time need one original


def add_database(data_dir: Path, original: Path) -> None:
    """Make the data directory ``data_dir`` with a new database, copied from that of ``original``, which is made first if
    it is missing."""
    with _ONE:
        if not original.exists():
            asyncio.run(_create(original))
    with DataDirectory(data_dir) as directory:
        directory.postgres.rmdir()
        # Keeps the owner: as root, Postgres runs as another user.
        copied = ["cp", "-Rp", str(DataDirectory(original).postgres), str(directory.postgres)]
        subprocess.run(copied, check=True)


async def _create(data_dir: Path) -> None:
    with DataDirectory(data_dir) as directory:
        async with EmbeddedPostgres(directory.path, overrides={"fsync": "off"}) as postgres:
            await migrate(postgres.dsn)
