"""What an installation from before the initial revision left is refused, and nothing in it changes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import psycopg
import pytest

from latent_core.db.migrate import current_revision, migrate, pending
from latent_core.domain.errors import Conflict
from latent_core.runtime.data_directory import DataDirectory
from latent_core.settings import Settings
from latent_core.stack import Stack

LATENT = Path(sys.executable).parent / "latent"
WAY_OUT = "latent export CONTAINER --to FILE.*latent import FILE"
FOLDED = ("0001", "0007", "0018")


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A data directory as older versions left it: with a database, without the format file."""
    folder = tmp_path / "older"
    (folder / "postgres").mkdir(parents=True)
    (folder / "postgres" / "PG_VERSION").write_text("18\n")
    (folder / "token").write_text("llc_secret\n")
    return folder


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path with its mode and time of change."""
    return {
        str(path): (path.stat().st_mode, path.stat().st_mtime_ns)
        for path in (folder, *folder.rglob("*"))
    }


def put_back(dsn: str, revision: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("UPDATE alembic_version SET version_num = %s", (revision,))


@pytest.mark.parametrize("revision", FOLDED)
async def test_a_database_of_a_folded_revision_is_refused_with_the_way_out(
    dsn: str, revision: str
) -> None:
    put_back(dsn, revision)
    for look in (migrate, pending, current_revision):
        with pytest.raises(Conflict, match=WAY_OUT):
            await look(dsn)
    with psycopg.connect(dsn) as conn:
        assert conn.execute("SELECT version_num FROM alembic_version").fetchall() == [(revision,)]


async def test_a_process_on_servers_refuses_an_older_database_before_it_makes_a_folder(
    dsn: str, tmp_path: Path
) -> None:
    put_back(dsn, "0018")
    settings = Settings(
        data_dir=tmp_path / "work",
        postgres_dsn=dsn,
        qdrant_url="http://127.0.0.1:9",
        s3_endpoint="http://127.0.0.1:9",
        s3_access_key="key",
        s3_secret_key="secret",
    )
    with pytest.raises(Conflict, match=WAY_OUT):
        async with Stack.open(settings, name="gateway"):
            raise AssertionError("it was opened")
    assert not (tmp_path / "work").exists()


def test_an_older_data_directory_is_refused_and_stays_as_it_is(older: Path) -> None:
    before = tree(older)
    with pytest.raises(Conflict, match=WAY_OUT):
        DataDirectory(older).acquire()
    assert tree(older) == before


@pytest.mark.parametrize("command", ["up", "migrate"])
async def test_a_command_that_starts_the_database_refuses_an_older_data_directory(
    older: Path, command: str
) -> None:
    before = tree(older)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LLC_", "MCP_"))}  # noqa: TID251
    process = await asyncio.create_subprocess_exec(
        str(LATENT),
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=kept | {"LLC_DATA_DIR": str(older), "LLC_PORT": "0"},
        cwd=older.parent,
    )
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    assert process.returncode not in (0, None)
    assert "latent export CONTAINER --to FILE" in err.decode()
    assert tree(older) == before


def test_a_data_directory_that_this_version_made_is_opened_again(tmp_path: Path) -> None:
    with DataDirectory(tmp_path / "data") as directory:
        (directory.postgres / "PG_VERSION").write_text("18\n")
    with DataDirectory(tmp_path / "data") as directory:
        assert directory.token()
