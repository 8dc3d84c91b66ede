"""The sources that this client syncs: ``sources.json`` in the data directory, never a file in a folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from pydantic import BaseModel, ValidationError

from latent_core.domain.errors import Invalid

FILE: Final = "sources.json"
MACHINE_ID: Final = Path("/etc/machine-id")
MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 16 * 1024 * 1024


class RegisteredSource(BaseModel):
    """A folder of this computer, and the source that it is synced to."""

    source_id: UUID
    gateway: str
    container_id: str
    folder: str
    """Its absolute path without links."""
    name: str
    """The root name that was requested."""
    root: str
    """The one that it got."""
    machine: str = ""
    """The computer: home directories can be shared by several, whose paths mean different folders."""


class _SourceFile(BaseModel):
    sources: list[RegisteredSource] = []


@dataclass(frozen=True, slots=True)
class SourceRegistry:
    """Reads the file at each call. Several processes may change it at the same time."""

    data_dir: Path

    def find(self, container_id: str, folder: Path) -> list[RegisteredSource]:
        """Sources of a folder, newest first. Their gateways may differ."""
        return [
            one
            for one in reversed(self._read())
            if (one.container_id, one.folder, one.machine)
            == (container_id, str(folder), machine_id())
        ]

    def here(self) -> dict[UUID, Path]:
        """All sources of this computer with their folders."""
        return {
            one.source_id: Path(one.folder) for one in self._read() if one.machine == machine_id()
        }

    def remove(self, source_id: UUID) -> None:
        with self._locked():
            self._write([one for one in self._read() if one.source_id != source_id])

    def put(self, source: RegisteredSource) -> None:
        """Add a source of this computer. It replaces those that the same gateway has for its folder and name."""
        source = source.model_copy(update={"machine": machine_id()})
        with self._locked():
            kept = [one for one in self._read() if not _replaces(source, one)]
            self._write([*kept, source][-MAX_ENTRIES:])

    def copy_of(self, containers: Collection[str]) -> str:
        """The file's content with the sources of this computer in these containers."""
        own = [one for one in self._read() if one.machine == machine_id()]
        return _written([one for one in own if one.container_id in containers])

    def add_missing(self, copy: str, known: Collection[UUID]) -> int:
        """Add sources of a ``copy_of`` that are in ``known``, for folders of this computer that have no source here."""
        try:
            sources = _SourceFile.model_validate_json(copy).sources
        except ValidationError as exc:
            raise Invalid(f"the copy of {FILE} is damaged: {exc}") from exc
        with self._locked():
            kept = self._read()
            here = {(one.container_id, one.folder, one.machine) for one in kept}
            missing = [
                one
                for one in sources
                if one.source_id in known
                and one.machine == machine_id()
                and (one.container_id, one.folder, one.machine) not in here
                and Path(one.folder).is_dir()
            ]
            if missing:
                self._write([*missing, *kept][-MAX_ENTRIES:])
        return len(missing)

    def _read(self) -> list[RegisteredSource]:
        try:
            with (self.data_dir / FILE).open("rb") as opened:
                content = opened.read(MAX_BYTES)
            return _SourceFile.model_validate_json(content).sources
        except FileNotFoundError:
            return []
        except (OSError, ValidationError) as exc:
            raise self._unusable(exc) from exc

    def _write(self, sources: Sequence[RegisteredSource]) -> None:
        new = self.data_dir / f"{FILE}.new"
        new.write_text(_written(sources), "utf-8")
        os.replace(new, self.data_dir / FILE)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Other processes wait. They hold the lock for milliseconds."""
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self.data_dir / f"{FILE}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as exc:
            raise self._unusable(exc) from exc

    def _unusable(self, exc: OSError | ValidationError) -> Invalid:
        cause = exc.strerror if isinstance(exc, OSError) else "it is damaged"
        return Invalid(
            f"{self.data_dir / FILE}, which lists the synced folders, cannot be used: {cause or exc}. Make it usable, "
            "or delete it; a folder is then recognised by its files."
        )


def _written(sources: Sequence[RegisteredSource]) -> str:
    return _SourceFile(sources=list(sources)).model_dump_json(indent=1)


def machine_id() -> str:
    """A digest of the computer's id, which a new host name does not change; empty where there is none, as on macOS."""
    try:
        content = MACHINE_ID.read_bytes().strip()
    except OSError:
        return ""
    return hashlib.sha256(content).hexdigest()[:32] if content else ""


def _replaces(new: RegisteredSource, old: RegisteredSource) -> bool:
    return new.source_id == old.source_id or (
        (new.gateway, new.container_id, new.folder, new.machine)
        == (old.gateway, old.container_id, old.folder, old.machine)
        and (new.name == old.name or new.root == old.root)
    )
