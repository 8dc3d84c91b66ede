"""One task on one child, from the request to its last frame, and the errors of a failed one."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from latent_core.domain.errors import IngestFailed
from latent_workers.sandbox.budget import MIB, Budget
from latent_workers.sandbox.frames import FrameItem, FrameKind, TaskDone, TaskFailed, TaskRequest
from latent_workers.sandbox.process import Child, ChildDiedError, OutputTooLargeError


def of_death(label: str, budget: Budget, status: int, tail: str) -> IngestFailed:
    """The child ended unexpectedly: its exit status and last output say why."""
    if status == -signal.SIGXCPU:
        return of_cpu(label, budget)
    if "bad_alloc" in tail or "MemoryError" in tail or "out of memory" in tail.lower():
        return of_memory(label, budget)
    if status == -signal.SIGKILL:
        return IngestFailed(
            f"{label} was killed by the system (signal 9), probably because memory ran out",
            reason="killed",
        )
    if status < 0:
        return IngestFailed(f"{label} crashed (signal {-status})", reason="crash")
    return IngestFailed(f"{label} exited without an answer (exit status {status})", reason="crash")


def of_cpu(label: str, budget: Budget) -> IngestFailed:
    return IngestFailed(f"{label} used more than {budget.cpu_seconds} s of CPU", reason="cpu")


def of_wall(label: str, budget: Budget) -> IngestFailed:
    return IngestFailed(f"{label} took longer than {budget.wall_seconds:g} s", reason="wall")


def of_memory(label: str, budget: Budget) -> IngestFailed:
    return IngestFailed(
        f"{label} needed more than {budget.memory_bytes // MIB} MB of memory", reason="memory"
    )


def of_output(label: str, budget: Budget) -> IngestFailed:
    return IngestFailed(
        f"{label} gave more than {budget.output_bytes // MIB} MB of output", reason="output"
    )


def of_answer(label: str, budget: Budget, failed: TaskFailed) -> IngestFailed:
    """The child itself reported the error."""
    if failed.reason == "refused":
        refusal = IngestFailed(failed.message)
        refusal.details = failed.details
        return refusal
    if failed.reason == "memory":
        return of_memory(label, budget)
    return IngestFailed(f"{label} failed: {failed.message}", reason="error")


def of_nonsense(label: str) -> IngestFailed:
    return IngestFailed(f"{label} gave an answer that could not be read", reason="nonsense")


M = TypeVar("M", bound=BaseModel)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SandboxCall:
    """A request to a child."""

    function: str
    arguments: dict[str, Any]
    budget: Budget
    label: str


class Conversation:
    """``resident_bytes`` is set when the child has finished the task properly and can be reused."""

    def __init__(self, child: Child, call: SandboxCall) -> None:
        self._child = child
        self._call = call
        self._allowance = call.budget.output_bytes
        self._seconds_left = call.budget.wall_seconds
        self.resident_bytes: int | None = None

    async def items(self, fds: Sequence[int]) -> AsyncGenerator[FrameItem, None]:
        """Each item when it arrives; ``IngestFailed`` says how the task failed."""
        await self._ask(fds)
        while True:
            kind, body, attachment = await self._next()
            if kind is FrameKind.ITEM:
                yield FrameItem(body, attachment)
            elif kind is FrameKind.DONE:
                self.resident_bytes = self._read(TaskDone, body).resident_bytes
                return
            else:
                raise self._failure(self._read(TaskFailed, body))

    async def _ask(self, fds: Sequence[int]) -> None:
        call = self._call
        request = TaskRequest(
            function=call.function,
            arguments=call.arguments,
            files=len(fds),
            cpu_seconds=call.budget.cpu_seconds,
            memory_bytes=call.budget.memory_bytes,
        )
        try:
            await self._child.send(request, fds)
        except ChildDiedError as exc:
            raise await self._autopsy() from exc

    async def _next(self) -> tuple[FrameKind, bytes, bytes]:
        call, loop = self._call, asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(self._seconds_left):
                frame = await self._child.receive(self._allowance)
        except TimeoutError as exc:
            raise of_wall(call.label, call.budget) from exc
        except OutputTooLargeError as exc:
            raise of_output(call.label, call.budget) from exc
        except ChildDiedError as exc:
            raise await self._autopsy() from exc
        except ValueError as exc:
            raise of_nonsense(call.label) from exc
        self._seconds_left -= loop.time() - started
        self._allowance -= len(frame[1]) + len(frame[2])
        return frame

    def _read(self, message: type[M], body: bytes) -> M:
        try:
            return message.model_validate_json(body)
        except ValidationError as exc:
            raise of_nonsense(self._call.label) from exc

    def _failure(self, failed: TaskFailed) -> IngestFailed:
        if failed.trace:
            logger.warning("parser_failed", extra={"task": self._call.label, "trace": failed.trace})
        # After a refusal the child is as good as before; after anything else it is not trusted.
        if failed.reason == "refused":
            self.resident_bytes = failed.resident_bytes
        return of_answer(self._call.label, self._call.budget, failed)

    async def _autopsy(self) -> IngestFailed:
        status = await self._child.reap()
        extra = {"task": self._call.label, "status": status, "tail": self._child.tail}
        logger.warning("parser_process_died", extra=extra)
        return of_death(self._call.label, self._call.budget, status, self._child.tail)


@asynccontextmanager
async def opened(files: Sequence[Path | int]) -> AsyncIterator[list[int]]:
    """Descriptors of ``files``; those opened here are closed at the end."""
    with ExitStack() as stack:
        yield await asyncio.to_thread(_open_all, files, stack)


def _open_all(files: Sequence[Path | int], stack: ExitStack) -> list[int]:
    return [file if isinstance(file, int) else _open(file, stack) for file in files]


def _open(path: Path, stack: ExitStack) -> int:
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer for ever.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as exc:
        raise IngestFailed(f"'{path.name}' cannot be read: {exc.strerror}") from exc
    stack.callback(os.close, fd)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise IngestFailed(f"'{path.name}' is not a regular file")
    return fd
