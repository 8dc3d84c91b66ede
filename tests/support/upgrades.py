"""An installation of an earlier release: how it is filled, kept in a file, and put onto a disk again.

    data/           of its data directory: vectors, blobs, manifests, format
    database.sql    the dump of its database
    facts.json      what it answered

The file has no Postgres folder, since that is large: the dump is loaded into a new one.
"""

from __future__ import annotations

import asyncio
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Final

import orjson
import psycopg
from pydantic import BaseModel, ConfigDict

from latent_core.runtime.data_directory import DataDirectory
from latent_core.runtime.postgres import EmbeddedPostgres
from tests.support import REPOSITORY
from tests.support.harness.throwaway import TemporaryInstallation

FILE: Final = REPOSITORY / "tests" / "data" / "installation_0.1.tar.xz"
"""Of the last commit of version 0.1 with the first schema; written by ``make upgrade-trial FIXTURE=…``."""
CONTAINER: Final = "notes"
TEXTS: Final = {
    "lamp.md": "# Oil\n\nThe lamp burns colza oil.\n\n# Wick\n\nThe keeper on watch trims the wick at dusk.\n",
    "rotation.py": 'LAMP_SECONDS = 90\n\n\ndef turn(seconds):\n    """Turn the lamp."""\n    return 4 * seconds\n',
    "keepers.yaml": "keepers:\n  watch: four hours\n  names: [Ada, Bo]\n",
}
MANIFEST: Final = f"""
id: {CONTAINER}
name: Notes
acl: {{roles: {{owner: ["local:you"], reader: ["agent:guide"]}}}}
"""
QUERIES: Final = ("which oil does the lamp burn", "LAMP_SECONDS", '"four hours"')
KEPT: Final = ("vectors", "blobs", "manifests", "format")
OF_A_PROCESS: Final = ("engine.busy", "engine.json", "engine.lock")
COMMAND_SECONDS: Final = 120.0


class Facts(BaseModel):
    """What the earlier release answered."""

    model_config = ConfigDict(frozen=True)

    secret: str
    """Of a token that may read ``CONTAINER``."""
    hits: dict[str, list[str]]
    """Ids of chunks by query, best first."""
    backup: int


def fill(installation: TemporaryInstallation) -> Facts:
    """A container with documents, a token and a backup, by the command line of the earlier release."""
    folder = documents(installation.folder)
    manifest = installation.folder / "notes.yaml"
    manifest.write_text(MANIFEST, encoding="utf-8")
    latent(installation, "container", "create", "--file", manifest)
    latent(installation, "ingest", folder, "-c", CONTAINER, "--wait")
    created = latent(
        installation, "token", "create", "agent:guide", "--scope", "read", "-c", CONTAINER
    )
    latent(installation, "backup", "now", CONTAINER, "--wait")
    [backup] = latent(installation, "backup", "list", "-c", CONTAINER)["backups"]
    hits = {query: hits_of(installation, query) for query in QUERIES}
    return Facts(secret=created["secret"], hits=hits, backup=backup["id"])


def documents(folder: Path) -> Path:
    """The folder that was synced; its name is the source's."""
    made = folder / "lighthouse"
    made.mkdir(exist_ok=True)
    for name, text in TEXTS.items():
        (made / name).write_text(text, encoding="utf-8")
    return made


def hits_of(installation: TemporaryInstallation, query: str) -> list[str]:
    return [
        hit["chunk_id"] for hit in latent(installation, "search", query, "-c", CONTAINER)["hits"]
    ]


def latent(installation: TemporaryInstallation, *arguments: str | Path) -> Any:
    """The JSON that a command prints. It must succeed."""
    done = installation.latent(*arguments, "--json", seconds=COMMAND_SECONDS)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return orjson.loads(done.stdout)


def pack(folder: Path, facts: Facts, sql: str, file: Path) -> None:
    """Write ``file`` from the stopped installation in ``folder``. GNU tar: vectors are files with holes."""
    (folder / "facts.json").write_text(facts.model_dump_json(), encoding="utf-8")
    (folder / "database.sql").write_text(sql, encoding="utf-8")
    members = ["facts.json", "database.sql", *(f"data/{name}" for name in KEPT)]
    without = [f"--exclude={name}" for name in OF_A_PROCESS]
    order = ("--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=2026-01-01Z")
    command = ["tar", "--sparse", "--format=gnu", *order, *without, "-cJf", str(file), *members]
    subprocess.run(command, cwd=folder, check=True, timeout=COMMAND_SECONDS)


def unpack(folder: Path) -> None:
    """Put the installation of ``FILE`` into ``folder``, with its database."""
    with tarfile.open(FILE) as packed:
        packed.extractall(folder, filter="data")
    asyncio.run(_load(folder / "data", (folder / "database.sql").read_bytes()))


def facts_in(folder: Path) -> Facts:
    return Facts.model_validate_json((folder / "facts.json").read_bytes())


async def _load(data: Path, sql: bytes) -> None:
    with DataDirectory(data) as directory:
        async with EmbeddedPostgres(directory.path) as postgres:
            await asyncio.to_thread(_execute, postgres.dsn, sql)


def _execute(dsn: str, sql: bytes) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(sql)
