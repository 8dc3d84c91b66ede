"""``latent ingest`` of a repository that real git changes: its branch is renamed or switched, and it holds work trees."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from latent_core.domain.source import DELETIONS_WITHOUT_CONSENT
from tests.support.fake_gateway.gateway import FakeGateway
from tests.support.harness.cli import Latent

FILES = DELETIONS_WITHOUT_CONSENT + 5
Git = Callable[..., None]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "lighthouse"
    (folder / "src").mkdir(parents=True)
    for number in range(FILES):
        (folder / "src" / f"{number:02}.py").write_text(f"LAMP = {number}\n", encoding="utf-8")
    return folder


@pytest.fixture
def git(repository: Path) -> Git:
    """Runs git in the repository, with one commit on the branch ``main``."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    person = ["-c", "user.name=Keeper", "-c", "user.email=keeper@lighthouse.example"]

    def run(*arguments: str | Path) -> None:
        command = ["git", *person, "-c", "core.hooksPath=", "-C", str(repository)]
        subprocess.run([*command, *map(str, arguments)], check=True, capture_output=True)

    run("init", "-q", "-b", "main")
    run("add", ".")
    run("commit", "-q", "-m", "The first lamps")
    return run


def roots(gateway: FakeGateway) -> dict[str, int]:
    """Documents by root."""
    uris = [document.view.source_uri for document in gateway.documents.values()]
    return Counter(uri.removeprefix("file:///").partition("/")[0] for uri in uris)


def test_a_renamed_branch_changes_nothing(
    latent: Latent, gateway: FakeGateway, repository: Path, git: Git
) -> None:
    assert latent("ingest", repository, "-c", "notes").code == 0
    git("branch", "-m", "main", "trunk")
    renamed = latent("ingest", repository, "-c", "notes")
    assert renamed.code == 0, renamed.err
    assert f"lighthouse: {FILES} files, 0 sent, {FILES} unchanged" in renamed.out
    assert roots(gateway) == {"lighthouse": FILES}


def test_a_switch_to_a_branch_without_the_files_deletes_nothing_without_consent(
    latent: Latent, gateway: FakeGateway, repository: Path, git: Git
) -> None:
    assert latent("ingest", repository, "-c", "notes").code == 0
    git("switch", "-q", "--orphan", "pages")
    (repository / "index.md").write_text("The pages of the lighthouse.", encoding="utf-8")
    on_pages = latent("ingest", repository, "-c", "notes")
    assert f"{FILES} of {FILES} documents would be deleted" in on_pages.out + on_pages.err
    assert roots(gateway) == {"lighthouse": FILES + 1}
    git("switch", "-q", "main")
    back = latent("ingest", repository, "-c", "notes")
    assert f"lighthouse: {FILES + 1} files, 0 sent, {FILES + 1} unchanged" in back.out
    assert roots(gateway) == {"lighthouse": FILES + 1}


def test_ten_work_trees_inside_a_repository_are_skipped_and_can_be_synced_each(
    latent: Latent, gateway: FakeGateway, repository: Path, git: Git
) -> None:
    for number in range(10):
        git("worktree", "add", "-q", "-b", f"branch-{number}", repository / "wt" / f"{number}")
    parent = latent("ingest", repository, "-c", "notes")
    assert parent.code == 0
    assert "nested checkouts are not read: wt/0/, wt/1/" in parent.out + parent.err
    assert roots(gateway) == {"lighthouse": FILES}
    for number in range(2):
        tree = latent("ingest", repository / "wt" / f"{number}", "-c", "notes")
        assert tree.code == 0, tree.err
    again = latent("ingest", repository, "-c", "notes")
    assert f"lighthouse: {FILES} files, 0 sent, {FILES} unchanged" in again.out
    assert roots(gateway) == {"lighthouse": FILES, "0": FILES, "1": FILES}
