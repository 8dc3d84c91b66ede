"""The child: confine itself, report it, then run tasks until the parent closes the socket.

Started as ``python -m latent_workers.sandbox.child SOCKET_FD LIFELINE_FD START``; START is a ``Start`` as JSON.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, cast

from latent_core.domain.errors import LatentError
from latent_core.runtime.lifeline import signal_on_parent_death, watch_parent
from latent_workers.sandbox import confine
from latent_workers.sandbox.frames import (
    ChildReady,
    FrameKind,
    Reason,
    Start,
    Task,
    TaskDone,
    TaskFailed,
    TaskRequest,
    receive_request,
    send,
)
from latent_workers.sandbox.memory import give_back_memory

_TRACE_CHARS = 4000


def main(arguments: list[str]) -> None:
    sock = socket.socket(fileno=int(arguments[0]))
    start = Start.model_validate_json(arguments[2])
    sys.path.extend(start.import_paths)
    os.nice(start.niceness)
    layers = confine.confine(programs=start.programs, reads=map(Path, start.reads))
    # After the doors are closed: a change of credentials clears the signal, and threads must not
    # exist before the namespace is left.
    signal_on_parent_death()
    watch_parent(int(arguments[1]))
    send(sock, FrameKind.READY, ChildReady(layers=layers).model_dump())
    while received := receive_request(sock):
        request, fds = received
        outcome = perform(sock, request, fds)
        give_back_memory()
        send(sock, *outcome)


def perform(
    sock: socket.socket, request: TaskRequest, fds: list[int]
) -> tuple[FrameKind, dict[str, Any]]:
    """Run one task and send its items; returns how it ended."""
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(_open(fd)) for fd in fds]
            if len(files) != request.files:
                raise OSError(f"{len(files)} of {request.files} files arrived")
            confine.limit_task(request.cpu_seconds, request.memory_bytes)
            for output in _load(request.function)(request.arguments, files):
                send(sock, FrameKind.ITEM, output.value, output.attachment)
    except LatentError as error:
        failed = _failed("refused", error.message, details=error.details)
    except MemoryError:
        failed = _failed("memory")
    except Exception as error:  # noqa: BLE001 - the top of a task: whatever a parser raises is its answer
        failed = _described(error)
    else:
        return FrameKind.DONE, TaskDone(resident_bytes=confine.resident_bytes()).model_dump()
    return FrameKind.FAILED, failed.model_dump()


def _open(fd: int) -> BinaryIO:
    return os.fdopen(fd, "rb")


def _load(function: str) -> Task:
    module, _, name = function.partition(":")
    return cast(Task, getattr(importlib.import_module(module), name))


def _described(error: Exception) -> TaskFailed:
    # MuPDF and other libraries in C report a failed allocation as an error of their own.
    words = str(error).lower()
    if "malloc" in words or "out of memory" in words or "bad_alloc" in words:
        return _failed("memory")
    trace = "".join(traceback.format_exception(error))[-_TRACE_CHARS:]
    return _failed("error", f"{type(error).__name__}: {error}"[:500], trace=trace)


def _failed(reason: Reason, message: str = "", **more: Any) -> TaskFailed:
    return TaskFailed(
        reason=reason, message=message, resident_bytes=confine.resident_bytes(), **more
    )


if __name__ == "__main__":
    main(sys.argv[1:])
