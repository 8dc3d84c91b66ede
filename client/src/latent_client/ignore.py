"""Ignore rules of a folder: default rules and those of git, overridden by ``.latentignore`` files in gitignore syntax."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from latent_client.files import is_text, unreadable
from latent_core.domain.errors import Invalid
from latent_core.domain.ignore import DEFAULTS, GIT, GITIGNORE, IGNORE_FILE, NEVER
from latent_core.domain.unread import unread_type

GIT_SECONDS: Final = 5.0
MAX_IGNORE_BYTES: Final = 1024 * 1024
_GROUP_NAME: Final = re.compile(r"\(\?P<\w+>")


class Judgement(Enum):
    """What the rules say about a path."""

    INCLUDED = auto()
    NAMED = auto()
    """Included by a ``.latentignore``, against any other rule."""
    PASSED = auto()
    """An ignored folder in which a ``.latentignore`` names something: only that is included."""
    UNREAD = auto()
    """Of a type that no parser reads."""
    IGNORED = auto()


class RuleFile:
    """One file of rules. Paths are relative to the synced folder, its patterns to its own folder."""

    def __init__(self, rules: str, base: str = "", prefix: str = "") -> None:
        """``base``: the file's folder below the synced one. ``prefix``: the synced folder below that of the file."""
        self._spec = _spec(rules)
        self._base = base
        self._prefix = prefix
        self._any = _any_of(self._spec)
        self._named = [_parts_of(line) for line in rules.splitlines() if line.startswith("!")]

    def verdict(self, path: str, *, folder: bool) -> bool | None:
        """Whether the last rule that matches ``path`` itself ignores it; None without one."""
        relative = self._prefix + path[len(self._base) :] + ("/" if folder else "")
        # Few files match any rule. One search with the joined patterns is faster than one match per pattern.
        return _verdict(self._spec, relative) if self._any.search(relative) else None

    def names_below(self, folder: str) -> bool:
        """Whether a negation with a path, such as ``!vendor/our-fork/``, may match something below ``folder``."""
        parts = folder[len(self._base) :].split("/")
        return any(_leads(parts, named) for named in self._named)


Rules = tuple[RuleFile, ...]
"""The nearest file comes first; the first one with a matching rule decides."""


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The rules inside one folder.

    A ``.latentignore`` decides first. Without a rule in one, a path is ignored if the defaults or git ignore it.
    """

    own: Rules = ()
    git: Rules = ()
    passing: bool = False
    """The folder is ignored; it is read for what a ``.latentignore`` names in it."""

    def judge(self, path: str, *, folder: bool) -> Judgement:
        """About ``path``, relative to the synced folder; the folders above it are not ignored."""
        if path.rpartition("/")[2] in NEVER:
            return Judgement.IGNORED
        own = _first(self.own, path, folder=folder)
        if own is not None:
            return Judgement.IGNORED if own else Judgement.NAMED
        if self.passing or any(
            _first(rules, path, folder=folder) for rules in (DEFAULT_RULES, self.git)
        ):
            leads = folder and any(file.names_below(path) for file in self.own)
            return Judgement.PASSED if leads else Judgement.IGNORED
        is_read = folder or unread_type(path) is None
        return Judgement.INCLUDED if is_read else Judgement.UNREAD

    def within(self, folder: Path, base: str, judged: Judgement) -> IgnoreRules:
        """The rules inside ``folder``, about which these say ``judged`` and whose paths begin with ``base``."""
        own, git = read_rules(folder / IGNORE_FILE, base), read_rules(folder / GITIGNORE, base)
        passing = judged is Judgement.PASSED
        if own is None and git is None and passing == self.passing:
            return self
        return IgnoreRules(
            self.own if own is None else (own, *self.own),
            self.git if git is None else (git, *self.git),
            passing,
        )


class Tree:
    """Checks single paths of a folder. Reads the rules of each folder once: discard it if a rule file changes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rules: dict[str, IgnoreRules | None] = {}

    def ignores(self, path: str) -> bool:
        """Whether the file ``path``, relative to the root, or one of its folders is ignored."""
        if not is_text(path):
            return True  # no rule can match it, and it is not a document
        rules = self._inside(path.rpartition("/")[0])
        if rules is None:
            return True
        judged = rules.judge(path, folder=False)
        return judged not in (Judgement.INCLUDED, Judgement.NAMED)

    def _inside(self, folder: str) -> IgnoreRules | None:
        """The rules inside a folder; None if the folder is ignored."""
        if folder not in self._rules:
            self._rules[folder] = self._read(folder)
        return self._rules[folder]

    def _read(self, folder: str) -> IgnoreRules | None:
        if not folder:
            return rules_of(self._root)
        above = self._inside(folder.rpartition("/")[0])
        judged = Judgement.IGNORED if above is None else above.judge(folder, folder=True)
        if above is None or judged is Judgement.IGNORED:
            return None
        if judged is Judgement.INCLUDED and (self._root / folder / GIT).exists():
            return None
        return above.within(self._root / folder, folder + "/", judged)


def rules_of(root: Path) -> IgnoreRules:
    """The rules inside a synced folder, with those of its repository and of the user's git."""
    return IgnoreRules(git=git_rules_above(root)).within(root, "", Judgement.INCLUDED)


