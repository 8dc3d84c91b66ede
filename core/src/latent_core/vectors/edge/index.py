"""The embedded vector engine: one supervised child process, with Qdrant Edge for large collections (ADR 0001, 0024).

Large calls are split into requests of a bounded size, so that a search waits at most for one of them (or for a
flush of the segments, at most every five seconds). A write returns when it is in the collection's log, the points
exist by id, and the log is on disk.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.errors import (
    Conflict,
    Invalid,
    LatentError,
    NotFound,
    StoreFull,
    TimedOut,
    TooLarge,
    Unavailable,
)
from latent_core.domain.ids import PointId
from latent_core.domain.vector_types import Vector
from latent_core.runtime.tasks import all_or_first_failure
from latent_core.vectors.edge.caller import EngineClient
from latent_core.vectors.edge.durable import sync_path
from latent_core.vectors.edge.marker import LARGE_FROM_POINTS
from latent_core.vectors.edge.protocol import (
    ID_BYTES,
    POINT_LOG,
    Fault,
    ProtocolError,
    VectorOp,
    VectorReply,
    cut,
)
from latent_core.vectors.edge.supervisor import Supervisor, SupervisorTimeouts
from latent_core.vectors.edge.write_coalescer import WriteCoalescer
from latent_core.vectors.port import (
    CollectionLayout,
    Points,
    StoredPoint,
    VectorHits,
    checked_points,
    checked_query,
)

DEADLINE_SECONDS: Final = 10.0
_BATCH_FLOATS: Final = 49_152
_BATCH_POINTS: Final = 256
_WRITES_AT_ONCE: Final = 2
"""While the engine stores one, the next is sent; a search still overtakes all but the first."""
_IDS_PER_REQUEST: Final = 128
_POINTS_PER_DELETE: Final = 2048
_POINTS_PER_SCROLL: Final = 1000
MIN_FREE_BYTES: Final = 256 * 1024 * 1024
"""With less, the engine's memory-mapped files may be unable to grow, which kills it."""
_ERRORS: Final[dict[Fault, type[LatentError]]] = {
    Fault.NOT_FOUND: NotFound,
    Fault.CONFLICT: Conflict,
    Fault.INVALID: Invalid,
    Fault.UNAVAILABLE: Unavailable,
    Fault.TIMED_OUT: TimedOut,
}


