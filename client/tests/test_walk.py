"""Which files of a folder are documents."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from latent_client.ignore import Tree
from latent_client.walk import MAX_DEPTH, walk
from latent_core.domain.errors import Invalid


def make(folder: Path, *paths: str, text: str = "text") -> None:
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def paths(folder: Path) -> list[str]:
    return [file.path for file in walk(folder).files]


def reasons(folder: Path) -> dict[str, str]:
    return {skipped.path: skipped.reason for skipped in walk(folder).skipped}


def test_files_are_found_in_one_order_with_size_and_time(tmp_path: Path) -> None:
    make(tmp_path, "b.md", "a/z.md", "a.md", "a/b/c.txt", "ä.md")
    os.utime(tmp_path / "a.md", ns=(7, 1_700_000_000_123_456_789))
    found = walk(tmp_path)
    assert [f.path for f in found.files] == ["a.md", "a/b/c.txt", "a/z.md", "b.md", "ä.md"]
    first = found.files[0]
    assert (first.bytes, first.mtime_ns, first.readable) == (4, 1_700_000_000_123_456_789, True)
    assert found.complete


def test_caches_builds_secrets_and_binaries_are_left_out(tmp_path: Path) -> None:
    make(tmp_path, "keep.md", "src/keep.py", ".env.example", "docs/building.md")
    make(
        tmp_path,
        ".git/config", "node_modules/x/index.js", "src/__pycache__/a.pyc", ".venv/lib/a.py",
        "build/out.txt", "deep/dist/a.txt", ".env", "key.pem", "icon.ico", "a.tar.gz", "lib.so.1",
        "types.d.ts", "vendor/lib/a.go", "coverage/index.html", "out/a.txt", "ios/Pods/a.m",
    )  # fmt: skip
    found = walk(tmp_path)
    assert [f.path for f in found.files] == [
        ".env.example",
        "docs/building.md",
        "keep.md",
        "src/keep.py",
    ]
    assert found.ignored == 16
    assert not found.skipped


def test_latentignore_speaks_gitignore_and_takes_defaults_back(tmp_path: Path) -> None:
    make(tmp_path, "a.txt", "b.txt", "sub/a.txt", "sub/deep/a.txt", "build/kept.txt", "logs/x.log")
    make(tmp_path, "global.d.ts", "vendor/kept.go")
    rules = "# a comment\n/a.txt\nsub/**/a.txt\n!build/\n!*.log\n!vendor/\n!global.d.ts\n"
    (tmp_path / ".latentignore").write_text(rules, encoding="utf-8")
    assert paths(tmp_path) == [
        "b.txt",
        "build/kept.txt",
        "global.d.ts",
        "logs/x.log",
        "vendor/kept.go",
    ]


def test_a_nearer_latentignore_wins(tmp_path: Path) -> None:
    make(tmp_path, "a.txt", "sub/a.txt", "sub/b.txt", "sub/c/b.txt")
    (tmp_path / ".latentignore").write_text("a.txt\n", encoding="utf-8")
    (tmp_path / "sub" / ".latentignore").write_text("!a.txt\n/b.txt\n", encoding="utf-8")
    assert paths(tmp_path) == ["sub/a.txt", "sub/c/b.txt"]


def test_what_a_left_out_folder_holds_cannot_be_taken_back_in(tmp_path: Path) -> None:
    make(tmp_path, "secret/plan.md", "open.md")
    (tmp_path / ".latentignore").write_text("secret/\n!secret/plan.md\n", encoding="utf-8")
    assert paths(tmp_path) == ["open.md"]


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A repository whose work tree is still to be named."""
    repository = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", "--bare", str(repository)], check=True)
    return ["git", "-c", "core.excludesFile=", f"--git-dir={repository}"]


