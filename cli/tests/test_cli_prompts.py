"""Questions of ``latent ingest`` on a real terminal: yes, no, Ctrl-C and the end of input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.support.fake_gateway.gateway import FakeGateway
from tests.support.harness.cli import Latent
from tests.support.harness.installation import LATENT
from tests.support.harness.terminal import CTRL_C, CTRL_D, Terminal

YES: Final = "y\n"
NO: Final = "n\n"
CONTINUES: Final = "Continue it from here? (No: sync a separate folder.) [y/N]:"
DELETES: Final = "documents would be deleted: their files are gone. Delete them? [y/N]:"


def terminal(*arguments: str | Path) -> Terminal:
    command = [str(LATENT), *map(str, arguments)]
    return Terminal(command, {**os.environ, "COLUMNS": "400"}, Path.cwd())  # noqa: TID251


def sources(latent: Latent) -> dict[str, tuple[str, str, int]]:
    """Name to place, folder and documents."""
    listed = latent("sources", "list", "-c", "notes", "--json").json["sources"]
    return {one["root"]: (one["place"], one["folder"], one["documents"]) for one in listed}


@pytest.mark.parametrize("answer", [YES, NO, CTRL_C, CTRL_D], ids=["yes", "no", "Ctrl-C", "end"])
def test_a_moved_folder_is_continued_if_a_person_says_so(
    answer: str, latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    latent("ingest", museum, "-c", "notes")
    before = set(gateway.documents)
    moved = museum.rename(museum.with_name("moved"))
    with terminal("ingest", moved, "-c", "notes") as shown:
        shown.wait_for(CONTINUES)
        assert f"{moved} looks like the folder of file:///museum/" in " ".join(shown.shown.split())
        shown.send(answer)
        code = shown.end(again=CTRL_C if answer == CTRL_C else "")
    if answer == YES:
        assert code == 0
        assert sources(latent) == {"museum": ("here", str(moved), 2)}
        assert set(gateway.documents) == before
    elif answer == NO:
        assert code == 0
        assert sources(latent) == {
            "moved": ("here", str(moved), 2),
            "museum": ("missing", str(museum), 2),
        }
        assert before < set(gateway.documents)
    else:
        assert code != 0
        assert "Traceback" not in shown.shown
        assert sources(latent) == {"museum": ("missing", str(museum), 2)}
        assert set(gateway.documents) == before
    # Whatever the answer was, the next sync with a clear answer leads to the same state.
    moved.rename(museum)
    again = latent("ingest", museum, "-c", "notes", "--take-over")
    assert again.code == 0
    assert before <= set(gateway.documents)


@pytest.mark.parametrize("answer", [YES, NO, CTRL_C, CTRL_D], ids=["yes", "no", "Ctrl-C", "end"])
def test_many_documents_are_deleted_if_a_person_says_so(
    answer: str, latent: Latent, gateway: FakeGateway, museum: Path
) -> None:
    for number in range(25):
        (museum / f"buoy{number}.md").write_text(f"Buoy {number}.", encoding="utf-8")
    latent("ingest", museum, "-c", "notes")
    for number in range(25):
        (museum / f"buoy{number}.md").unlink()
    (museum / "new.md").write_text("A new one.", encoding="utf-8")
    with terminal("ingest", museum, "-c", "notes") as shown:
        shown.wait_for(f"25 of 27 {DELETES}")
        shown.send(answer)
        code = shown.end(again=CTRL_C if answer == CTRL_C else "")
    documents = len(gateway.documents)
    if answer == YES:
        assert (code, documents) == (0, 3)
    elif answer == NO:
        assert (code, documents) == (4, 28)
        assert "nothing deleted because 25 of 27 documents" in " ".join(shown.shown.split())
    else:
        assert (code != 0, documents) == (True, 27)
        assert "Traceback" not in shown.shown
    unattended = latent("ingest", museum, "-c", "notes")
    assert (unattended.code, len(gateway.documents)) == ((0, 3) if answer == YES else (4, 28))
    allowed = latent("ingest", museum, "-c", "notes", "--allow-deletions")
    assert (allowed.code, len(gateway.documents)) == (0, 3)