class EdgeVectorIndex:
    """``VectorIndex`` over a child process that owns ``folder``. Open it on the event loop's thread."""

    def __init__(
        self, folder: Path, engine: Supervisor | EngineClient, deadline_seconds: float
    ) -> None:
        self._folder = folder
        self._engine = engine
        self._deadline_seconds = deadline_seconds
        self._coalescer = WriteCoalescer(self._store)

    @classmethod
    async def open(
        cls,
        folder: Path,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        timeouts: SupervisorTimeouts | None = None,
        min_free_bytes: int = MIN_FREE_BYTES,
        large_from: int = LARGE_FROM_POINTS,
        listening: socket.socket | None = None,
    ) -> Self:
        """Start the engine on ``folder``, which is created if missing. Further processes can reach it by ``listening``,
        a Unix socket, until it is closed.

        ``deadline_seconds`` bounds each request to the engine (a large write is several); below
        ``min_free_bytes`` of free disk writes raise ``StoreFull``; collections are small below ``large_from``
        points. Raises ``Conflict`` when another
        process holds the folder, ``Unavailable`` when the engine cannot start.
        """
        folder = _made(folder)
        options = ["--min-free-bytes", str(min_free_bytes), "--large-from", str(large_from)]
        supervisor = await Supervisor.start(
            folder, options, ["--tidy"], timeouts or SupervisorTimeouts(), listening
        )
        return cls(folder, supervisor, deadline_seconds)

    @classmethod
    async def connect(
        cls, folder: Path, address: Path, *, deadline_seconds: float = DEADLINE_SECONDS
    ) -> Self:
        """Use the engine that another process has started on ``folder``, by the socket at ``address``. ``Unavailable``
        if it is gone."""
        return cls(folder, await EngineClient.open(address), deadline_seconds)

    @property
    def restarts(self) -> int:
        """How often the engine died and was restarted."""
        return self._engine.restarts

    @property
    def pid(self) -> int | None:
        """The pid of the engine's process; None while there is none."""
        return self._engine.pid

    async def create_collection(
        self,
        name: str,
        dims: int,
        layout: CollectionLayout = CollectionLayout(),  # noqa: ARG002 - one process on one disk has no layout
    ) -> None:
        await self._call(VectorOp.CREATE, name, {"dims": dims})

    async def drop_collection(self, name: str) -> None:
        await self._call(VectorOp.DROP, name)

    async def collections(self) -> list[str]:
        reply = await self._call(VectorOp.COLLECTIONS)
        return list(reply.args["names"])

    async def upsert(self, collection: str, points: Points) -> None:
        checked_points(points)
        await self._coalescer.upsert(collection, points)

    async def search(
        self, collection: str, vector: Vector, k: int, *, allowed: Sequence[PointId] | None = None
    ) -> VectorHits:
        query = checked_query(vector, k)
        args = {"dims": len(query), "k": k, "filtered": allowed is not None}
        body = query.tobytes() + _ids(allowed or ())
        return _hits(await self._call(VectorOp.SEARCH, collection, args, body))

    async def vectors(
        self,
        collection: str,
        ids: Sequence[PointId],
        *,
        all_replicas: bool = False,  # noqa: ARG002 - there is one
    ) -> dict[PointId, Vector]:
        found: dict[PointId, Vector] = {}
        for start in range(0, max(1, len(ids)), _IDS_PER_REQUEST):
            body = _ids(ids[start : start + _IDS_PER_REQUEST])
            found |= _vectors(await self._call(VectorOp.VECTORS, collection, body=body))
        return found

    async def delete(
        self, collection: str, doc_id: UUID, *, below: int | None = None, only: int | None = None
    ) -> int:
        if below is not None and only is not None:
            raise Invalid("set either below or only, not both")
        args = {"below": below, "only": only, "limit": _POINTS_PER_DELETE}
        try:
            return await self._delete(collection, doc_id, args)
        except NotFound:
            return 0

    async def delete_points(self, collection: str, ids: Sequence[PointId]) -> None:
        logs: set[str] = set()
        with suppress(NotFound):
            for start in range(0, len(ids), _POINTS_PER_DELETE):
                body = _ids(ids[start : start + _POINTS_PER_DELETE])
                reply = await self._call(VectorOp.DELETE_POINTS, collection, body=body)
                if reply.args["removed"]:
                    logs.add(reply.args["log"])
            if logs:
                await self._sync(collection, logs)

    async def count(
        self, collection: str, *, doc_id: UUID | None = None, generation: int | None = None
    ) -> int:
        body = doc_id.bytes if doc_id is not None else b""
        reply = await self._call(VectorOp.COUNT, collection, {"generation": generation}, body)
        return int(reply.args["count"])

    async def scroll(
        self, collection: str, *, after: PointId | None, limit: int
    ) -> list[StoredPoint]:
        found: list[StoredPoint] = []
        while True:
            page_size = min(limit - len(found), _POINTS_PER_SCROLL)
            body = after.bytes if after is not None else b""
            page = _stored(
                await self._call(VectorOp.SCROLL, collection, {"limit": page_size}, body)
            )
            found += page
            if len(page) < page_size or len(found) >= limit:
                return found
            after = page[-1].id

    async def close(self) -> None:
        await self._engine.close()

    async def _store(self, collection: str, points: Points) -> None:
        vectors = checked_points(points)
        parts = _batches(len(points.ids), vectors.shape[1])
        logs: set[str] = set()

        async def write_some() -> None:
            for part in parts:
                args = {"n": len(points.ids[part]), "dims": vectors.shape[1]}
                packed = _packed(points, vectors, part)
                reply = await self._call(VectorOp.UPSERT, collection, args, packed)
                logs.add(reply.args["log"])

        await all_or_first_failure(write_some() for _ in range(_WRITES_AT_ONCE))
        await self._sync(collection, logs)

    async def _delete(self, collection: str, doc_id: UUID, args: dict[str, Any]) -> int:
        counted: int | None = None
        logs: set[str] = set()
        while True:
            reply = await self._call(VectorOp.DELETE, collection, args, doc_id.bytes)
            logs.add(reply.args["log"])
            counted = reply.args["before"] if counted is None else counted
            if not reply.args["left"]:
                break
        if counted:
            await self._sync(collection, logs)
        return int(counted)

    async def _sync(self, collection: str, logs: set[str]) -> None:
        """Sync the logs of a collection to disk. Done in this process, since a sync must not delay searches."""
        try:
            async with asyncio.timeout(self._deadline_seconds):
                folder = self._folder / collection
                await asyncio.to_thread(_sync_logs, [folder / log for log in logs])
        except TimeoutError as exc:
            raise TimedOut("the disk of the vectors did not answer in time") from exc
        except FileNotFoundError as exc:
            raise NotFound(f"vector collection {collection} was removed during the write") from exc
        except OSError as exc:
            raise Unavailable(f"{collection} cannot be synced: {exc.strerror}") from exc

    async def _call(
        self,
        op: VectorOp,
        collection: str = "",
        args: dict[str, Any] | None = None,
        body: bytes = b"",
    ) -> VectorReply:
        try:
            reply = await self._engine.call(
                op, self._deadline_seconds, collection, args or {}, body
            )
        except ProtocolError as exc:
            raise TooLarge(f"one {op} is too large for the vector engine: {exc}") from exc
        if reply.fault is Fault.OUT_OF_SPACE:
            raise StoreFull(reply.message, service="qdrant", collection=collection)
        if reply.fault is not None:
            raise _ERRORS[reply.fault](reply.message, collection=collection)
        return reply


