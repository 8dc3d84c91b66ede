"""Commands that start processes, on real ones."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from latent_core.db import start
from latent_core.runtime.data_directory import DataDirectory
from tests.support.fake_gateway.gateway import FakeGateway
from tests.support.harness.cli import Latent


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Not below pytest's own folder, which the user of Postgres may not enter."""
    folder = Path(tempfile.mkdtemp(prefix="latent-migrate-"))
    folder.chmod(0o755)
    yield folder / "data"
    shutil.rmtree(folder, ignore_errors=True)


def test_migrate_brings_a_server_to_the_current_schema(
    latent: Latent, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLC_POSTGRES_DSN", dsn)
    result = latent("migrate")
    assert (result.code, result.out) == (0, "LLC_POSTGRES_DSN: nothing to do\n")


def test_migrate_names_a_server_that_is_not_there(
    latent: Latent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "WAIT_SECONDS", 0.0)
    monkeypatch.setenv("LLC_POSTGRES_DSN", "host=127.0.0.1 port=9 user=nobody password=hunter2")
    result = latent("migrate")
    assert result.code == 1
    assert "Connection refused" in result.err
    assert "check LLC_POSTGRES_DSN" in result.err
    assert result.err.count("\n") == 1
    assert "hunter2" not in result.err


def test_migrate_starts_the_embedded_server_and_stops_it(latent: Latent, data_dir: Path) -> None:
    first = latent("migrate", "--data-dir", data_dir, "--json").json
    assert first["applied"][0] == "0001_initial"
    assert first["database"] == str(data_dir / "postgres")
    assert latent("migrate", "--data-dir", data_dir).out.endswith("nothing to do\n")
    assert not (data_dir / "postgres" / "postmaster.pid").exists()


def test_adopt_says_that_embedded_stores_need_no_adoption(latent: Latent, data_dir: Path) -> None:
    result = latent("adopt", "--data-dir", data_dir)
    assert result.code == 2
    assert "nothing to adopt" in result.err
    assert result.err.count("\n") == 1
    assert not (data_dir / "postgres").exists()


def test_migrate_is_refused_while_another_process_holds_the_data_directory(
    latent: Latent, data_dir: Path
) -> None:
    with DataDirectory(data_dir):
        result = latent("migrate", "--data-dir", data_dir)
    assert result.code == 1
    assert "is held by process" in result.err


def test_a_port_in_use_is_named_before_anything_is_started(
    latent: Latent, data_dir: Path, gateway: FakeGateway
) -> None:
    taken = urlsplit(gateway.url).port
    result = latent("up", "--data-dir", data_dir, "--port", str(taken))
    assert result.code == 1
    assert f"port {taken} on 127.0.0.1 cannot be used" in result.err
    assert not data_dir.exists()