_FOLDERS = st.lists(st.sampled_from(["a", "b"]), max_size=3)
_PATHS = st.tuples(_FOLDERS, st.sampled_from(["c.md", "d.py"])).map(
    lambda p: "/".join([*p[0], p[1]])
)
_RULES = st.sampled_from(
    [
        "a",
        "/a",
        "a/",
        "b/c.md",
        "*.md",
        "!c.md",
        "!a/",
        "**/d.py",
        "a/*",
        "!a/b",
        "!/a/b/d.py",
        "*",
        "!*/",
        "a/**",
        "b/",
    ]
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(file_paths=["a/c.md"], rules=["*", "!c.md", "!a/"])
@given(file_paths=st.lists(_PATHS, min_size=1, max_size=6), rules=st.lists(_RULES, max_size=5))
def test_rules_mean_what_git_takes_them_to_mean(
    git: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    file_paths: list[str],
    rules: list[str],
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    make(folder, *file_paths)
    (folder / ".latentignore").write_text("\n".join(rules), encoding="utf-8")
    tree = [f"--work-tree={folder}", "ls-files", "-z", "-o", "--exclude-from=.latentignore"]
    listed = subprocess.run([*git, *tree], check=True, capture_output=True, text=True, cwd=folder)
    assert paths(folder) == sorted(set(listed.stdout.split("\0")) - {"", ".latentignore"})


_FEW_RULES = st.lists(_RULES, max_size=3)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work tree whose ``core.excludesFile`` is beside it."""
    if shutil.which("git") is None:
        pytest.skip("compares with git, which is not installed")
    folder = tmp_path_factory.mktemp("parent") / "repository"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    config = ["git", "-C", str(folder), "config", "core.excludesFile", str(folder.parent / "user")]
    subprocess.run(config, check=True)
    return folder


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example(["a/a/c.md", "a/b/d.py"], [], ["!/a/b/d.py", "b/"], ["a/a"], ["*.md"])
@given(st.lists(_PATHS, min_size=1, max_size=6), *[_FEW_RULES] * 4)
def test_git_and_the_walk_ignore_the_same_files(
    repository: Path,
    file_paths: list[str],
    top: list[str],
    nearer: list[str],
    exclude: list[str],
    of_user: list[str],
) -> None:
    folder = repository
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != ".git":
            shutil.rmtree(entry)
        elif entry.is_file():
            entry.unlink()
    make(folder, "a/c.md", *file_paths)
    rules = {
        folder / ".gitignore": top,
        folder / "a" / ".gitignore": nearer,
        folder / ".git" / "info" / "exclude": exclude,
        folder.parent / "user": of_user,
    }
    for file, lines in rules.items():
        file.write_text("\n".join(lines), encoding="utf-8")
    command = ["git", "ls-files", "-z", "-o", "--exclude-standard"]
    hidden = subprocess.run(["git", "check-ignore", "-q", "a"], check=False, cwd=folder)
    # A folder that git ignores is read if it is the one to sync.
    for root in (folder, *([folder / "a"] if hidden.returncode else [])):
        listed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)
        expected = sorted(set(listed.stdout.split("\0")) - {""})
        ours = paths(root)
        tree = Tree(root)
        assert [p for p in ours if ".gitignore" not in p] == [
            p for p in expected if ".gitignore" not in p
        ]
        assert not any(tree.ignores(path) for path in ours)


def test_gitignore_is_read_without_a_repository_and_a_latentignore_overrides_it(
    tmp_path: Path,
) -> None:
    make(tmp_path, "data/a.md", "data/notes/b.md", "data/notes/c.tmp2", "sub/d.md", "sub/e.md")
    (tmp_path / ".gitignore").write_text("data/\n*.tmp2\n!build/\n", encoding="utf-8")
    (tmp_path / "sub" / ".gitignore").write_text("d.md\n", encoding="utf-8")
    make(tmp_path, "build/out.md")
    assert paths(tmp_path) == ["sub/e.md"], "and no file of rules"
    (tmp_path / ".latentignore").write_text("!data/notes/\n!sub/d.md\n", encoding="utf-8")
    assert paths(tmp_path) == ["data/notes/b.md", "sub/d.md", "sub/e.md"]


def test_a_linked_work_tree_has_the_excludes_of_its_repository(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    (repository / ".git" / "info").mkdir(parents=True)
    (repository / ".git" / "info" / "exclude").write_text("private/\n", encoding="utf-8")
    linked = repository / ".git" / "worktrees" / "tree"
    linked.mkdir(parents=True)
    (linked / "commondir").write_text("../..\n", encoding="utf-8")
    make(tmp_path / "tree", "a.md", "private/b.md")
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {linked}\n", encoding="utf-8")
    assert paths(tmp_path / "tree") == ["a.md"]


def test_a_negation_reaches_into_a_folder_that_the_defaults_ignore(tmp_path: Path) -> None:
    make(
        tmp_path,
        "vendor/our-fork/a.go", "vendor/our-fork/vendor/b.go", "vendor/other/c.go", "vendor/d.go",
        "packages/one/node_modules/ours/e.js", "packages/one/node_modules/theirs/f.js",
        "node_modules/ours/g.js",
    )  # fmt: skip
    rules = "!vendor/our-fork/\n!packages/*/node_modules/ours/**\n"
    (tmp_path / ".latentignore").write_text(rules, encoding="utf-8")
    taken = ["packages/one/node_modules/ours/e.js", "vendor/our-fork/a.go"]
    assert paths(tmp_path) == taken
    tree = Tree(tmp_path)
    assert [p for p in ("vendor/d.go", "vendor/other/c.go", *taken) if not tree.ignores(p)] == taken


def test_nested_checkouts_are_read_only_when_they_are_named(tmp_path: Path) -> None:
    make(
        tmp_path,
        "a.md", "module/b.md", "linked/c.md", "named/d.md", ".worktrees/x/e.md",
        ".claude/worktrees/y/f.md", ".claude/notes.md",
    )  # fmt: skip
    for checkout in ("module", "named"):
        (tmp_path / checkout / ".git").mkdir()
    for tree in ("linked", ".worktrees/x", ".claude/worktrees/y"):
        (tmp_path / tree / ".git").write_text("gitdir: /nowhere\n", encoding="utf-8")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".latentignore").write_text("!named/\n!.worktrees/x/\n", encoding="utf-8")
    found = walk(tmp_path)
    taken = [".claude/notes.md", ".worktrees/x/e.md", "a.md", "named/d.md"]
    assert [file.path for file in found.files] == taken
    assert found.checkouts == ["linked/", "module/"]
    tree = Tree(tmp_path)
    assert not any(tree.ignores(path) for path in taken)
    assert all(tree.ignores(path) for path in ("module/b.md", "linked/c.md", ".git/config"))
    assert paths(tmp_path / "module") == ["b.md"]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(_PATHS, min_size=1, max_size=6), st.lists(_RULES, max_size=4), st.lists(_RULES))
def test_a_single_path_is_judged_as_the_walk_judges_it(
    tmp_path_factory: pytest.TempPathFactory,
    file_paths: list[str],
    rules: list[str],
    nearer: list[str],
) -> None:
    folder = tmp_path_factory.mktemp("tree")
    make(folder, "a/c.md", *file_paths)
    (folder / ".latentignore").write_text("\n".join(rules), encoding="utf-8")
    (folder / "a" / ".latentignore").write_text("\n".join(nearer), encoding="utf-8")
    tree = Tree(folder)
    taken = [path for path in {"a/c.md", *file_paths} if not tree.ignores(path)]
    assert sorted(taken) == paths(folder)


def test_a_sidecar_belongs_to_the_file_of_the_same_name(tmp_path: Path) -> None:
    make(tmp_path, "a.md", "a.md.meta.yaml", "sub/b.txt", "b.txt.meta.yaml", "log.log.meta.yaml")
    make(tmp_path, "log.log", ".meta.yaml", "meta.yaml")
    found = walk(tmp_path)
    assert {f.path: f.sidecar and f.sidecar.name for f in found.files} == {
        ".meta.yaml": None,
        "a.md": "a.md.meta.yaml",
        "meta.yaml": None,
        "sub/b.txt": None,
    }
    assert reasons(tmp_path) == {
        "b.txt.meta.yaml": "describes 'b.txt', which is not among the files",
        "log.log.meta.yaml": "describes 'log.log', which is not among the files",
    }


def test_links_never_lead_out_of_the_folder(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    make(outside, "secret.txt")
    make(folder, "real/a.txt")
    (folder / "out.txt").symlink_to(outside / "secret.txt")
    (folder / "out").symlink_to(outside)
    (folder / "again").symlink_to(folder / "real")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "gone").symlink_to(folder / "nothing")
    (folder / "inside.txt").symlink_to("real/a.txt")
    assert paths(folder) == ["inside.txt", "real/a.txt"]
    assert reasons(folder) == {
        "again": "a link to a folder; its files are read at their real path",
        "gone": "a broken link",
        "loop": "a broken link",
        "out": "a link that points outside the folder",
        "out.txt": "a link that points outside the folder",
    }
    assert walk(folder).complete


def test_types_that_no_parser_reads_are_counted_by_their_names(tmp_path: Path) -> None:
    make(
        tmp_path, "a.docx", "b.xlsx", "talk.mp3", "TALK.MP3", "sub/x.zip", "private.key", "mine.ods"
    )
    make(
        tmp_path,
        "bundle.key/index.zip",
        "letter.pages",
        "node_modules/y.zip",
        "out.tar",
        "chapter.one/z.md",
    )
    (tmp_path / "slides.key").write_bytes(b"PK\x03\x04...")
    (tmp_path / ".latentignore").write_text("!*.ods\n", encoding="utf-8")
    (tmp_path / ".gitignore").write_text("out.tar\n", encoding="utf-8")
    found = walk(tmp_path)
    assert [file.path for file in found.files] == [
        "a.docx",
        "b.xlsx",
        "chapter.one/z.md",
        "mine.ods",
    ]
    assert found.unread == {"Keynote": 2, "MP3": 2, "ZIP": 1, "Pages": 1}
    tree = Tree(tmp_path)
    assert [p for p in ("TALK.MP3", "mine.ods", "a.docx") if tree.ignores(p)] == ["TALK.MP3"]


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    make(tmp_path / "real", "a.txt")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert paths(tmp_path / "link") == ["a.txt"]


def test_what_is_no_document_is_skipped_with_its_reason(tmp_path: Path) -> None:
    make(tmp_path, "good.md")
    (tmp_path / "empty.md").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / os.fsdecode(b"caf\xe9.md")).write_text("x", encoding="utf-8")
    assert paths(tmp_path) == ["good.md"]
    assert reasons(tmp_path) == {
        "caf?.md": "its name is not valid UTF-8",
        "empty.md": "empty",
        "pipe": "not a regular file",
    }


def test_a_folder_too_deep_makes_the_walk_incomplete(tmp_path: Path) -> None:
    make(tmp_path, "/".join(["d"] * (MAX_DEPTH + 1)) + "/a.md", "b.md")
    found = walk(tmp_path)
    assert [f.path for f in found.files] == ["b.md"]
    assert not found.complete


def test_more_files_than_the_bound_are_refused(tmp_path: Path) -> None:
    make(tmp_path, "a", "b", "c")
    with pytest.raises(Invalid, match="more than 2 files"):
        walk(tmp_path, max_files=2)


@pytest.mark.parametrize("name", ["nothing", "file.md"])
def test_a_folder_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    make(tmp_path, "file.md")
    with pytest.raises(Invalid, match=f"{name} cannot be read"):
        walk(tmp_path / name)


def test_a_pattern_that_is_none_is_refused_by_its_file(tmp_path: Path) -> None:
    make(tmp_path, "a.md")
    (tmp_path / ".latentignore").write_text("!\n", encoding="utf-8")
    with pytest.raises(Invalid, match=r"\.latentignore"):
        walk(tmp_path)


def test_what_the_rules_leave_out_is_named(tmp_path: Path) -> None:
    (tmp_path / "node_modules" / "deep").mkdir(parents=True)
    (tmp_path / "node_modules" / "deep" / "a.js").write_text("1")
    (tmp_path / "types.d.ts").write_text("1")
    (tmp_path / "kept.md").write_text("1")
    found = walk(tmp_path)
    assert sorted(found.ignored_paths) == ["node_modules/", "types.d.ts"]
    assert found.ignored == 2
