"""One file per model, for machines without a network: an uncompressed tar with ``model.json`` first.

An import accepts only what the record names: regular files with these paths, sizes and hashes. Headers are read one by
one, without extensions of the format: those can be of any size, and ``tarfile`` would hold them in memory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from tarfile import AREGTYPE, BLOCKSIZE, GNU_FORMAT, REGTYPE, HeaderError, TarInfo
from typing import BinaryIO, Final

from latent_core.domain.errors import Conflict, Invalid, OutOfSpace, TooLarge
from latent_core.models.store.add import (
    AddLimits,
    AddResult,
    Description,
    FolderReader,
    OnProgress,
)
from latent_core.models.store.hashes import open_regular
from latent_core.models.store.layout import (
    PRIVATE,
    ModelStore,
    OnWait,
    disk_errors,
    refuse_other_owner,
)
from latent_core.models.store.precision import compare_others, compared
from latent_core.models.store.record import (
    MAX_RECORD_BYTES,
    RECORD_FILE,
    InstalledModel,
    ModelFile,
    parse_record,
)

SUFFIX: Final = ".model.tar"
_BLOCK: Final = 1024 * 1024
_ZEROS: Final = bytes(BLOCKSIZE)


def export_model(
    store: ModelStore, model: InstalledModel, target: Path, on_progress: OnProgress
) -> int:
    """Write the model to ``target`` and return its size. ``Conflict`` if the file exists or the model is damaged."""
    if damage := store.verify(model):
        raise Conflict(
            f"{model.reference} is damaged: {damage[0].path} {damage[0].message}; {model.add_command} mends it"
        )
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    with disk_errors(target.parent):
        if target.exists():
            raise Conflict(f"{target} exists: remove it, or choose another file with --to")
        try:
            with draft.open("xb") as file:
                _write(file, store.folder(model), model, on_progress)
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, target)  # unlike a renaming, it never replaces a file
        except FileExistsError as exc:
            raise Conflict(f"{target} exists: remove it, or choose another file with --to") from exc
        finally:
            draft.unlink(missing_ok=True)
        return target.stat().st_size


def import_model(
    store: ModelStore,
    source: Path,
    reader: FolderReader,
    limits: AddLimits,
    on_progress: OnProgress,
    on_wait: OnWait | None = None,
) -> AddResult:
    """Install the model of an exported file."""
    try:
        file = source.open("rb")
    except OSError as exc:
        raise Invalid(f"{source} cannot be read: {exc.strerror}") from exc
    with file:
        archive = _ArchiveReader(file, source)
        model = archive.record()
        if model.size > limits.max_bytes:
            raise TooLarge(
                f"{source} has a model of {model.size} bytes; LLC_MAX_MODEL_BYTES is {limits.max_bytes}: raise it"
            )
        with store.locked(model.name, limits.wait_seconds, on_wait):
            present = next((m for m in store.models() if m.version == model.version), None)
            if present is not None and not store.verify(present):
                return AddResult(present, fetched=False)
            refuse_other_owner(store, model.name, model.hub_id)
            _check_space(store, model, limits)
            adding = store.adding(model.reference)
            shutil.rmtree(
                adding, ignore_errors=True
            )  # of an interrupted ``add``: this file has all
            try:
                with disk_errors(adding):
                    adding.mkdir(PRIVATE)
                    archive.extract(model, adding, on_progress)
                    _compare(reader.describe(adding, model.precision), model, source)
                    model = compared(store, model)
                    store.publish(adding, model)
                    compare_others(store, model)
            finally:
                shutil.rmtree(adding, ignore_errors=True)
    return AddResult(model, fetched=True)


class _ArchiveReader:
    """Reads the members of an exported file in their order."""

    def __init__(self, file: BinaryIO, source: Path) -> None:
        self._file, self._source = file, source

    def record(self) -> InstalledModel:
        member = self._next()
        if member is None or member.name != RECORD_FILE or member.size > MAX_RECORD_BYTES:
            raise self._invalid(f"it does not begin with {RECORD_FILE}")
        content = self._read(member.size)
        self._skip_padding(member.size)
        return parse_record(content, f"{RECORD_FILE} of {self._source}")

    def extract(self, model: InstalledModel, target: Path, on_progress: OnProgress) -> None:
        """Write the files of ``model`` below ``target``."""
        missing = {file.path: file for file in model.files}
        done = 0
        while (member := self._next()) is not None:
            file = missing.pop(member.name, None)
            if file is None:
                raise self._invalid(
                    f"its record does not name the file {member.name!r}, or it comes twice"
                )
            if member.size != file.size:
                raise self._invalid(f"{file.path} has {member.size} bytes, expected {file.size}")
            self._write(file, target / file.path)
            done += file.size
            on_progress(file.path, done, model.size)
        if missing:
            raise self._invalid(f"the file {min(missing)} is missing")

    def _next(self) -> TarInfo | None:
        """The next header; None at the end."""
        header = self._file.read(BLOCKSIZE)
        if header == _ZEROS:
            return None
        try:
            member = TarInfo.frombuf(header, "utf-8", "strict")
        except (HeaderError, UnicodeDecodeError) as exc:
            raise self._invalid("it is damaged, or no file of latent models export") from exc
        if member.type not in (REGTYPE, AREGTYPE):
            raise self._invalid(f"{member.name!r} is no regular file")
        return member

    def _write(self, file: ModelFile, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        own = hashlib.sha256()
        left = file.size
        with target.open("xb") as out:
            while left:
                block = self._read(min(left, _BLOCK))
                own.update(block)
                out.write(block)
                left -= len(block)
        self._skip_padding(file.size)
        if own.hexdigest() != file.sha256:
            raise self._invalid(
                f"{file.path} has the SHA-256 {own.hexdigest()}, expected {file.sha256}"
            )

    def _skip_padding(self, size: int) -> None:
        self._read(-size % BLOCKSIZE)

    def _read(self, count: int) -> bytes:
        content = self._file.read(count)
        if len(content) < count:
            raise self._invalid("it ends too early")
        return content

    def _invalid(self, why: str) -> Invalid:
        return Invalid(
            f"{self._source} cannot be imported: {why}. Export it again and copy it again"
        )


def _write(file: BinaryIO, folder: Path, model: InstalledModel, on_progress: OnProgress) -> None:
    done = 0
    for path in (RECORD_FILE, *(one.path for one in model.files)):
        with open_regular(folder / path) as content:
            member = TarInfo(path)
            member.size = os.fstat(content.fileno()).st_size
            file.write(member.tobuf(GNU_FORMAT, "utf-8", "strict"))
            shutil.copyfileobj(content, file, _BLOCK)
            file.write(bytes(-member.size % BLOCKSIZE))
            done += member.size if path != RECORD_FILE else 0
        on_progress(path, done, model.size)
    file.write(_ZEROS * 2)


def _compare(described: Description, model: InstalledModel, source: Path) -> None:
    stated = (model.kind, model.dims, model.precision)
    if (described.kind, described.dims, described.precision) != stated:
        raise Invalid(
            f"{source} cannot be imported: model.json says {model.kind} with {model.dims} dimensions in"
            f" {model.precision}, but the files are {described.kind} with {described.dims} in {described.precision}"
        )


def _check_space(store: ModelStore, model: InstalledModel, limits: AddLimits) -> None:
    free = shutil.disk_usage(store.root).free
    if model.size + limits.min_free_bytes > free:
        raise OutOfSpace(
            f"{model.reference} needs {model.size + limits.min_free_bytes} bytes on the disk of {store.root},"
            f" LLC_MIN_FREE_BYTES included, but {free} are free: free disk space, or set LLC_DATA_DIR to another disk"
        )
