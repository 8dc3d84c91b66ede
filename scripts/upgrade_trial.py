"""Fill a data directory with an earlier release, start this one on it, and try to go back.

    python -m scripts.upgrade_trial [--from COMMIT] [--fixture FILE]

The earlier release is checked out from the history of this repository and set up by its own lock file, so the first
run takes minutes. ``--fixture`` also writes the filled installation to FILE, for tests/processes/test_upgrade.py.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from latent_core.db.migrate import current_revision, head_revision
from latent_core.domain.errors import Unavailable
from latent_core.runtime.data_directory import DataDirectory
from latent_core.runtime.postgres import EmbeddedPostgres
from scripts.dump_revision import dump
from tests.support import REPOSITORY
from tests.support.harness.throwaway import TemporaryInstallation
from tests.support.upgrades import CONTAINER, QUERIES, documents, fill, hits_of, latent, pack

PREVIOUS: Final = "639b41b"
"""The last commit of version 0.1 with the schema 0001_initial; no tag names it. The next release's is its tag."""
SETUP_SECONDS: Final = 1200


def main() -> int:
    parser = argparse.ArgumentParser(description="Start this release on the data of an earlier one")
    parser.add_argument("--from", dest="commit", default=PREVIOUS, help="commit or tag")
    parser.add_argument("--fixture", type=Path, help="also write the installation to this file")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="latent-upgrade-"))
    folder.chmod(0o755)  # as root, Postgres runs as another user
    try:
        earlier = set_up(given.commit, folder / "earlier")
        return trial(earlier, folder, given.fixture)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def set_up(commit: str, folder: Path) -> tuple[str, ...]:
    """Check out and install a release; the command that calls it."""
    for command in (
        ("git", "clone", "--quiet", "--shared", "--no-checkout", str(REPOSITORY), str(folder)),
        ("git", "-C", str(folder), "checkout", "--quiet", commit),
        ("make", "--silent", "-C", str(folder), "setup"),
    ):
        subprocess.run(command, check=True, timeout=SETUP_SECONDS)
    return (str(folder / ".venv" / "bin" / "python"), "-m", "latent_cli")


def trial(earlier: tuple[str, ...], folder: Path, fixture: Path | None) -> int:
    place = folder / "installation"
    place.mkdir(mode=0o755)
    old, new = TemporaryInstallation(place, earlier), TemporaryInstallation(place)
    old.start()
    try:
        facts = fill(old)
    finally:
        old.stop()
    revision, sql = asyncio.run(dumped(place / "data"))
    print(f"filled with revision {revision}; this release has {head_revision()}", flush=True)
    if fixture is not None:
        pack(place, facts, sql, fixture)
        print(f"{fixture}: {fixture.stat().st_size:,} bytes")
    new.start()
    try:
        print(f"this release answers after {new.started_seconds:.1f} s")
        for query in QUERIES:
            assert hits_of(new, query)[:1] == facts.hits[query][:1], query
        latent(new, "ingest", documents(place), "-c", CONTAINER, "--wait")
        latent(new, "backup", "verify", str(facts.backup), "--wait")
        assert latent(new, "doctor")["clean"]
    finally:
        new.stop()
    return 0 if refused(old) else 1


def refused(old: TemporaryInstallation) -> bool:
    """Whether the earlier release names the newer schema instead of starting."""
    try:
        old.start()
    except Unavailable as exc:
        named = head_revision() in str(exc)
        print(str(exc).strip().splitlines()[-1])
        return named
    old.stop()
    print("the earlier release started on a database of this one", file=sys.stderr)
    return False


async def dumped(data: Path) -> tuple[str | None, str]:
    """The revision of the database and its dump."""
    with DataDirectory(data) as directory:
        async with EmbeddedPostgres(directory.path) as postgres:
            revision = await current_revision(postgres.dsn)
            return revision, await asyncio.to_thread(dump, postgres.dsn, str(revision))


if __name__ == "__main__":
    sys.exit(main())
