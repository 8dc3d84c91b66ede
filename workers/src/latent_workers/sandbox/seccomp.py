"""A small system call filter (Linux, x86-64 and aarch64): no new sockets, no new processes.

A second layer behind the network namespace, and the only one where namespaces are not allowed (most containers).
AF_UNIX is denied too: a namespace does not hide the sockets of local services, which are files. Layout of programs:
linux/filter.h, linux/seccomp.h.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from errno import ENOSYS, EPERM
from types import MappingProxyType
from typing import Final

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_MIN_VERSIONS = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_HAS_BITS = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

_NUMBER, _ARCHITECTURE, _ARGUMENT_0 = 0, 4, 16  # offsets in struct seccomp_data, little-endian
_CLONE_THREAD = 0x00010000
_X32_BIT = 0x40000000


@dataclass(frozen=True, slots=True)
class _Machine:
    audit: int
    clone: int
    clone3: int
    denied: tuple[int, ...]
    """socket, execveat, ptrace, kill, pidfd_send_signal, io_uring_setup, setsid, setpgid: a process that leaves the
    group cannot be killed with it."""
    starting: tuple[int, ...]
    """fork, vfork, execve, if they exist."""


_MACHINES: Final[Mapping[str, _Machine]] = MappingProxyType(
    {
        "x86_64": _Machine(
            0xC000003E, 56, 435, (41, 322, 101, 62, 424, 425, 112, 109), (57, 58, 59)
        ),
        "aarch64": _Machine(0xC00000B7, 220, 435, (198, 281, 117, 129, 424, 425, 157, 154), (221,)),
    }
)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def install(*, programs: bool = False) -> bool:
    """Filter this process from now on; ``False`` if the machine or kernel does not support it.

    A filter cannot read the name of the program, so ``programs`` allows any.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return False
    code = b"".join(_instructions(machine, programs))
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return not libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)


def _instructions(machine: _Machine, programs: bool) -> list[bytes]:
    """Jumps are numbers of instructions to skip: (if true, if false)."""
    denied = machine.denied if programs else (*machine.denied, *machine.starting)
    return [
        _op(_LOAD, _ARCHITECTURE),
        _op(_EQUAL, machine.audit, 1, 0),
        _deny(EPERM),
        _op(_LOAD, _NUMBER),
        _op(_MIN_VERSIONS, _X32_BIT, 0, 1),
        _deny(EPERM),
        *[step for number in denied for step in (_op(_EQUAL, number, 0, 1), _deny(EPERM))],
        # glibc falls back from clone3, whose flags a filter cannot read, to clone.
        _op(_EQUAL, machine.clone3, 0, 1),
        _deny(ENOSYS),
        *([] if programs else _only_threads(machine)),
        _op(_RETURN, _ALLOW),
    ]


def _only_threads(machine: _Machine) -> list[bytes]:
    return [
        _op(_EQUAL, machine.clone, 0, 3),
        _op(_LOAD, _ARGUMENT_0),
        _op(_HAS_BITS, _CLONE_THREAD, 1, 0),
        _deny(EPERM),
    ]


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _deny(error: int) -> bytes:
    return _op(_RETURN, _ERRNO | error)
