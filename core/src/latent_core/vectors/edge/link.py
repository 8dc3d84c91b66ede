"""A connection to the vector child and its unanswered calls; the child process of its owner."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from typing_extensions import override

from latent_core.vectors.edge.folder_owner import PROGRAM, note_child
from latent_core.vectors.edge.protocol import (
    FrameDecoder,
    ProtocolError,
    VectorOp,
    VectorReply,
    VectorRequest,
)

logger = logging.getLogger(__name__)

_ENVIRONMENT: Final = {
    "PATH": os.defpath,
    "LC_ALL": "C.UTF-8",
    "MALLOC_ARENA_MAX": "2",
    "OPENBLAS_NUM_THREADS": "1",
}
"""The child's whole environment, without secrets."""
_CAUSE_BYTES: Final = 2000
_READ_BYTES: Final = 1 << 20
_EXIT_SECONDS: Final = 2.0
"""For a disconnected child to end with its status."""


class LinkLostError(Exception):
    """The child ended before it answered."""


class EngineConnection:
    """A connection to a running child. ``ask`` may be called concurrently; ``ended`` waits for its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.started_at = time.monotonic()
        self.heard_at = 0.0
        """Time of the child's last message, in ``time.monotonic()``."""
        self._writer = writer
        self._ids = itertools.count(1)
        self._greeting: asyncio.Future[VectorReply] = asyncio.get_running_loop().create_future()
        self._waiting = {0: self._greeting}
        self._hearing = asyncio.create_task(self._hear(reader))

    @classmethod
    async def connect(cls, address: Path) -> EngineConnection:
        """To a child of another process; await ``greeted`` next. ``OSError`` without a listener."""
        return EngineConnection(*await asyncio.open_unix_connection(address, limit=_READ_BYTES))

    @property
    def pid(self) -> int:
        """The child's; 0 before its greeting."""
        known = self._greeting.done() and self._greeting.exception() is None
        return int(self._greeting.result().args["pid"]) if known else 0

    async def greeted(self) -> None:
        """Return once the child holds the folder and takes requests; ``LinkLostError`` if it ended."""
        await asyncio.shield(self._greeting)

    async def ask(
        self, op: VectorOp, deadline: float, collection: str, args: dict[str, Any], body: bytes
    ) -> VectorReply:
        """The child's answer. Forwards a cancellation to the child; ``LinkLostError`` when the child ends."""
        request = VectorRequest(next(self._ids), op, deadline, collection, args, body)
        answer: asyncio.Future[VectorReply] = asyncio.get_running_loop().create_future()
        self._send(request)
        self._waiting[request.id] = answer
        try:
            return await answer
        finally:
            if self._waiting.pop(request.id, None) is not None:
                with suppress(LinkLostError):
                    self._send(VectorRequest(request.id, VectorOp.CANCEL, deadline))

    async def ended(self) -> None:
        """Return when every call has failed."""
        await asyncio.wait([self._hearing])

    async def close(self) -> None:
        self._writer.close()
        await self.ended()

    def kill(self) -> None:
        """End the child. While the connection is open, its pid is not another process's."""
        if self.pid and not self._hearing.done():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _send(self, request: VectorRequest) -> None:
        if self._writer.is_closing():
            raise LinkLostError("the vector engine ended")
        self._writer.write(request.encode())

    async def _hear(self, reader: asyncio.StreamReader) -> None:
        """Pass each reply to its call until the child ends."""
        decoder = FrameDecoder()
        try:
            while data := await reader.read(_READ_BYTES):
                self.heard_at = time.monotonic()
                for frame in decoder.feed(data):
                    self._settle(VectorReply.decode(frame))
        except OSError as exc:
            logger.info("vector_child_disconnected", extra={"pid": self.pid, "cause": str(exc)})
        except ProtocolError:
            logger.exception("vector_child_protocol_error", extra={"pid": self.pid})
            self.kill()
        finally:
            self._lose()

    def _settle(self, reply: VectorReply) -> None:
        answer = self._waiting.pop(reply.id, None)
        if answer is not None and not answer.done():
            answer.set_result(reply)

    def _lose(self) -> None:
        self._writer.close()
        lost, self._waiting = self._waiting, {}
        for answer in lost.values():
            if not answer.done():
                answer.set_exception(LinkLostError("the vector engine ended"))
        if self._greeting.exception() is not None:
            return  # retrieved, since the waiting call may be gone


class Link(EngineConnection):
    """A running child of this process; ``ended`` waits for the child's end, too."""

    def __init__(
        self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        super().__init__(reader, writer)
        self._process = process
        self._output = b""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def spawn(
        cls, folder: Path, options: Sequence[str], listening: socket.socket | None = None
    ) -> Self:
        """Start a child on ``folder``, which further processes reach by ``listening``; await ``greeted`` next."""
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_READ_BYTES)
            try:
                process = await _start(folder, theirs.fileno(), options, listening)
            except BaseException:
                writer.close()
                raise
        note_child(folder, process.pid)
        return cls(process, reader, writer)

    @property
    @override
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def cause(self) -> str:
        """Why it ended: its last log line, or its status."""
        lines = self._output.decode("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with status {self.returncode}"

    @override
    async def ended(self) -> None:
        """Return when the process is gone and every call has failed."""
        await super().ended()
        try:
            async with asyncio.timeout(_EXIT_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await asyncio.wait([self._listening])

    @override
    def kill(self) -> None:
        # Do not use the process object: it reaps before it signals, and the event loop then never gets the status.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def _listen(self) -> None:
        """Forward the child's log, and keep its last lines."""
        stream = self._process.stderr
        while stream is not None and (output := await stream.read(_READ_BYTES)):
            self._output = (self._output + output)[-_CAUSE_BYTES:]
            for line in output.decode("utf-8", errors="replace").splitlines():
                logger.warning("vector_child_log", extra={"pid": self.pid, "text": line})


async def _start(
    folder: Path, connection: int, options: Sequence[str], listening: socket.socket | None
) -> Process:
    passed = (connection,) if listening is None else (connection, listening.fileno())
    accepting = () if listening is None else ("--listening", str(listening.fileno()))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", PROGRAM, "--folder", str(folder)),
        *("--socket", str(connection), *accepting, *options),
        stdin=PIPE,  # the lifeline: nothing is ever written
        stdout=DEVNULL,
        stderr=PIPE,
        pass_fds=passed,
        env=_ENVIRONMENT,
        cwd=folder,
        start_new_session=True,  # Ctrl-C in the terminal must reach only the owner
    )
