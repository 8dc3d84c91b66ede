"""The data directory with its lock and owner token, and the work folder of processes that use servers only.

These are a few small file operations at start-up, so they are synchronous.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import orjson
import psutil

from latent_core.domain.errors import Conflict, Invalid, OutOfSpace
from latent_core.domain.versions import too_old
from latent_core.runtime.file_lock import try_lock

TOKEN_PREFIX = "llc_"
TOKEN_BYTES = 32
PRIVATE = 0o700
FORMAT_FILE = "format"
"""Present in every data directory whose database started at the initial revision. It is written before the database
is created, so a database without it is older."""
FORMAT = "2\n"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_TAKE_SECONDS = 1.0  # time for an owner to finish, or for a check by ``owner_of``
_TAKE_POLL_SECONDS = 0.02
_SHARED_BITS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds a data directory; ``started`` is in seconds since the epoch."""

    pid: int
    started: float


class DataDirectory:
    """One data directory. Call ``acquire`` before anything else uses it, and ``release`` last."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._lock: int | None = None

    @property
    def postgres(self) -> Path:
        return self.path / "postgres"

    @property
    def vectors(self) -> Path:
        return self.path / "vectors"

    @property
    def blobs(self) -> Path:
        return self.path / "blobs"

    @property
    def models(self) -> Path:
        return self.path / "models"

    @property
    def tmp(self) -> Path:
        """Emptied by ``acquire``."""
        return self.path / "tmp"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def log_file(self) -> Path:
        return self.log / "latent.log"

    @property
    def manifests(self) -> Path:
        return self.path / "manifests"

    def acquire(self) -> None:
        """Create the tree and own it until ``release`` or the end of the process.

        Raises ``Conflict`` with the pid of another owner, or for a directory of an older version, which then stays
        unchanged; ``Invalid`` when the folder cannot be used, ``OutOfSpace`` when its disk is full.
        """
        if self._lock is not None:
            return
        with storage_errors(self.path):
            self._refuse_older()
            self._make_root()
            lock = os.open(self.path / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _take(lock, self.path)
                self._make_tree()
            except BaseException:
                os.close(lock)
                raise
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def token(self) -> str:
        """The owner's bearer token; created at first use."""
        file = self.path / "token"
        with storage_errors(self.path):
            if not (token := _read_token(file)):
                _make_token(file)
                token = _read_token(file)
        return token

    def _make_root(self) -> None:
        if not self.path.is_dir():
            self.path.mkdir(PRIVATE)
        # For root, Postgres runs as another user, which must be able to traverse this folder.
        mode = 0o711 if os.geteuid() == 0 else PRIVATE
        if (present := self.path.stat()).st_uid == os.geteuid() and _mode(present) != mode:
            self.path.chmod(mode)

    def _refuse_older(self) -> None:
        """Does not start the database, since starting writes to its files."""
        if (self.postgres / "PG_VERSION").is_file() and not (self.path / FORMAT_FILE).is_file():
            raise too_old(str(self.path), "LLC_DATA_DIR")

    def _make_tree(self) -> None:
        self._refuse_older()  # again: another process may have created the database since
        (self.path / FORMAT_FILE).write_text(FORMAT, encoding="ascii")
        for folder in (self.postgres, self.vectors, self.blobs, self.models, self.log):
            folder.mkdir(PRIVATE, exist_ok=True)
        self.manifests.mkdir(PRIVATE, exist_ok=True)
        if self.tmp.exists():
            shutil.rmtree(self.tmp)
        self.tmp.mkdir(PRIVATE)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


def owner_of(path: Path) -> Owner | None:
    """The current owner of the data directory, if any."""
    try:
        lock = os.open(path / "owner.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return None if try_lock(lock) else _read_owner(lock)
    finally:
        os.close(lock)


def _take(lock: int, path: Path) -> None:
    deadline = time.monotonic() + _TAKE_SECONDS
    while not try_lock(lock):
        if time.monotonic() > deadline:
            raise _held(_read_owner(lock), path)
        time.sleep(_TAKE_POLL_SECONDS)
    me = Owner(os.getpid(), psutil.Process().create_time())
    os.ftruncate(lock, 0)
    os.pwrite(lock, orjson.dumps(me), 0)


def _held(owner: Owner, path: Path) -> Conflict:
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(owner.started))
    return Conflict(
        f"{path} is held by process {owner.pid}, running since {since}: "
        "stop it, or choose another LLC_DATA_DIR",
        pid=owner.pid,
    )


