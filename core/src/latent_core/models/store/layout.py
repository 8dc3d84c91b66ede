"""The folder of installed models: ``<name>@<revision>/`` with ``model.json``, and ``.adding-…`` while one is fetched.

Nothing here follows a link. One lock file per name serialises processes that add, import or remove.
"""

from __future__ import annotations

import difflib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from latent_core.domain.errors import Conflict, Invalid, NotFound, OutOfSpace, TimedOut
from latent_core.models.store.hashes import hashes_of, open_regular
from latent_core.models.store.record import (
    FOLDER,
    FULL_PRECISION,
    MAX_RECORD_BYTES,
    RECORD_FILE,
    VERSION,
    InstalledModel,
    ModelFile,
    base_version,
    half_versions,
    name_of,
    parse_record,
)
from latent_core.runtime.file_lock import try_lock

ADDING: Final = ".adding-"
REMOVING: Final = ".removing-"
LOCK: Final = ".lock-"
PRIVATE: Final = 0o700
FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_POLL_SECONDS: Final = 0.2

OnWait = Callable[[int], None]
"""Called once with the process that is waited for; 0 if it is not known."""


@dataclass(frozen=True, slots=True)
class PartialModel:
    """A model whose files have not all arrived."""

    reference: str
    size: int


@dataclass(frozen=True, slots=True)
class FileDamage:
    """A file of a model that is not as it was installed."""

    path: str
    message: str


