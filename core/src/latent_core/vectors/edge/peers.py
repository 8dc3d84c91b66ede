"""The processes that send requests to the vector child: its owner, and those that have connected to its socket.

A process that does not read its replies must not delay the others, so nothing here blocks: what cannot be sent at once
waits in memory, up to a limit.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Iterator
from typing import Final

from latent_core.vectors.edge.protocol import FrameDecoder, ProtocolFrame

logger = logging.getLogger(__name__)

MAX_PEERS: Final = 64
MAX_UNSENT_BYTES: Final = 128 * 1024 * 1024
"""Replies of one process that it has not read."""
CLOSE_SECONDS: Final = 5.0
_RECEIVE_BYTES: Final = 1 << 20


class Peer:
    """One connection. ``is_open`` is false once the other end is gone."""

    def __init__(self, connection: socket.socket, *, is_owner: bool) -> None:
        connection.setblocking(False)
        self.is_owner = is_owner
        self.is_open = True
        self.greeted = is_owner
        """The owner is greeted once the folder is locked, others when they connect."""
        self._connection = connection
        self._decoder = FrameDecoder()
        self._unsent = bytearray()

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def interest(self) -> int:
        """The events to poll for."""
        return select.POLLIN | select.POLLOUT if self._unsent else select.POLLIN

    def receive(self) -> Iterator[ProtocolFrame]:
        """The frames that have arrived. ``ProtocolError`` for something else."""
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            yield from self._decoder.feed(data)
        else:
            self.is_open = False

    def send(self, packed: bytes) -> None:
        self._unsent += packed
        self.flush()
        if len(self._unsent) > MAX_UNSENT_BYTES:
            logger.warning("vector_peer_does_not_read", extra={"bytes": len(self._unsent)})
            self.is_open = False

    def flush(self) -> None:
        """Send what can be sent now."""
        try:
            while self._unsent and (sent := self._connection.send(self._unsent)):
                del self._unsent[:sent]
        except BlockingIOError:
            return
        except OSError:
            self.is_open = False

    def close(self) -> None:
        """Send the rest, within a time limit, and close."""
        try:
            if self.is_open and self._unsent:
                self._connection.settimeout(CLOSE_SECONDS)
                self._connection.sendall(self._unsent)
        except OSError:
            pass  # it is gone
        finally:
            self.is_open = False
            self._connection.close()


class Peers:
    """All connections, and the socket that accepts more of them, if there is one."""

    def __init__(self, owner: socket.socket, listening: socket.socket | None) -> None:
        self.owner = Peer(owner, is_owner=True)
        self._listening = listening
        self._peers = {self.owner.fileno(): self.owner}
        self._poll = select.poll()
        if listening is not None:
            listening.setblocking(False)
            self._poll.register(listening, select.POLLIN)

    def ready(self, milliseconds: float | None) -> list[Peer]:
        """The processes with something to read, and new ones; waits for the first at most so long. Also sends what
        could not be sent before."""
        for number, peer in self._peers.items():
            self._poll.register(number, peer.interest)
        readable = []
        for number, events in self._poll.poll(milliseconds):
            if number not in self._peers:
                readable += self._accepted()
                continue
            peer = self._peers[number]
            if events & select.POLLOUT:
                peer.flush()
            if events & ~select.POLLOUT:
                readable.append(peer)
        return readable

    def drop_closed(self) -> None:
        for number, peer in list(self._peers.items()):
            if not peer.is_open:
                self._poll.unregister(number)
                del self._peers[number]
                peer.close()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    def _accepted(self) -> list[Peer]:
        assert self._listening is not None
        try:
            connection, _ = self._listening.accept()
        except OSError:  # it has left again
            return []
        if len(self._peers) >= MAX_PEERS:
            logger.warning("vector_peers_at_limit", extra={"limit": MAX_PEERS})
            connection.close()
            return []
        peer = Peer(connection, is_owner=False)
        self._peers[peer.fileno()] = peer
        self._poll.register(peer.fileno(), peer.interest)
        return [peer]