def _read_owner(lock: int) -> Owner:
    """The holder writes right after it locks; a reader in between sees pid 0."""
    try:
        return Owner(**orjson.loads(os.pread(lock, 4096, 0)))
    except (ValueError, TypeError):
        return Owner(0, time.time())


def _read_token(file: Path) -> str:
    """The token, or "" before it exists. Restricts the file to its owner."""
    try:
        with file.open(encoding="utf-8") as opened:
            if _mode(os.fstat(opened.fileno())) & _SHARED_BITS:
                os.fchmod(opened.fileno(), 0o600)
            return opened.read().strip()
    except FileNotFoundError:
        return ""


def _make_token(file: Path) -> None:
    """Atomic: written to another file, then renamed."""
    draft = file.with_name(f"token.{secrets.token_hex(4)}")
    try:
        with open(
            os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as out:
            out.write(TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES) + "\n")
            out.flush()
            os.fsync(out.fileno())
        if file.exists() and not file.stat().st_size:
            file.unlink()
        os.link(draft, file)
    except FileExistsError:
        return  # another process created the token first
    finally:
        draft.unlink(missing_ok=True)


def _mode(status: os.stat_result) -> int:
    return stat.S_IMODE(status.st_mode)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise ``OutOfSpace`` or ``Invalid`` with a remedy for errors of the file system."""
    try:
        yield
    except OSError as exc:
        if exc.errno in _NO_SPACE:
            raise OutOfSpace(f"the disk of {path} is full: free disk space and try again") from exc
        raise Invalid(f"{path} cannot be used as data directory: {_why(exc, path)}") from exc


def _why(exc: OSError, path: Path) -> str:
    match exc:
        case FileNotFoundError():
            return f"{path.parent} does not exist; create it, or choose another LLC_DATA_DIR"
        case PermissionError():
            return f"no permission for {exc.filename}; run as its owner, or choose another LLC_DATA_DIR"
        case FileExistsError() | NotADirectoryError():
            return f"{exc.filename} is not a folder; move it, or choose another LLC_DATA_DIR"
    if exc.errno == errno.ENOLCK:
        return (
            "its file system does not support locks; set LLC_DATA_DIR to a folder on a local disk"
        )
    return f"{exc.strerror} ({exc.filename})"


YOUNG_SECONDS: Final = 60.0
_LOCK: Final = "lock"


class WorkFolder:
    """A folder below ``path``, which several gateways and workers may share. It holds temporary files only."""

    def __init__(self, path: Path) -> None:
        self._shared = DataDirectory(path)
        self._own = self._all / f"{os.getpid()}-{secrets.token_hex(4)}"
        self._lock: int | None = None

    @property
    def path(self) -> Path:
        return self._shared.path

    @property
    def models(self) -> Path:
        return self._shared.models

    @property
    def tmp(self) -> Path:
        """This process's own folder, removed when it ends."""
        return self._own / "tmp"

    @property
    def _all(self) -> Path:
        return self._shared.path / "work"

    def token(self) -> str:
        """As in a data directory: created at first use, the same for all processes that share the folder."""
        return self._shared.token()

    def __enter__(self) -> Self:
        with storage_errors(self.path):
            self.path.mkdir(PRIVATE, parents=True, exist_ok=True)
            self.models.mkdir(PRIVATE, exist_ok=True)
            self._all.mkdir(PRIVATE, exist_ok=True)
            self._sweep()
            self._own.mkdir(PRIVATE)
            self._lock = os.open(self._own / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.tmp.mkdir(PRIVATE)
        return self

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self._own, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _sweep(self) -> None:
        """Remove the folders of killed processes: their locks are gone."""
        for folder in self._all.iterdir():
            try:
                if time.time() - folder.stat().st_mtime < YOUNG_SECONDS:
                    continue  # its process may not have locked it yet
                lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            except OSError:  # another process removes it
                continue
            try:
                if try_lock(lock):
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                continue
            finally:
                os.close(lock)
