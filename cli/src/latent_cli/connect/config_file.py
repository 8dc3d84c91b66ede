"""One configuration file with our entries in it: planned, written, and restored byte for byte."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from latent_cli.connect import jsonc, toml_text
from latent_core.domain.errors import Conflict, Invalid

PRIVATE: Final = 0o600
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Entry:
    """A value under these keys of a file, or with ``is_hook`` an item of the array under them."""

    path: tuple[str, ...]
    value: dict[str, Any]
    is_hook: bool = False


class WrittenEntry(BaseModel):
    """What is needed to take an entry out of a file again."""

    path: list[str]
    created: int
    """Objects around it that did not exist."""
    command: str | None = None
    """Of a hook: it is found by its command."""


class WrittenFile(BaseModel):
    """A file before our entries were written, and the hash of what was written."""

    path: Path
    """As the client knows it; it may be a symbolic link."""
    original: str | None
    """Base64; None: it did not exist."""
    mode: int | None
    folders: list[Path]
    """Folders that did not exist, innermost first."""
    sha256: str
    entry: WrittenEntry


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a file holds now, and what it is to hold; ``None``: no file."""

    path: Path
    before: bytes | None
    after: bytes | None
    mode: int | None = None
    """None: as it is."""


def read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise Conflict(
            f"{path} cannot be read ({exc.strerror}); make it readable, then try again"
        ) from exc


def with_entry(path: Path, content: bytes | None, entry: Entry) -> tuple[bytes, WrittenEntry]:
    """The content with the entry. ``Conflict`` if it has another one under this name."""
    text = _text(path, content)
    with _Remedy(path, entry.path):
        if _is_toml(path):
            found = toml_text.value_at(text, entry.path)
            edited = (
                text if found is not None else toml_text.with_entry(text, entry.path, entry.value)
            )
        elif entry.is_hook:
            found = None
            edited = jsonc.with_item(text, entry.path, entry.value)
        else:
            found = jsonc.value_at(text, entry.path)
            edited = jsonc.with_entry(text, entry.path, entry.value)
        created = _created(path, text, entry.path if entry.is_hook else entry.path[:-1])
    if found is not None:
        raise Conflict(
            f"{path} already has an entry '{'.'.join(entry.path)}' that `latent connect` did not write: "
            "rename or remove it, then try again"
        )
    command = entry.value["hooks"][0]["command"] if entry.is_hook else None
    return edited.encode(), WrittenEntry(path=list(entry.path), created=created, command=command)


def has_entry(path: Path, content: bytes | None, entry: Entry) -> bool:
    """Whether the content has exactly this entry."""
    try:
        text = _text(path, content)
        found = (toml_text if _is_toml(path) else jsonc).value_at(text, entry.path)
    except Invalid:
        return False
    return entry.value in (found or []) if entry.is_hook else found == entry.value


def restored(written: WrittenFile, current: bytes | None) -> bytes | None:
    """The original bytes; if the file was edited since, its content without our entry."""
    if current is None:
        return None
    if sha256(current) == written.sha256:
        return None if written.original is None else base64.b64decode(written.original)
    path, entry = written.path, written.entry
    text = _text(path, current)
    with _Remedy(path, entry.path):
        if _is_toml(path):
            return toml_text.without_entry(text, entry.path).encode()
        if entry.command is None:
            return jsonc.without_entry(text, entry.path, created=entry.created).encode()
        return _without_hook(text, entry).encode()


def _without_hook(text: str, entry: WrittenEntry) -> str:
    """Without our command. A person may have added other hooks to its item: those stay."""
    items = jsonc.value_at(text, entry.path)
    for item in items if isinstance(items, list) else ():
        hooks = item.get("hooks") if isinstance(item, dict) else None
        ours = [h for h in hooks or () if isinstance(h, dict) and h.get("command") == entry.command]
        if ours and len(ours) < len(hooks or ()):
            raise Invalid(f"'{'.'.join(entry.path)}' has other hooks in the item with ours")
        if ours:
            return jsonc.without_item(text, entry.path, item, created=entry.created)
    return text


def note_of(
    path: Path,
    before: bytes | None,
    after: bytes,
    entry: WrittenEntry,
    previous: WrittenFile | None,
) -> WrittenFile:
    """The record of a change, made before it is written. ``previous`` is that of the entry it replaces."""
    if previous is not None:
        mode, folders = previous.mode, previous.folders
    else:
        mode = None if before is None else mode_of(path)
        folders = _missing_folders(path)
    return WrittenFile(
        path=path,
        original=None if before is None else base64.b64encode(before).decode(),
        mode=mode,
        folders=folders,
        sha256=sha256(after),
        entry=entry,
    )


def mode_of(path: Path) -> int | None:
    """None: it does not exist."""
    return path.stat().st_mode & 0o777 if path.exists() else None


def write(change: FileChange) -> None:
    """Write or delete the file in one step. A symbolic link stays one: the file behind it is replaced."""
    target = Path(os.path.realpath(change.path))
    if change.after is None:
        target.unlink(missing_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = change.mode
    if mode is None:
        mode = target.stat().st_mode & 0o777 if target.exists() else PRIVATE
    handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # with mode 600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(change.after)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, mode)
        os.replace(draft, target)
    except OSError:
        Path(draft).unlink(missing_ok=True)
        raise


def remove_folders(folders: Sequence[Path]) -> Sequence[Path]:
    """Remove those that are empty; returns the others."""
    for n, folder in enumerate(folders):
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return folders[n:]
    return ()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class _Remedy:
    """Adds the file and what to do to an error about its content."""

    def __init__(self, path: Path, entry: Sequence[str]) -> None:
        self._path = path
        self._entry = ".".join(entry)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, exc: BaseException | None, _: object) -> None:
        if isinstance(exc, Invalid):
            raise Invalid(
                f"{self._path} cannot be edited: {exc.message}. Correct it, or edit '{self._entry}' by hand, then "
                "try again; the file is unchanged"
            ) from exc


def _text(path: Path, content: bytes | None) -> str:
    try:
        return "" if content is None else content.decode("utf-8")
    except UnicodeDecodeError as exc:
        name = "UTF-16" if (content or b"")[:2] in _UTF_16 else "another encoding"
        raise Invalid(
            f"{path} is in {name}; save it as UTF-8, then try again; the file is unchanged"
        ) from exc


def _is_toml(path: Path) -> bool:
    return path.suffix == ".toml"


def _created(path: Path, text: str, parents: Sequence[str]) -> int:
    """How many of these levels the text does not have."""
    value_at = toml_text.value_at if _is_toml(path) else jsonc.value_at
    depths = range(1, len(parents) + 1)
    return sum(value_at(text, parents[:depth]) is None for depth in depths)


def _missing_folders(path: Path) -> list[Path]:
    folders = Path(os.path.realpath(path)).parents
    return [folder for folder in folders if not folder.exists()]
