"""One task on one child, from the request to its last frame."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from latent_core.domain.errors import IngestFailed
from latent_workers.sandbox import failure_messages
from latent_workers.sandbox.budget import Budget
from latent_workers.sandbox.frames import FrameItem, FrameKind, TaskDone, TaskFailed, TaskRequest
from latent_workers.sandbox.process import Child, ChildDiedError, OutputTooLargeError

M = TypeVar("M", bound=BaseModel)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SandboxCall:
    """What is asked of a child."""

    function: str
    arguments: dict[str, Any]
    budget: Budget
    label: str


class Conversation:
    """``resident_bytes`` is set once the child has finished the task properly and may be used again."""

    def __init__(self, child: Child, call: SandboxCall) -> None:
        self._child = child
        self._call = call
        self._allowance = call.budget.output_bytes
        self._seconds_left = call.budget.wall_seconds
        self.resident_bytes: int | None = None

    async def items(self, fds: Sequence[int]) -> AsyncGenerator[FrameItem, None]:
        """Each item as it comes; ``IngestFailed`` says how the task failed."""
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
            raise failure_messages.of_wall(call.label, call.budget) from exc
        except OutputTooLargeError as exc:
            raise failure_messages.of_output(call.label, call.budget) from exc
        except ChildDiedError as exc:
            raise await self._autopsy() from exc
        except ValueError as exc:
            raise failure_messages.of_nonsense(call.label) from exc
        self._seconds_left -= loop.time() - started
        self._allowance -= len(frame[1]) + len(frame[2])
        return frame

    def _read(self, message: type[M], body: bytes) -> M:
        try:
            return message.model_validate_json(body)
        except ValidationError as exc:
            raise failure_messages.of_nonsense(self._call.label) from exc

    def _failure(self, failed: TaskFailed) -> IngestFailed:
        if failed.trace:
            logger.warning("parser_failed", extra={"task": self._call.label, "trace": failed.trace})
        # After a refusal the child is as good as before; after anything else it is not trusted.
        if failed.reason == "refused":
            self.resident_bytes = failed.resident_bytes
        return failure_messages.of_answer(self._call.label, self._call.budget, failed)

    async def _autopsy(self) -> IngestFailed:
        status = await self._child.reap()
        extra = {"task": self._call.label, "status": status, "tail": self._child.tail}
        logger.warning("parser_process_died", extra=extra)
        return failure_messages.of_death(
            self._call.label, self._call.budget, status, self._child.tail
        )
