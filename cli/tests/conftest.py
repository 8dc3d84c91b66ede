"""``latent`` called in this process, against a fake gateway served over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from latent_cli.main import run
from latent_core.domain.manifest.model import Manifest
from tests.support.fake_gateway.gateway import TOKEN, FakeGateway
from tests.support.fake_gateway.http import ServedStage, staged
from tests.support.harness.cli import CommandResult, Latent


@pytest.fixture(scope="session")
def stage() -> Iterator[ServedStage]:
    with staged() as stage:
        yield stage


@pytest.fixture
def gateway(stage: ServedStage) -> FakeGateway:
    fake = FakeGateway(url=stage.url)
    fake.create(Manifest(id="notes", name="Notes"))
    stage.app = fake
    return fake


@pytest.fixture
def latent(
    gateway: FakeGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Latent:
    """Call ``latent`` with these arguments, in an empty folder, with the fake gateway's address."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("LLC_URL", gateway.url)
    monkeypatch.setenv("LLC_MCP_TOKEN", TOKEN)
    monkeypatch.setenv("LLC_DATA_DIR", str(tmp_path / "data"))

    def call(*arguments: str | Path) -> CommandResult:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return CommandResult(code, printed.out, printed.err)

    return call


@pytest.fixture
def museum(tmp_path: Path) -> Path:
    folder = tmp_path / "museum"
    folder.mkdir()
    (folder / "lamp.md").write_text("The lamp burns colza oil.", encoding="utf-8")
    (folder / "lens.txt").write_text("A Fresnel lens of the first order.", encoding="utf-8")
    return folder
