"""The child's folder of collections: created and removed atomically, opened on demand.

``<folder>/<collection>/`` holds a collection and its marker, ``collection.json``. A collection is one file, which is
read into memory differently when it is large (``flat``, ``large``). A folder whose name starts with a dot is being created or removed; the next start deletes it. Nothing is opened before it is used.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from latent_core.vectors.edge import saved_codes
from latent_core.vectors.edge.conversion import is_convertible, is_large, remove_remains, to_log
from latent_core.vectors.edge.durable import sync_path
from latent_core.vectors.edge.flat import FlatCollection, create_flat
from latent_core.vectors.edge.large import LargeCollection
from latent_core.vectors.edge.logged import LoggedCollection
from latent_core.vectors.edge.marker import LARGE_FROM_POINTS, CollectionMarker, Layout, damaged
from latent_core.vectors.edge.point_log import PointLog
from latent_core.vectors.edge.protocol import POINT_LOG, Fault, RequestRefused

if TYPE_CHECKING:  # loaded with its engine for what earlier versions left, and not before
    from latent_core.vectors.edge.shard import Shard

logger = logging.getLogger(__name__)

MAX_DIMS: Final = 65_536
_CHURN: Final = "deleted"
"""The number of points deleted since space was last reclaimed: a hint, so never synced."""
_MAKING: Final = ".making-"
_REMOVING: Final = ".removing-"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_FLUSH_SECONDS: Final = 5.0
_FLUSH_POINTS: Final = 4096
"""After a crash at most this many points are replayed from the log, which takes about as long as writing them."""
_TIDY_POINTS: Final = 2000
_RETRY_SECONDS: Final = 60.0
"""After a conversion or a rewrite that failed."""
_MEGABYTE: Final = 1 << 20

OpenCollection: TypeAlias = "FlatCollection | LargeCollection | Shard"


def _quarter_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


@dataclass(frozen=True, slots=True)
class OpenLimits:
    """How much is held open; the collection that was used last always is."""

    large_bytes: int = field(default_factory=_quarter_of_memory)
    """Of large collections; of shards, mapped files, which the system takes back when memory is short."""
    flat_bytes: int = 256 * _MEGABYTE
    """Of small collections."""


class Store:
    """All collections below ``folder``. The engine repeatedly crashed on the ``distrusted`` ones."""

    def __init__(
        self,
        folder: Path,
        *,
        min_free_bytes: int,
        distrusted: frozenset[str] = frozenset(),
        limits: OpenLimits | None = None,
        large_from: int = LARGE_FROM_POINTS,
    ) -> None:
        """A collection of ``large_from`` points is large."""
        self._folder = folder
        self._min_free_bytes = min_free_bytes
        self._distrusted = distrusted
        self._limits = limits or OpenLimits()
        self._large_from = large_from
        self._open: OrderedDict[str, OpenCollection] = OrderedDict()
        self._unsettled: set[str] = set()
        """Open collections that ``settle`` may have work on."""
        self._brief: set[str] = set()
        """Open collections that are closed when ``settle`` has no work on them."""
        self._retry_at: dict[str, float] = {}

    def clear_remains(self) -> None:
        """Delete what an earlier process left partly created or removed."""
        for pattern in (f"{_MAKING}*", f"{_REMOVING}*"):
            for remains in self._folder.glob(pattern):
                shutil.rmtree(remains, ignore_errors=True)

    def names(self) -> list[str]:
        with os.scandir(self._folder) as entries:
            return sorted(one.name for one in entries if one.name[0] != "." and one.is_dir())

    def create(self, name: str, dims: int) -> None:
        """An existing collection is not opened: a start creates all that there should be."""
        path = self._path(name)
        if path.exists():
            if (present := CollectionMarker.read(path).dims) != dims:
                raise RequestRefused(Fault.CONFLICT, f"has {present} dimensions, not {dims}")
            return
        if not 1 <= dims <= MAX_DIMS:
            raise RequestRefused(Fault.INVALID, f"cannot have {dims} dimensions: 1 to {MAX_DIMS}")
        self.require_space()
        draft = self._folder / f"{_MAKING}{name}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(0o700)
        create_flat(draft, dims)
        CollectionMarker(dims, Layout.FLAT).write(draft)
        draft.rename(path)
        sync_path(self._folder)

    def drop(self, name: str) -> None:
        path = self._path(name)
        self.forget(name)
        if not path.exists():
            return
        doomed = self._folder / f"{_REMOVING}{name}"
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        sync_path(self._folder)
        shutil.rmtree(doomed)

    def get(self, name: str, *, briefly: bool = False) -> OpenCollection:
        """The open collection. Refuses one that does not exist or cannot be opened.

        One that is opened ``briefly`` is soon closed, unless another request needs it, and closes none that is in use.
        Sizes are measured every hour: the memory of all collections is not for that.
        """
        if (present := self._open.get(name)) is not None:
            if not briefly:
                self._open.move_to_end(name)
                if name in self._brief:
                    self._brief.discard(name)
                    self._close_excess()
            return present
        path = self._path(name)
        if not path.exists():
            raise RequestRefused(Fault.NOT_FOUND, "does not exist")
        if name in self._distrusted:
            raise damaged("the engine crashed on it repeatedly")
        if briefly:
            for other in [*self._brief]:
                self._close_one(other)
        self._open[name] = opened = _load(path, self._large_from)
        self._unsettled.add(name)
        if briefly:
            self._brief.add(name)
            self._open.move_to_end(name, last=False)
        else:
            self._close_excess()
        return opened

    def forget(self, name: str) -> None:
        """Close the collection in any state; the next request opens it again."""
        self._brief.discard(name)
        if (collection := self._open.pop(name, None)) is not None:
            with suppress(Exception):  # its log holds everything acknowledged
                collection.close()

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

    def after_write(self, name: str) -> None:
        """Flush a shard with many unflushed points, to limit the replay after a crash. Close a collection that has become
        large: the next request opens it as one."""
        collection = self._open[name]
        self._unsettled.add(name)
        if not isinstance(collection, LoggedCollection):
            if collection.unflushed >= _FLUSH_POINTS:
                _flush(collection)
        elif isinstance(collection, FlatCollection) and is_large(
            collection.points_in_log, collection.dims, self._large_from
        ):
            self.forget(name)

    def settle(self, note_busy: Callable[[str], None]) -> float | None:
        """Do one piece of work that is due; returns the seconds until the next, None without one.

        ``note_busy`` gets the name of the collection during a conversion, and none after it.
        """
        works = [work for name in list(self._unsettled) for work in self._works(name)]
        if not works:
            return None
        work = min(works, key=lambda one: one.due_at)
        remaining = work.due_at - time.monotonic()
        if remaining > 0:
            return remaining
        note_busy(work.busy_with)
        work.run()
        note_busy("")
        return 0.0

    def tidy(self) -> None:
        """Reclaim the space of many deleted points. Slow: at a first start only."""
        for name in self.names():
            churn = self._folder / name / _CHURN
            if name in self._distrusted or _number(churn) < _TIDY_POINTS:
                continue
            try:
                collection = self.get(name)
                if not isinstance(collection, LoggedCollection):
                    collection.optimize()
            except RequestRefused as exc:
                logger.warning(
                    "vector_collection_not_optimised",
                    extra={"collection": name, "cause": exc.message},
                )
            else:
                churn.unlink(missing_ok=True)

    def close(self) -> None:
        while self._open:
            self._close_one(next(iter(self._open)))

    def _works(self, name: str) -> list[_Work]:
        """What an open collection needs, and when."""
        works = []
        collection = self._open.get(name)
        retry_at = self._retry_at.get(name, 0.0)
        if isinstance(collection, LoggedCollection):
            if collection.is_wasteful:
                rewrite = partial(self._rewrite, name, collection.rewrite)
                works.append(_Work(retry_at, rewrite, name))
            elif isinstance(collection, LargeCollection) and saved_codes.is_due(collection):
                due_at = max(retry_at, collection.written_at + saved_codes.QUIET_SECONDS)
                works.append(_Work(due_at, partial(self._save, name, collection), name))
        elif collection is not None:
            if collection.unflushed:
                due_at = collection.dirty_since + _FLUSH_SECONDS
                # Not noted as busy: a full disk must not make the collection a distrusted one.
                works.append(_Work(due_at, partial(_flush, collection), busy_with=""))
            if is_convertible(collection):
                convert = partial(self._rewrite, name, partial(to_log, collection))
                works.append(_Work(retry_at, convert, name))
        if not works:
            self._unsettled.discard(name)
            if name in self._brief:
                self._close_one(name)
        return works

    def _rewrite(self, name: str, rewrite: Callable[[], None]) -> None:
        """Convert a collection or rewrite its file, and close it. After a failure it goes on as it was."""
        try:
            self.require_space()
            rewrite()
        except BaseException as exc:  # the engine raises bare Exceptions, and also panics
            if isinstance(exc, KeyboardInterrupt | SystemExit):
                raise
            logger.warning(
                "vector_collection_not_rewritten", exc_info=True, extra={"collection": name}
            )
            self._retry_at[name] = time.monotonic() + _RETRY_SECONDS
        self.forget(name)

    def _save(self, name: str, collection: LargeCollection) -> None:
        """Save the table of a large collection; without space for it, or after an error, its log is read again."""
        try:
            self.require_space()
            saved_codes.save(collection)
        except (OSError, RequestRefused) as exc:
            logger.warning("vector_codes_not_saved", extra={"collection": name, "cause": str(exc)})
            self._retry_at[name] = time.monotonic() + _RETRY_SECONDS

    def _close_excess(self) -> None:
        """Close those that were not used for longest, never the one that is used now."""
        limits = self._limits
        flats = [(n, one) for n, one in self._open.items() if isinstance(one, FlatCollection)]
        large = [(n, one) for n, one in self._open.items() if not isinstance(one, FlatCollection)]
        excess = [
            *_excess(large, limits.large_bytes),
            *_excess(flats, limits.flat_bytes),
        ]
        for name in excess:
            self._close_one(name)

    def _close_one(self, name: str) -> None:
        collection = self._open.pop(name)
        self._brief.discard(name)
        if not isinstance(collection, LoggedCollection):
            _note_churn(collection)
        collection.close()

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise RequestRefused(
                Fault.INVALID, "is not a valid name: use letters, digits, '_', '.' and '-'"
            )
        return self._folder / name


@dataclass(frozen=True, slots=True)
class _Work:
    due_at: float
    """In ``time.monotonic()``."""
    run: Callable[[], None]
    busy_with: str


def _excess(collections: Sequence[tuple[str, OpenCollection]], max_bytes: int) -> list[str]:
    """The first ones, which are too much beside the rest; never the last one."""
    total, excess = sum(one.memory_bytes for _, one in collections), []
    for name, one in collections[:-1]:
        if total <= max_bytes:
            break
        total -= one.memory_bytes
        excess.append(name)
    return excess


def _load(path: Path, large_from: int) -> OpenCollection:
    marker = CollectionMarker.read(path)
    try:
        remove_remains(path, marker.layout)
        if marker.layout is Layout.SHARD:
            from latent_core.vectors.edge.shard import Shard

            return Shard(path, marker.dims)
        log = PointLog(path / POINT_LOG, marker.dims)
        if (saved := saved_codes.opened(path, log)) is not None:
            return saved
        records = log.read()
        large = is_large(log.upserted, log.dims, large_from)
        return (LargeCollection if large else FlatCollection)(path, log, records)
    except BaseException as exc:  # the engine raises bare Exceptions, and also panics
        if isinstance(exc, KeyboardInterrupt | SystemExit):
            raise
        logger.exception("vector_collection_open_failed", extra={"collection": path.name})
        raise damaged("see the log") from exc


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
