"""The parent's handle of one child: start, exchange frames, kill, and its last output."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from latent_core.domain.errors import Unavailable
from latent_workers.sandbox.budget import PARSING, Profile
from latent_workers.sandbox.frames import (
    HEADER,
    MAX_ATTACHMENT_BYTES,
    MAX_JSON_BYTES,
    ChildReady,
    FrameKind,
    Start,
    TaskRequest,
)

logger = logging.getLogger(__name__)

_START_SECONDS = 60.0
_REAP_SECONDS = 10.0
_SEND_SECONDS = 10.0
_TAIL_BYTES = 4096
# No variable of ours is inherited, so no secret can be; a single malloc arena keeps an idle child small.
_ENVIRONMENT: Final = {
    "LANG": "C.UTF-8",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "PYMUPDF_MESSAGE": "fd:2",
    "PYMUPDF_LOG": "fd:2",
}


class ChildDiedError(Exception):
    """The child closed its end during a task."""


class OutputTooLargeError(Exception):
    """The child announced more bytes than its limit."""


class Child:
    """One parser process in its own session and process group."""

    def __init__(
        self, process: asyncio.subprocess.Process, sock: socket.socket, lifeline: int
    ) -> None:
        self._process = process
        self._sock = sock
        self._lifeline = lifeline
        self._tail = b""
        self._listening = asyncio.create_task(self._listen())
        self.layers: dict[str, bool | str] = {}
        self.tasks_done = 0

    @classmethod
    async def spawn(cls, import_paths: Sequence[Path] = (), profile: Profile = PARSING) -> Child:
        """Start a child and wait until it has confined itself; ``Unavailable`` if it does not."""
        with ExitStack() as on_failure, ExitStack() as given:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            on_failure.callback(ours.close)
            given.callback(theirs.close)
            lifeline_read, lifeline_write = os.pipe()
            on_failure.callback(os.close, lifeline_write)
            given.callback(os.close, lifeline_read)
            try:
                process = await _start(theirs.fileno(), lifeline_read, import_paths, profile)
            except OSError as exc:
                raise Unavailable(f"no parser process could be started: {exc}") from exc
            ours.setblocking(False)
            on_failure.pop_all()
        child = cls(process, ours, lifeline_write)
        await child._await_ready()
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def tail(self) -> str:
        """The end of what the child printed."""
        return self._tail.decode("utf-8", "replace").strip()

    def alive(self) -> bool:
        """Whether the idle child can take a task: its end is open and it has sent nothing."""
        if self._process.returncode is not None:
            return False
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def send(self, request: TaskRequest, fds: Sequence[int]) -> None:
        """Send a request with its open files, which the caller closes."""
        body = request.model_dump_json().encode()
        header = HEADER.pack(FrameKind.REQUEST, len(body), 0)
        try:
            sent = socket.send_fds(self._sock, [header], list(fds))
            async with asyncio.timeout(_SEND_SECONDS):
                await _loop().sock_sendall(self._sock, header[sent:] + body)
        except (OSError, TimeoutError) as exc:
            raise ChildDiedError from exc

    async def receive(self, allowance: int) -> tuple[FrameKind, bytes, bytes]:
        """The next frame: kind, JSON, attachment. At most ``allowance`` bytes."""
        number, json_size, attachment_size = HEADER.unpack(await self._exactly(HEADER.size))
        too_large = json_size > MAX_JSON_BYTES or attachment_size > MAX_ATTACHMENT_BYTES
        if too_large or json_size + attachment_size > allowance:
            raise OutputTooLargeError
        body = await self._exactly(json_size)
        return FrameKind(number), body, await self._exactly(attachment_size)

    def kill(self) -> None:
        """Kill the child and everything it has started."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def reap(self) -> int:
        """Wait for the end of the child, close its files, and return its exit status."""
        try:
            async with asyncio.timeout(_REAP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()
        status = await self._process.wait()
        await self._close()
        return status

    async def retire(self) -> None:
        """End an idle child; it exits when its socket closes."""
        self._sock.close()
        await self.reap()

    async def _close(self) -> None:
        self._sock.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        # A grandchild may still hold the pipe open; nothing it says matters any more.
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def _await_ready(self) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                _, body, _ = await self.receive(MAX_JSON_BYTES)
            self.layers = ChildReady.model_validate_json(body).layers
        except (ChildDiedError, OutputTooLargeError, TimeoutError, ValueError) as exc:
            self.kill()
            status = await self.reap()
            logger.warning(
                "parser_process_start_failed", extra={"status": status, "tail": self.tail}
            )
            raise Unavailable(f"a parser process did not start (exit status {status})") from exc
        except asyncio.CancelledError:
            self.kill()
            await self.reap()
            raise

    async def _exactly(self, size: int) -> bytes:
        buffer = bytearray(size)
        view = memoryview(buffer)
        filled = 0
        while filled < size:
            try:
                count = await _loop().sock_recv_into(self._sock, view[filled:])
            except ConnectionError as exc:
                raise ChildDiedError from exc
            if not count:
                raise ChildDiedError
            filled += count
        return bytes(buffer)

    async def _listen(self) -> None:
        output = self._process.stdout
        while output is not None and (part := await output.read(_TAIL_BYTES)):
            self._tail = (self._tail + part)[-_TAIL_BYTES:]


async def _start(
    sock: int, lifeline: int, import_paths: Sequence[Path], profile: Profile
) -> asyncio.subprocess.Process:
    start = Start(
        programs=profile.programs,
        niceness=profile.niceness,
        import_paths=list(map(str, import_paths)),
        reads=list(map(str, profile.reads)),
    )
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-B", "-m", "latent_workers.sandbox.child"),
        *(str(sock), str(lifeline), start.model_dump_json()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        pass_fds=(sock, lifeline),
        env=_ENVIRONMENT,
        cwd="/",
        start_new_session=True,
    )


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
