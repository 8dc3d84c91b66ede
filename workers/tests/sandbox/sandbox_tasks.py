"""Tasks that misbehave, for the tests of the sandbox; imported by its children only."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from latent_core.domain.errors import IngestFailed
from latent_workers.sandbox.frames import TaskOutput

Arguments = dict[str, Any]
Files = Sequence[BinaryIO]


def echo(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    yield TaskOutput({"pid": os.getpid(), **arguments}, b"".join(file.read() for file in files))


def count(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    for number in range(arguments["to"]):
        yield TaskOutput(number, b"x" * arguments.get("bytes", 0))


def environment(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    names = sorted(os.environ)  # noqa: TID251 - what is looked at here is the environment itself
    yield TaskOutput({"names": names, "cwd": os.getcwd(), "open": sorted(os.listdir("/dev/fd"))})


def write_input(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    os.write(files[0].fileno(), b"changed")
    yield TaskOutput(None)


def refuse(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    raise IngestFailed("this file is not for me", kind="odd")


def raise_error(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    raise ValueError("a bug of the parser")


def spin(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    while True:
        pass


def sleep(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    time.sleep(arguments.get("seconds", 600))
    yield TaskOutput(None)


def hoard(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    hoarded = []
    while True:
        hoarded.append(bytearray(16 * 1024 * 1024))


def hoard_in_c(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    while True:
        block = libc.malloc(ctypes.c_size_t(16 * 1024 * 1024))
        if not block:
            sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\n")
            sys.stderr.flush()
            os.abort()


def segfault(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    yield TaskOutput(ctypes.string_at(0))


def leave(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    os._exit(3)


def fork(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    yield TaskOutput(None)


def execute(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    os.execv(sys.executable, [sys.executable, "-c", "pass"])


def connect(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    family = getattr(socket, arguments["family"])
    socket.socket(family, socket.SOCK_STREAM).connect(tuple(arguments["address"]))
    yield TaskOutput(None)


def write_file(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    Path(arguments["path"]).write_bytes(b"x" * 100)
    yield TaskOutput(None)


def look_into(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    yield TaskOutput({place: _seen(Path(place)) for place in arguments["places"]})


def _seen(place: Path) -> str:
    try:
        if place.is_dir():
            os.listdir(place)
        else:
            with place.open("rb") as file:
                file.read(64)
    except OSError as error:
        return type(error).__name__
    return "seen"


def empty_file(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    os.truncate(arguments["path"], 0)
    yield TaskOutput(None)


def remove_file(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    Path(arguments["path"]).unlink()
    yield TaskOutput(None)


def signal_parent(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    os.kill(os.getppid(), 0)
    yield TaskOutput(None)


def signal_thread_of_parent(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    if ctypes.CDLL(None, use_errno=True).tgkill(os.getppid(), os.getppid(), 0):
        raise OSError(ctypes.get_errno(), "refused")
    yield TaskOutput(None)


def print_much(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    sys.stdout.write("noise " * 100_000)
    sys.stdout.flush()
    yield TaskOutput("done")


def wait_for_close(arguments: Arguments, files: Files) -> Iterator[TaskOutput]:
    yield TaskOutput(os.getpid())
    time.sleep(600)
