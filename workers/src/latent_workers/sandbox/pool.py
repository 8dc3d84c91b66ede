"""The pool of children: a maximum number, warm ones first, idle ones ended after a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from latent_core.domain.errors import Unavailable
from latent_workers.sandbox import conversation
from latent_workers.sandbox.budget import PARSING, Budget, Profile
from latent_workers.sandbox.conversation import Conversation, SandboxCall, opened
from latent_workers.sandbox.frames import MAX_FILES, TASKS, FrameItem
from latent_workers.sandbox.process import Child

logger = logging.getLogger(__name__)

_DEFAULT_BUDGET: Final = Budget()


class Sandbox:
    """Runs tasks in confined children. Belongs to one event loop; use it with ``async with``.

    ``import_paths`` are additional import paths of the children for the functions of ``tasks``.
    """

    def __init__(
        self,
        *,
        children: int = 2,
        idle_seconds: float = 60.0,
        tasks_per_child: int = 200,
        tasks: Mapping[str, str] = TASKS,
        import_paths: Sequence[Path] = (),
        profile: Profile = PARSING,
    ) -> None:
        self._slots = asyncio.Semaphore(children)
        self._idle_seconds = idle_seconds
        self._tasks_per_child = tasks_per_child
        self._tasks = tasks
        self._import_paths = tuple(import_paths)
        self._profile = profile
        self._idle: dict[Child, asyncio.TimerHandle] = {}
        self._leaving: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._warned = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def run(
        self,
        task: str,
        arguments: Mapping[str, Any],
        *,
        files: Sequence[Path | int] = (),
        budget: Budget = _DEFAULT_BUDGET,
        label: str | None = None,
    ) -> FrameItem:
        """The single item of ``task``. ``label`` names the task in errors ("the PDF parser").

        ``files`` are opened read-only for the child; a number is an open descriptor that the caller closes. Raises
        ``IngestFailed`` with the reason, or ``Unavailable`` if no child starts.
        """
        async with self.stream(task, arguments, files=files, budget=budget, label=label) as items:
            found = [item async for item in items]
        if len(found) != 1:
            raise conversation.of_nonsense(label or task)
        return found[0]

    def stream(
        self,
        task: str,
        arguments: Mapping[str, Any],
        *,
        files: Sequence[Path | int] = (),
        budget: Budget = _DEFAULT_BUDGET,
        label: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[FrameItem]]:
        """The items of ``task`` as they arrive; leaving the block early ends the child."""
        if len(files) > MAX_FILES:
            raise ValueError(f"at most {MAX_FILES} files per task")
        call = SandboxCall(
            self._tasks[task], dict(arguments), budget, label or f"the task '{task}'"
        )
        return self._converse(call, files)

    async def layers(self) -> dict[str, bool | str]:
        """The layers of confinement that work on this machine, as a child reported them; else the reason."""
        async with self._slots:
            child = await self._borrow()
            self._give_back(child)
            return dict(child.layers)

    async def close(self) -> None:
        """End every idle child and wait for children that are ending."""
        self._closed = True
        for child in list(self._idle):
            self._retire(child)
        while self._leaving:
            await asyncio.gather(*self._leaving, return_exceptions=True)

    @asynccontextmanager
    async def _converse(
        self, call: SandboxCall, files: Sequence[Path | int]
    ) -> AsyncIterator[AsyncIterator[FrameItem]]:
        async with self._slots, opened(files) as fds:
            child = await self._borrow()
            dialogue = Conversation(child, call)
            try:
                async with aclosing(dialogue.items(fds)) as items:
                    yield items
            finally:
                if dialogue.resident_bytes is None:
                    child.kill()
                    self._later(child.reap())
                elif self._worn(child, dialogue.resident_bytes):
                    self._later(child.retire())
                else:
                    self._give_back(child)

    async def _borrow(self) -> Child:
        if self._closed:
            raise Unavailable("the sandbox is closed")
        while self._idle:
            child, timer = self._idle.popitem()
            timer.cancel()
            if child.alive():
                return child
            child.kill()
            self._later(child.reap())
        child = await Child.spawn(self._import_paths, self._profile)
        self._tell(child.layers)
        return child

    def _tell(self, layers: Mapping[str, bool | str]) -> None:
        """Once: all children of a pool are alike."""
        if not self._warned:
            self._warned = True
            missing = {name: state for name, state in layers.items() if state is not True}
            logger.info("parser_confinement", extra={"layers": len(layers), "missing": missing})

    def _worn(self, child: Child, resident_bytes: int) -> bool:
        child.tasks_done += 1
        too_large = resident_bytes > self._profile.keep_resident_bytes
        return too_large or child.tasks_done >= self._tasks_per_child

    def _give_back(self, child: Child) -> None:
        if self._closed:
            self._later(child.retire())
            return
        loop = asyncio.get_running_loop()
        self._idle[child] = loop.call_later(self._idle_seconds, self._retire, child)

    def _retire(self, child: Child) -> None:
        timer = self._idle.pop(child, None)
        if timer is not None:
            timer.cancel()
            self._later(child.retire())

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