class ModelStore:
    """The models in ``root``, which need not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def models(self) -> list[InstalledModel]:
        """All readable ones by name, of a name the newest in full precision first."""
        found = []
        for folder in self._folders():
            try:
                found.append(read_record(folder))
            except Invalid:
                continue
        found.sort(key=lambda model: model.added_at, reverse=True)
        # Quantised ones are never chosen by themselves, not even before fp16.
        return sorted(
            found,
            key=lambda m: (m.name, m.precision != "fp32", m.precision not in FULL_PRECISION),
        )

    def unreadable(self) -> dict[str, str]:
        """Folders of models without a valid record, each with the reason."""
        reasons = {}
        for folder in self._folders():
            try:
                read_record(folder)
            except Invalid as exc:
                reasons[folder.name] = exc.message
        return reasons

    def partial(self) -> list[PartialModel]:
        return [
            PartialModel(folder.name.removeprefix(ADDING), _size_of(folder))
            for folder in self._entries()
            if folder.name.startswith(ADDING)
        ]

    def newest(self, name: str, *, images: bool = False) -> InstalledModel | None:
        """The model that a manifest means by ``name``: with ``images`` one that reads them, if there is any."""
        named = [model for model in self.models() if model.name == name]
        if images:
            named.sort(key=lambda model: model.kind != "image_embedder")
        return named[0] if named else None

    def of_version(self, version: str) -> InstalledModel | None:
        """The model of vectors of a version such as ``nomic-ai/nomic-embed-text-v1.5@0123456789ab``: that one, or
        one of half precision that counts as it."""
        found = self._exactly(version)
        if found is not None:
            return found
        others = (self._exactly(one) for one in half_versions(version))
        return next((one for one in others if one is not None and one.counts_as_fp32), None)

    def _exactly(self, version: str) -> InstalledModel | None:
        version = base_version(version)
        folder = self._folder_of(version)
        try:
            model = read_record(folder) if folder is not None else None
        except Invalid:
            return None
        return model if model is not None and model.version == version else None

    def has(self, version: str) -> bool:
        """Whether a model of a version is installed; by one look at the disk if it is the very one."""
        folder = self._folder_of(version)
        exact = folder is not None and (folder / RECORD_FILE).is_file()
        return exact or self.of_version(version) is not None

    def _folder_of(self, version: str) -> Path | None:
        parts = VERSION.fullmatch(base_version(version))
        return self.root / f"{name_of(parts['hub_id'])}@{parts['rest']}" if parts else None

    def find(self, text: str) -> InstalledModel:
        """The model that ``text`` names: its name or hub id, with or without a revision."""
        base, _, rest = text.strip().partition("@")
        revision, _, precision = rest.partition("+")
        models = self.models()
        matching = [model for model in models if text in (model.reference, model.version)] or [
            model
            for model in models
            if (base == model.hub_id or base.lower() == model.name)
            and model.revision.startswith(revision)
            and precision in ("", model.precision)
        ]
        if len(matching) == 1:
            return matching[0]
        if matching:
            several = ", ".join(model.reference for model in matching)
            raise Invalid(f"'{text}' is installed several times: write one of {several}")
        raise _not_installed(text, base, models)

    def folder(self, model: InstalledModel) -> Path:
        return self.root / model.reference

    def adding(self, reference: str) -> Path:
        return self.root / f"{ADDING}{reference}"

    @contextmanager
    def locked(self, name: str, seconds: float, on_wait: OnWait | None = None) -> Iterator[None]:
        """Hold the lock of ``name``; ``TimedOut`` if another process keeps it for ``seconds``."""
        with disk_errors(self.root):
            self.root.parent.mkdir(PRIVATE, parents=True, exist_ok=True)  # the data directory
            self.root.mkdir(PRIVATE, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.open(self.root / f"{LOCK}{name}", flags, 0o600)
        try:
            _take(lock, name, seconds, on_wait)
            os.pwrite(lock, b"%-10d" % os.getpid(), 0)
            yield
        finally:
            os.close(lock)

    def publish(self, adding: Path, model: InstalledModel) -> None:
        """Write the record into ``adding`` and make it the model's folder, in the place of a damaged one."""
        with disk_errors(self.root):
            _write_durably(adding / RECORD_FILE, model.model_dump_json(indent=1).encode())
            for file in model.files:
                _sync(adding / file.path)
            target = self.folder(model)
            if target.exists():
                self._drop(target)
            adding.rename(target)
            _sync(self.root)

    def rewrite(self, model: InstalledModel) -> None:
        """Replace the record of an installed model. The caller holds the lock."""
        record = self.folder(model) / RECORD_FILE
        draft = record.with_name(f".{RECORD_FILE}")
        with disk_errors(self.root):
            _write_durably(draft, model.model_dump_json(indent=1).encode())
            draft.replace(record)

    def remove(self, model: InstalledModel) -> None:
        """Remove the model and what is left of earlier attempts. The caller holds the lock."""
        self._drop(self.folder(model))

    def remove_partial(self, reference: str) -> bool:
        """Remove what an interrupted ``add`` left; whether there was any."""
        matching = [
            folder
            for folder in self._entries()
            if folder.name.startswith(ADDING)
            and reference in (own := folder.name.removeprefix(ADDING), own.partition("@")[0])
        ]
        for folder in matching:
            shutil.rmtree(folder)
        return bool(matching)

    def verify(self, model: InstalledModel) -> list[FileDamage]:
        """Hash all files again."""
        folder = self.folder(model)
        found = [damage for file in model.files if (damage := _damage(folder, file)) is not None]
        expected = {RECORD_FILE, *(file.path for file in model.files)}
        strange = [path for path in _paths_below(folder) if path not in expected]
        return [*found, *(FileDamage(path, "is not a file of this model") for path in strange)]

    def _drop(self, folder: Path) -> None:
        """Renamed first: a removal that is interrupted leaves no half of a model."""
        doomed = self.root / f"{REMOVING}{folder.name}-{os.getpid()}"
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def _entries(self) -> list[Path]:
        try:
            entries = sorted(self.root.iterdir())
        except FileNotFoundError:
            return []
        return [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]

    def _folders(self) -> list[Path]:
        return [entry for entry in self._entries() if FOLDER.fullmatch(entry.name)]