def _made(folder: Path) -> Path:
    folder.mkdir(0o700, parents=True, exist_ok=True)
    return folder.absolute()


def _batches(count: int, dims: int) -> Iterator[slice]:
    """Slices of a bounded number of floats; one even without points, so that the collection is checked."""
    size = max(1, min(_BATCH_POINTS, _BATCH_FLOATS // max(1, dims)))
    for start in range(0, max(1, count), size):
        yield slice(start, start + size)


def _packed(points: Points, vectors: NDArray[np.float32], part: slice) -> bytes:
    numbers = [*points.generations[part], *points.chunk_nos[part]]
    arrays = np.asarray(numbers, dtype=np.int64).tobytes() + vectors[part].tobytes()
    return _ids(points.ids[part]) + _ids(points.doc_ids[part]) + arrays


def _ids(ids: Sequence[UUID]) -> bytes:
    return b"".join([one.bytes for one in ids])


def _hits(reply: VectorReply) -> VectorHits:
    n: int = reply.args["n"]
    chunk_nos = np.frombuffer(reply.body, dtype=np.int64, count=n)
    return VectorHits(
        chunk_nos, np.frombuffer(reply.body, dtype=np.float32, offset=chunk_nos.nbytes)
    )


def _vectors(reply: VectorReply) -> dict[PointId, Vector]:
    n: int = reply.args["n"]
    if not n:
        return {}
    ids = [PointId(UUID(bytes=one)) for one in cut(reply.body[: ID_BYTES * n])]
    rows = np.frombuffer(reply.body, dtype=np.float32, offset=ID_BYTES * n).reshape(n, -1)
    return dict(zip(ids, rows, strict=True))


def _stored(reply: VectorReply) -> list[StoredPoint]:
    n: int = reply.args["n"]
    ids = [UUID(bytes=one) for one in cut(reply.body[: 2 * ID_BYTES * n])]
    numbers = np.frombuffer(reply.body, dtype=np.int64, offset=2 * ID_BYTES * n).tolist()
    columns = zip(ids[:n], ids[n:], numbers[:n], numbers[n:], strict=True)
    return [StoredPoint(PointId(one), *rest) for one, *rest in columns]


def _sync_logs(logs: Sequence[Path]) -> None:
    """``FileNotFoundError`` if the collection is gone."""
    for log in logs:
        try:
            _sync_log(log)
        except FileNotFoundError:
            # The collection was converted meanwhile: all of it is on disk, in its other layout. Or it was removed.
            log.parent.stat()


def _sync_log(log: Path) -> None:
    """Sync a file, or a folder and all its files. The engine may rename one meanwhile."""
    if log.name == POINT_LOG:
        sync_path(log)
        return
    while True:
        with suppress(FileNotFoundError):
            for path in itertools.chain(log.iterdir(), [log]):
                sync_path(path)
            return
        log.stat()
