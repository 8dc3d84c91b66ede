"""The child's folder of collections: created and removed atomically, opened on demand.

``<folder>/<collection>/`` holds one shard and its marker, ``collection.json``. A folder whose name
starts with a dot is being created or removed; the next start deletes it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from latent_core.vectors.edge.protocol import Fault
from latent_core.vectors.edge.shard import RequestRefused, Shard, create_shard, sync_folder

logger = logging.getLogger(__name__)

MAX_DIMS: Final = 65_536
_MARKER: Final = "collection.json"
_CHURN: Final = "deleted"
"""The number of points deleted since space was last reclaimed: a hint, so never synced."""
_MAKING: Final = ".making-"
_REMOVING: Final = ".removing-"
_FORMAT: Final = 2
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_MAX_OPEN: Final = 32
_FLUSH_SECONDS: Final = 5.0
_FLUSH_POINTS: Final = 4096
"""After a crash at most this many points are replayed from the log, which takes about as long as writing them."""
_TIDY_POINTS: Final = 2000


class Store:
    """All collections below ``folder``. The engine repeatedly crashed on the ``distrusted`` ones."""

    def __init__(
        self,
        folder: Path,
        *,
        min_free_bytes: int,
        distrusted: frozenset[str] = frozenset(),
        max_open: int = _MAX_OPEN,
    ) -> None:
        self._folder = folder
        self._min_free_bytes = min_free_bytes
        self._distrusted = distrusted
        self._max_open = max_open
        self._open: OrderedDict[str, Shard] = OrderedDict()

    def clear_remains(self) -> None:
        """Delete what an earlier process left partly created or removed."""
        for pattern in (f"{_MAKING}*", f"{_REMOVING}*"):
            for remains in self._folder.glob(pattern):
                shutil.rmtree(remains, ignore_errors=True)

    def names(self) -> list[str]:
        return sorted(p.name for p in self._folder.iterdir() if p.is_dir() and p.name[0] != ".")

    def create(self, name: str, dims: int) -> None:
        path = self._path(name)
        if path.exists():
            if (present := self.get(name).dims) != dims:
                raise RequestRefused(Fault.CONFLICT, f"has {present} dimensions, not {dims}")
            return
        if not 1 <= dims <= MAX_DIMS:
            raise RequestRefused(Fault.INVALID, f"cannot have {dims} dimensions: 1 to {MAX_DIMS}")
        self.require_space()
        draft = self._folder / f"{_MAKING}{name}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(0o700)
        create_shard(draft, dims)
        _write_synced(draft / _MARKER, orjson.dumps({"format": _FORMAT, "dims": dims}))
        sync_folder(draft)
        draft.rename(path)
        sync_folder(self._folder)

    def drop(self, name: str) -> None:
        path = self._path(name)
        self.forget(name)
        if not path.exists():
            return
        doomed = self._folder / f"{_REMOVING}{name}"
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        sync_folder(self._folder)
        shutil.rmtree(doomed)

    def get(self, name: str) -> Shard:
        """The open collection. Refuses one that does not exist or cannot be opened."""
        if (opened := self._open.get(name)) is not None:
            self._open.move_to_end(name)
            return opened
        path = self._path(name)
        if not path.exists():
            raise RequestRefused(Fault.NOT_FOUND, "does not exist")
        if name in self._distrusted:
            raise _damaged("the engine crashed on it repeatedly")
        while len(self._open) >= self._max_open:
            self._close_one()
        self._open[name] = _load(path)
        return self._open[name]

    def forget(self, name: str) -> None:
        """Close the collection in any state; the next request opens it again."""
        if (shard := self._open.pop(name, None)) is not None:
            with suppress(Exception):  # its log holds everything acknowledged
                shard.close()

    def require_space(self, part: int = 1) -> None:
        """Refuse a write when the disk is too full for the engine's mapped files to grow (SIGBUS).

        Deleting needs only one ``part``-th of the free space that adding needs.
        """
        status = os.statvfs(self._folder)
        free, needed = status.f_bavail * status.f_frsize, self._min_free_bytes // part
        if free < needed:
            raise RequestRefused(
                Fault.OUT_OF_SPACE,
                f"cannot be written: {free >> 20} MB are free on the disk of the vectors, "
                f"{needed >> 20} MB must be; free disk space and try again",
            )

    def flush_large(self, name: str) -> None:
        """Flush a collection with many unflushed points, to limit the replay after a crash."""
        if (shard := self._open.get(name)) and shard.unflushed >= _FLUSH_POINTS:
            _flush(shard)

    def settle(self) -> float | None:
        """Flush one collection that is due; returns the seconds until the next, None without one."""
        dirty = [shard for shard in self._open.values() if shard.unflushed]
        if not dirty:
            return None
        oldest = min(dirty, key=lambda shard: shard.dirty_since)
        remaining = oldest.dirty_since + _FLUSH_SECONDS - time.monotonic()
        if remaining > 0:
            return remaining
        _flush(oldest)
        return 0.0

    def tidy(self) -> None:
        """Reclaim the space of many deleted points. Slow: at a first start only."""
        for name in self.names():
            churn = self._folder / name / _CHURN
            if name in self._distrusted or _number(churn) < _TIDY_POINTS:
                continue
            try:
                self.get(name).optimize()
            except RequestRefused as exc:
                logger.warning(
                    "vector_collection_not_optimised",
                    extra={"collection": name, "cause": exc.message},
                )
            else:
                churn.unlink(missing_ok=True)

    def close(self) -> None:
        while self._open:
            self._close_one()

    def _close_one(self) -> None:
        _, shard = self._open.popitem(last=False)
        _note_churn(shard)
        shard.close()

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise RequestRefused(
                Fault.INVALID, "is not a valid name: use letters, digits, '_', '.' and '-'"
            )
        return self._folder / name


def _load(path: Path) -> Shard:
    dims = _dims(path)
    try:
        return Shard(path, dims)
    except BaseException as exc:  # the engine raises bare Exceptions, and also panics
        if isinstance(exc, KeyboardInterrupt | SystemExit):
            raise
        logger.exception("vector_collection_open_failed", extra={"collection": path.name})
        raise _damaged("see the log") from exc


def _flush(shard: Shard) -> None:
    _note_churn(shard)
    shard.flush()


def _note_churn(shard: Shard) -> None:
    if shard.deleted:
        churn = shard.path / _CHURN
        churn.write_text(str(_number(churn) + shard.deleted), encoding="ascii")
        shard.deleted = 0


def _number(file: Path) -> int:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _dims(path: Path) -> int:
    try:
        marker: Any = orjson.loads((path / _MARKER).read_bytes())
        if marker["format"] != _FORMAT:
            raise _damaged(f"its format is {marker['format']}, this program knows {_FORMAT}")
        return int(marker["dims"])
    except (OSError, ValueError, TypeError, KeyError) as exc:
        raise _damaged(f"its {_MARKER} cannot be read") from exc


def _damaged(why: str) -> RequestRefused:
    return RequestRefused(Fault.UNAVAILABLE, f"cannot be opened ({why}): run `latent doctor`")


def _write_synced(file: Path, content: bytes) -> None:
    with file.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
