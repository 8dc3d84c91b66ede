"""Finds the documents of a folder in a stable order, never outside the folder."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from latent_client.files import is_text, unreadable
from latent_client.ignore import IgnoreRules, Judgement, rules_of
from latent_core.domain.errors import Invalid
from latent_core.domain.ignore import GIT
from latent_core.domain.unread import KEYNOTE, unread_type

MAX_FILES: Final = 200_000
MAX_DEPTH: Final = 64
MAX_IGNORED_NAMED: Final = 1000
KEYNOTE_SUFFIX: Final = ".key"
ZIP_START: Final = b"PK\x03\x04"
SIDECAR: Final = ".meta.yaml"
"""Ending of a sidecar file (``latent_client.sidecars``)."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to announce."""

    path: str
    """Relative to the root, with slashes."""
    file: Path
    bytes: int
    mtime_ns: int
    readable: bool
    sidecar: Path | None = None
    """Its sidecar file."""


@dataclass(frozen=True, slots=True)
class UnusableFile:
    """An entry of the folder that cannot be a document, and the reason."""

    path: str
    reason: str


@dataclass(slots=True)
class Walk:
    """The content of a folder."""

    files: list[FoundFile] = field(default_factory=list)
    """Sorted by path."""
    skipped: list[UnusableFile] = field(default_factory=list)
    ignored: int = 0
    """Number of files and folders that the ignore rules exclude."""
    ignored_paths: list[str] = field(default_factory=list)
    """The first thousand of them. Folders end in a slash; their content is not counted."""
    checkouts: list[str] = field(default_factory=list)
    """Folders with a repository or work tree of their own, among the ignored ones."""
    unread: Counter[str] = field(default_factory=Counter)
    """Files of types that no parser reads, by type; among the ignored ones."""
    complete: bool = True
    """False if a folder could not be read: missing files may still exist."""


def walk(folder: Path, *, max_files: int = MAX_FILES) -> Walk:
    """All possible documents below ``folder``. Raises ``Invalid`` if it cannot be read or has too many files."""
    walker = _Walker(folder.resolve(), max_files)
    try:
        entries = _entries(walker.root)
    except OSError as exc:
        raise unreadable(folder, exc) from exc
    walker.visit(entries, "", rules_of(walker.root), 0)
    walker.attach_sidecars()
    walker.found.files.sort(key=lambda file: file.path)
    walker.found.skipped.sort(key=lambda skipped: skipped.path)
    return walker.found


class _Walker:
    def __init__(self, root: Path, max_files: int) -> None:
        self.root = root
        self.found = Walk()
        self._sidecars: dict[str, Path] = {}
        self._max_files = max_files

    def visit(
        self, entries: Iterable[os.DirEntry[str]], base: str, rules: IgnoreRules, depth: int
    ) -> None:
        for entry in entries:
            path = base + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_text(path):
                self._skip(path, "its name is not valid UTF-8")
                continue
            judged = rules.judge(path, folder=is_folder)
            if judged in (Judgement.IGNORED, Judgement.UNREAD):
                self._ignore(path + "/" if is_folder else path)
                self._count_unread(entry, judged)
            elif is_folder:
                self._descend(Path(entry.path), path, rules, judged, depth + 1)
            else:
                self._file(entry, path)

    def _ignore(self, path: str) -> None:
        self.found.ignored += 1
        if len(self.found.ignored_paths) < MAX_IGNORED_NAMED:
            self.found.ignored_paths.append(path)

    def _count_unread(self, entry: os.DirEntry[str], judged: Judgement) -> None:
        kind = unread_type(entry.name) if judged is Judgement.UNREAD else None
        if entry.name.endswith(KEYNOTE_SUFFIX) and _is_keynote(entry):
            kind = KEYNOTE
        if kind is not None:
            self.found.unread[kind] += 1

    def _descend(
        self, folder: Path, path: str, above: IgnoreRules, judged: Judgement, depth: int
    ) -> None:
        if depth > MAX_DEPTH:
            self._miss(path, f"nested deeper than {MAX_DEPTH} folders")
            return
        try:
            entries = _entries(folder)
        except OSError as exc:
            self._miss(path, f"cannot be read: {exc.strerror or exc}")
            return
        if judged is Judgement.INCLUDED and any(entry.name == GIT for entry in entries):
            self._ignore(path + "/")
            self.found.checkouts.append(path + "/")
            return
        self.visit(entries, path + "/", above.within(folder, path + "/", judged), depth)

    def _file(self, entry: os.DirEntry[str], path: str) -> None:
        try:
            file, reason = self._target(entry)
            status = file.stat()
        except OSError as exc:
            if exc.errno in (errno.ENOENT, errno.ELOOP):
                self._skip(path, "a broken link" if entry.is_symlink() else "no longer exists")
            else:
                self._miss(path, f"cannot be read: {exc.strerror or exc}")
            return
        if reason := reason or _unfit(status):
            self._skip(path, reason)
        else:
            self._take(path, file, status)

    def _take(self, path: str, file: Path, status: os.stat_result) -> None:
        if len(self.found.files) + len(self._sidecars) >= self._max_files:
            limit = f"more than {self._max_files} files"
            raise Invalid(
                f"{self.root} contains {limit}; ingest subfolders or exclude files with .latentignore"
            )
        if path.endswith(SIDECAR) and not path.endswith("/" + SIDECAR) and path != SIDECAR:
            self._sidecars[path] = file
            return
        readable = os.access(file, os.R_OK, effective_ids=os.access in os.supports_effective_ids)
        self.found.files.append(FoundFile(path, file, status.st_size, status.st_mtime_ns, readable))

    def attach_sidecars(self) -> None:
        """Give each file its sidecar. A sidecar without its file is skipped with a reason."""
        described = {
            path.removesuffix(SIDECAR): (path, file) for path, file in self._sidecars.items()
        }
        for index, found in enumerate(self.found.files):
            if found.path in described:
                _, sidecar = described.pop(found.path)
                self.found.files[index] = replace(found, sidecar=sidecar)
        for name, (path, _) in described.items():
            self._skip(path, f"describes '{name.rpartition('/')[2]}', which is not among the files")

    def _target(self, entry: os.DirEntry[str]) -> tuple[Path, str | None]:
        """The file of an entry, and the reason if it is skipped."""
        file = Path(entry.path)
        if not entry.is_symlink():
            return file, None
        target = Path(os.path.realpath(file, strict=True))
        if not target.is_relative_to(self.root):
            return target, "a link that points outside the folder"
        if target.is_dir():
            return target, "a link to a folder; its files are read at their real path"
        return target, None

    def _skip(self, path: str, reason: str) -> None:
        printable = path.encode("utf-8", errors="replace").decode("utf-8")
        self.found.skipped.append(UnusableFile(printable, reason))

    def _miss(self, path: str, reason: str) -> None:
        self.found.complete = False
        self._skip(path, reason)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return sorted(found, key=lambda entry: entry.name)


def _is_keynote(entry: os.DirEntry[str]) -> bool:
    """A package of Apple: a ZIP file, or a folder. Keys are text."""
    try:
        if entry.is_dir(follow_symlinks=False):
            return True
        with open(os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            return opened.read(len(ZIP_START)) == ZIP_START
    except OSError:
        return False


def _unfit(status: os.stat_result) -> str | None:
    """Why a file cannot be a document."""
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    return "empty" if status.st_size == 0 else None