def read_record(folder: Path) -> InstalledModel:
    """The record of a model's folder; ``Invalid`` says what is wrong with it."""
    path = folder / RECORD_FILE
    try:
        with open_regular(path) as file:
            content = file.read(MAX_RECORD_BYTES + 1)
    except OSError as exc:
        raise Invalid(f"{path} cannot be read: {exc.strerror or exc}") from exc
    if len(content) > MAX_RECORD_BYTES:
        raise Invalid(f"{path} is larger than {MAX_RECORD_BYTES} bytes")
    model = parse_record(content, str(path))
    if model.reference != folder.name:
        raise Invalid(f"{path} is the record of {model.reference}")
    return model


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """``OutOfSpace`` for a full disk, ``Invalid`` with the cause for other errors of the file system."""
    try:
        yield
    except OSError as exc:
        if exc.errno in FULL:
            raise OutOfSpace(
                f"the disk of {place} is full ({exc.strerror}): free disk space, or set LLC_DATA_DIR to another disk"
            ) from exc
        raise Invalid(f"{exc.filename or place} cannot be used: {exc.strerror or exc}") from exc


def _damage(folder: Path, file: ModelFile) -> FileDamage | None:
    try:
        _refuse_links(folder, file.path)
        own = hashes_of(folder / file.path)
    except FileNotFoundError:
        return FileDamage(file.path, "is missing")
    except OSError as exc:
        return FileDamage(file.path, f"cannot be read: {exc.strerror or exc}")
    if own.size != file.size:
        return FileDamage(file.path, f"has {own.size} bytes, expected {file.size}")
    if own.sha256 != file.sha256:
        return FileDamage(file.path, f"has the SHA-256 {own.sha256}, expected {file.sha256}")
    return None


def _refuse_links(folder: Path, path: str) -> None:
    place = folder
    for part in path.split("/"):
        place = place / part
        if place.is_symlink():
            raise OSError(f"{place} is a link")


def _paths_below(folder: Path) -> list[str]:
    """All files and links below ``folder``, none of which is followed."""
    paths = []
    for place, _, names in os.walk(folder):
        paths += [str((Path(place) / name).relative_to(folder)) for name in names]
    return sorted(paths)


def _size_of(folder: Path) -> int:
    total = 0
    for path in _paths_below(folder):
        try:
            total += (folder / path).lstat().st_size
        except FileNotFoundError:  # its process renamed it
            continue
    return total


def _take(lock: int, name: str, seconds: float, on_wait: OnWait | None) -> None:
    deadline = time.monotonic() + seconds
    while not try_lock(lock):
        holder = _holder(lock)
        if on_wait is not None:
            on_wait(holder)
            on_wait = None
        if time.monotonic() >= deadline:
            raise TimedOut(
                f"process {holder} still installs or removes {name} after {seconds:.0f} s:"
                " wait for it or end it, then try again",
                pid=holder,
            )
        time.sleep(min(_POLL_SECONDS, max(seconds, 0.01)))


def _holder(lock: int) -> int:
    content = os.pread(lock, 32, 0).strip()
    return int(content) if content.isdigit() else 0


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_installed(text: str, base: str, models: list[InstalledModel]) -> NotFound:
    near = difflib.get_close_matches(base.lower(), [model.name for model in models], n=1)
    if near:
        remedy = f"did you mean '{near[0]}'?"
    elif models:
        remedy = f"installed are {', '.join(model.reference for model in models)}"
    else:
        remedy = "none is: latent models add <hub id> installs one"
    return NotFound(f"the model '{text}' is not installed; {remedy}")


def refuse_other_owner(store: ModelStore, name: str, hub_id: str) -> None:
    """``Conflict`` if a model of another repository has this name: manifests could not tell them apart."""
    other = next((m for m in store.models() if m.name == name and m.hub_id != hub_id), None)
    if other is not None:
        raise Conflict(
            f"{other.hub_id} is installed under the name {name}, which {hub_id} would have, too:"
            f" remove it first with latent models remove {other.reference}"
        )
