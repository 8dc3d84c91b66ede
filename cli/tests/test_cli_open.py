"""``latent open``: a hit's page, on the desktop or as a file; and completion for shells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.fake_gateway.gateway import IMAGE, FakeGateway
from tests.support.harness.cli import Latent


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")


def found(latent: Latent, museum: Path) -> str:
    """What search says to open the first hit by."""
    latent("ingest", museum, "-c", "notes", "--wait")
    printed = latent("search", "colza", "-c", "notes").out
    match = re.search(r"open: latent open (\S+)", printed)
    assert match is not None, printed
    return match[1]


def test_a_hit_of_a_search_is_opened_by_what_the_search_prints(
    latent: Latent, museum: Path
) -> None:
    result = latent("open", found(latent, museum))
    assert result.code == 0
    path, uri = result.out.splitlines()
    assert Path(path).read_bytes() == IMAGE
    assert path.endswith(".webp")
    assert "/v1/blobs/" in uri
    Path(path).unlink()


def test_on_a_desktop_the_image_is_opened_with_its_viewer(
    latent: Latent, museum: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit = found(latent, museum)
    programs = tmp_path / "bin"
    programs.mkdir()
    viewer = programs / "xdg-open"
    viewer.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/viewed\n', encoding="utf-8")
    viewer.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("DISPLAY", ":0")
    result = latent("open", hit)
    assert (result.code, result.out) == (0, "")
    viewed = Path((tmp_path / "viewed").read_text(encoding="utf-8").strip())
    assert viewed.read_bytes() == IMAGE
    viewed.unlink()


def test_an_image_is_saved_to_the_given_path_and_its_place_printed(
    latent: Latent, museum: Path, tmp_path: Path
) -> None:
    hit = found(latent, museum)
    result = latent("open", f"page://{hit}", "--out", tmp_path / "page.webp", "--json")
    assert result.json["path"] == str(tmp_path / "page.webp")
    assert result.json["mime"] == "image/webp"
    assert (tmp_path / "page.webp").read_bytes() == IMAGE
    again = latent("open", result.json["uri"], "--out", tmp_path / "again.webp")
    assert again.code == 0
    assert (tmp_path / "again.webp").read_bytes() == IMAGE


@pytest.mark.parametrize("hit", ["nothing", "1234/5", "page://", "x" * 500])
def test_an_invalid_page_reference_is_reported(
    hit: str, latent: Latent, gateway: FakeGateway
) -> None:
    result = latent("open", hit)
    assert result.code == 2
    assert "use DOCUMENT/PAGE" in result.err
    assert not gateway.requests


def test_a_missing_page_is_reported(latent: Latent, museum: Path) -> None:
    document = found(latent, museum).partition("/")[0]
    result = latent("open", f"{document}/9")
    assert result.code == 1
    assert "no page 9" in result.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_lists_the_commands(
    shell: str, latent: Latent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_LATENT_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", "latent se")
    monkeypatch.setenv("COMP_CWORD", "1")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "latent se")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit) as ended:
        latent()
    assert not ended.value.code
    assert "search" in capsys.readouterr().out