def _first(rules: Rules, path: str, *, folder: bool) -> bool | None:
    for file in rules:
        verdict = file.verdict(path, folder=folder)
        if verdict is not None:
            return verdict
    return None


def _parts_of(negation: str) -> list[str]:
    """The folders and the name that a negation with a path names; empty without a path, which matches anywhere."""
    pattern = negation[1:].strip()
    if "/" not in pattern.rstrip("/") or pattern.startswith("**"):
        return []
    return pattern.strip("/").split("/")


def _leads(parts: Sequence[str], named: Sequence[str]) -> bool:
    for part, pattern in zip(parts, named, strict=False):
        if pattern == "**":
            return True
        if not fnmatchcase(part, pattern):
            return False
    return len(parts) < len(named)


def _verdict(spec: GitIgnoreSpec, path: str) -> bool | None:
    """The verdict of the last rule that matches ``path`` itself; None without one.

    The caller has already checked the folders above. The spec's own check would let their rules override
    a rule for the path.
    """
    for pattern in reversed(spec.patterns):
        if pattern.regex is not None and _speaks_of(pattern.regex, path):
            return bool(pattern.include)
    return None


def _speaks_of(rule: re.Pattern[str], path: str) -> bool:
    """Whether a match covers all of ``path``.

    The only named group of a rule is the slash after a folder's name: if the match ends there, the folder is
    ``path``. ``folder/**`` matches only the content of the folder and ends with a slash.
    """
    for found in rule.finditer(path):
        whole = found.end() == len(path)
        if found.lastgroup is None:
            return not (whole and rule.pattern.endswith("/"))
        if whole:
            return True
    return False


def _any_of(spec: GitIgnoreSpec) -> re.Pattern[str]:
    """One expression that matches wherever any pattern of ``spec`` does."""
    # A group name may occur only once in an expression, and the names are not needed here.
    sources = (
        _GROUP_NAME.sub("(?:", pattern.regex.pattern)
        for pattern in spec.patterns
        if pattern.regex is not None
    )
    return re.compile("|".join(f"(?:{source})" for source in sources) or "(?!)")


def read_rules(file: Path, base: str = "", prefix: str = "") -> RuleFile | None:
    """None if there is no file. An unreadable one is an error: without its rules the wrong files would be sent."""
    if not file.is_file():
        return None
    try:
        with file.open("rb") as opened:
            source = opened.read(MAX_IGNORE_BYTES + 1)
    except OSError as exc:
        raise unreadable(file, exc) from exc
    if len(source) > MAX_IGNORE_BYTES:
        raise Invalid(
            f"{file} is larger than {MAX_IGNORE_BYTES} bytes, the limit of an ignore file"
        )
    try:
        return RuleFile(source.decode("utf-8-sig", errors="replace"), base, prefix)
    except ValueError as exc:
        raise Invalid(f"{file}: {exc}") from exc


def git_rules_above(root: Path) -> Rules:
    """Rules for ``root`` from outside of it, if it is in a work tree: the ``.gitignore`` files above it, the repository's
    ``info/exclude``, and the user's excludes file."""
    top = next((folder for folder in (root, *root.parents) if (folder / GIT).exists()), None)
    if top is None:
        return ()
    inside = root.relative_to(top).parts
    files: list[RuleFile | None] = []
    for depth in range(len(inside) - 1, -1, -1):
        folder = top.joinpath(*inside[:depth])
        files.append(read_rules(folder / GITIGNORE, prefix="/".join(inside[depth:]) + "/"))
    prefix = "".join(f"{part}/" for part in inside)
    outside = (_git_path(top, "info/exclude"), _excludes_file(top))
    files += [read_rules(file, prefix=prefix) for file in outside if file is not None]
    return tuple(file for file in files if file is not None)


def _git_path(top: Path, name: str) -> Path | None:
    """A file of the repository. ``.git`` is a file in linked work trees and submodules."""
    git = top / GIT
    if git.is_dir():
        return git / name
    try:
        folder = top / git.read_text("utf-8").strip().removeprefix("gitdir:").strip()
        common = folder / "commondir"
        return (folder / common.read_text("utf-8").strip() if common.is_file() else folder) / name
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=64)
def _excludes_file(top: Path) -> Path | None:
    """``core.excludesFile`` as git reads it. A change during a watch counts from the next start on."""
    command = ["git", "config", "--type=path", "--get", "core.excludesFile"]
    try:
        done = subprocess.run(
            command, cwd=top, capture_output=True, text=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        done = None
    if done is not None and done.returncode == 0:
        given = done.stdout.removesuffix("\n")
        return top / given if given else None
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"  # noqa: TID251 - as git does
    try:
        return Path(config).expanduser() / "git" / "ignore"
    except RuntimeError:  # no home directory
        return None


def _spec(rules: str) -> GitIgnoreSpec:
    # This backend agrees with git. The optional backends of pathspec differ in some cases.
    return GitIgnoreSpec.from_lines(rules.splitlines(), backend="simple")


DEFAULT_RULES: Final[Rules] = (RuleFile(DEFAULTS),)
