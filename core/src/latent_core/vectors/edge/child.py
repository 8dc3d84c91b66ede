"""The vector child, the only process that loads the engine: ``python -m latent_core.vectors.edge.child``.

It has one thread. Between two calls of the engine it reads all requests that have arrived, so a search overtakes
waiting writes, and cancelled or overdue requests never start. Standard input is the lifeline: when it closes,
the owner is gone and the child exits; the next start replays from the log what was not flushed. Further processes
connect to the listening socket that the owner has passed on (ADR 0069); it stays over restarts of the child.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import logging
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from latent_core.runtime.file_lock import try_lock
from latent_core.runtime.lifeline import signal_on_parent_death, watch_parent
from latent_core.vectors.edge.collections import Store
from latent_core.vectors.edge.marker import LARGE_FROM_POINTS
from latent_core.vectors.edge.peers import Peer, Peers
from latent_core.vectors.edge.protocol import (
    BUSY_BYTES,
    BUSY_FILE,
    LOCK_FILE,
    Fault,
    ProtocolError,
    RequestRefused,
    VectorOp,
    VectorReply,
    VectorRequest,
)
from latent_core.vectors.edge.requests import handle

logger = logging.getLogger(__name__)

_LOCK_SECONDS: Final = 10.0
_LOCK_POLL_SECONDS: Final = 0.02
_WRITES: Final = frozenset(
    {
        VectorOp.CREATE,
        VectorOp.DROP,
        VectorOp.UPSERT,
        VectorOp.DELETE,
        VectorOp.DELETE_POINTS,
    }
)
_CONSECUTIVE_READS: Final = 32
"""After this many reads a waiting write goes first, so that searches never starve writes."""
_QUEUED_BYTES: Final = 128 * 1024 * 1024
_FAILED: Final = (
    "the vector engine failed on collection {} (see the log): try again; if it fails again, "
    "run `latent doctor`"
)
_NO_SPACE_WORDS: Final = ("No space left", "os error 28", "StorageFull")


class Inbox:
    """Waiting requests: searches first, then other reads, then writes."""

    def __init__(self) -> None:
        self.bytes = 0
        self._reads: list[tuple[bool, int, Peer, VectorRequest]] = []
        self._writes: deque[tuple[Peer, VectorRequest]] = deque()
        self._arrivals = itertools.count()
        self._waiting: set[tuple[Peer, int]] = set()
        self._row = 0

    def __len__(self) -> int:
        return len(self._reads) + len(self._writes)

    def push(self, peer: Peer, request: VectorRequest) -> None:
        self.bytes += len(request.body)
        self._waiting.add((peer, request.id))
        if request.op in _WRITES:
            self._writes.append((peer, request))
        else:
            order = (request.op is not VectorOp.SEARCH, next(self._arrivals))
            heapq.heappush(self._reads, (*order, peer, request))

    def cancel(self, peer: Peer, request_id: int) -> None:
        self._waiting.discard((peer, request_id))

    def pop(self) -> tuple[Peer, VectorRequest] | None:
        """The next request that is neither cancelled nor from a process that is gone."""
        while self:
            peer, request = self._next()
            self.bytes -= len(request.body)
            if (peer, request.id) in self._waiting:
                self._waiting.remove((peer, request.id))
                if peer.is_open:
                    return peer, request
        return None

    def _next(self) -> tuple[Peer, VectorRequest]:
        if self._reads and not (self._writes and self._row >= _CONSECUTIVE_READS):
            self._row += 1
            return heapq.heappop(self._reads)[-2:]
        self._row = 0
        return self._writes.popleft()


class VectorServer:
    """Answers the requests of ``peers`` until the owner closes."""

    def __init__(self, peers: Peers, store: Store, busy: int) -> None:
        self._peers = peers
        self._store = store
        self._busy = busy
        self._inbox = Inbox()
        self._open = True

    def serve(self) -> None:
        self._note_busy("")
        self._greet(self._peers.owner)
        while self._open:
            wait = 0.0 if self._inbox else self._store.settle(self._note_busy)
            if self._receive(wait) and (next_one := self._inbox.pop()) is not None:
                self._answer(*next_one)
        self._peers.close()

    def _greet(self, peer: Peer) -> None:
        self._send(peer, VectorReply(0, args={"pid": os.getpid()}))

    def _receive(self, wait: float | None) -> bool:
        """Read the requests that have arrived; wait for the first at most ``wait`` seconds, or without limit. Returns
        whether the owner has not closed."""
        timeout = None if wait is None else wait * 1000
        while (ready := self._peers.ready(timeout)) and self._inbox.bytes < _QUEUED_BYTES:
            for peer in ready:
                self._receive_from(peer)
            self._peers.drop_closed()
            if not self._peers.owner.is_open:
                self._open = False
            if not self._open:
                return False
            timeout = 0
        return True

    def _receive_from(self, peer: Peer) -> None:
        if not peer.greeted:
            peer.greeted = True
            self._greet(peer)
        try:
            for frame in peer.receive():
                self._accept(peer, VectorRequest.decode(frame))
        except ProtocolError as exc:
            if peer.is_owner:
                raise
            logger.warning("vector_peer_protocol_error", extra={"cause": str(exc)})
            peer.is_open = False

    def _accept(self, peer: Peer, request: VectorRequest) -> None:
        if request.op is VectorOp.PING:
            self._send(peer, VectorReply(request.id))
        elif request.op is VectorOp.CANCEL:
            self._inbox.cancel(peer, request.id)
        elif request.op is VectorOp.CLOSE:
            if not peer.is_owner:
                raise ProtocolError("only the owner closes the engine")
            self._store.close()
            self._send(peer, VectorReply(request.id))
            self._open = False
        else:
            self._inbox.push(peer, request)

    def _answer(self, peer: Peer, request: VectorRequest) -> None:
        if time.monotonic() > request.deadline:
            late = VectorReply(request.id, Fault.TIMED_OUT, "the deadline passed before its turn")
            self._send(peer, late)
            return
        self._note_busy(request.collection)
        reply = _reply(self._store, request)
        self._note_busy("")
        self._send(peer, reply)

    def _note_busy(self, collection: str) -> None:
        with suppress(OSError):  # a hint in case of a crash
            os.pwrite(self._busy, collection.encode().ljust(BUSY_BYTES)[:BUSY_BYTES], 0)

    def _send(self, peer: Peer, reply: VectorReply) -> None:
        try:
            packed = reply.encode()
        except ProtocolError as exc:
            packed = VectorReply(
                reply.id, Fault.INVALID, f"the response is too large: {exc}"
            ).encode()
        peer.send(packed)


def _reply(store: Store, request: VectorRequest) -> VectorReply:
    try:
        args, body = handle(store, request)
    except RequestRefused as exc:
        return VectorReply(request.id, exc.fault, exc.message)
    except Exception as exc:  # the engine raises nothing narrower
        logger.exception(
            "vector_request_failed",
            extra={"operation": request.op, "collection": request.collection},
        )
        store.forget(request.collection)
        full = any(words in str(exc) for words in _NO_SPACE_WORDS)
        fault = Fault.OUT_OF_SPACE if full else Fault.UNAVAILABLE
        return VectorReply(request.id, fault, _FAILED.format(request.collection))
    return VectorReply(request.id, args=args, body=body)


def _take_lock(folder: Path) -> bool:
    """Lock the folder for the life of this process; waits for a previous child that is ending."""
    lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _LOCK_SECONDS
    while not try_lock(lock):
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOCK_POLL_SECONDS)
    return True


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="latent-vectors")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument(
        "--socket", type=int, required=True, help="descriptor of the owner's socket"
    )
    parser.add_argument(
        "--listening", type=int, help="descriptor of a socket for further processes"
    )
    parser.add_argument("--min-free-bytes", type=int, required=True)
    parser.add_argument("--large-from", type=int, default=LARGE_FROM_POINTS, metavar="POINTS")
    parser.add_argument("--distrust", action="append", default=[], metavar="COLLECTION")
    parser.add_argument("--tidy", action="store_true", help="reclaim the space of deleted points")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    signal_on_parent_death()
    watch_parent(sys.stdin.fileno())
    options = _arguments(argv)
    listening = None if options.listening is None else socket.socket(fileno=options.listening)
    peers = Peers(socket.socket(fileno=options.socket), listening)
    if not _take_lock(options.folder):
        logger.error("vector_folder_in_use", extra={"path": str(options.folder)})
        return 75
    store = Store(
        options.folder,
        min_free_bytes=options.min_free_bytes,
        distrusted=frozenset(options.distrust),
        large_from=options.large_from,
    )
    store.clear_remains()
    if options.tidy:
        store.tidy()
    busy = os.open(options.folder / BUSY_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    VectorServer(peers, store, busy).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
