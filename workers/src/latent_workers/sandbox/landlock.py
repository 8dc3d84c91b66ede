"""Allows opening files by name only below listed folders (Landlock, Linux 5.13 and newer).

Descriptors from the parent stay readable. Landlock also forbids tracing other processes, which reading their
environment needs, and newer kernels block signals to them: the filter of ``seccomp`` denies ``kill`` but must allow
``tgkill``, with which a process ends itself. Layout of the structures: linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Mapping
from enum import IntFlag
from errno import ENOSYS, EOPNOTSUPP, EPERM
from pathlib import Path
from types import MappingProxyType
from typing import Final

# The same on every machine.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38
_SCOPE_SIGNAL = 1 << 1
_SIGNALS_SINCE = 6

_MISSING: Final[Mapping[int, str]] = MappingProxyType(
    {
        ENOSYS: "this kernel has no Landlock (Linux 5.13)",
        EOPNOTSUPP: "Landlock is not among the modules that this kernel was started with (lsm=)",
        EPERM: "Landlock is refused here, perhaps by the filter of an old container runtime",
    }
)


class Access(IntFlag):
    """Permissions below a folder, or for a file."""

    EXECUTE = 1 << 0
    WRITE = 1 << 1
    READ = 1 << 2
    LIST = 1 << 3


_OF_FILES: Final = Access.EXECUTE | Access.WRITE | Access.READ
_KNOWN_BITS: Final = (13, 14, 15, 15, 16)
"""Number of access kinds in versions 1 to 5: the last ones are renaming between folders, truncating, and ioctl on
devices."""


def restrict(allowed: Mapping[Path, Access]) -> bool | str:
    """Deny this thread and those it starts every file except ``allowed``, permanently; returns the reason if that
    is not possible.

    Missing files in ``allowed`` are ignored.
    """
    version = _version()
    if version < 1:
        return _reason()
    libc = ctypes.CDLL(None, use_errno=True)
    handled = (1 << _KNOWN_BITS[min(version, len(_KNOWN_BITS)) - 1]) - 1
    scoped = _SCOPE_SIGNAL if version >= _SIGNALS_SINCE else 0
    # Files, TCP ports, scopes. Older kernels take the longer form as long as what they do not know is nothing.
    rules = struct.pack("=QQQ", handled, 0, scoped)
    ruleset = libc.syscall(_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    if ruleset < 0:
        return _reason()
    try:
        for path, access in allowed.items():
            if not _allow(libc, ruleset, path, access):
                return _reason()
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            return _reason()
        return True if not libc.syscall(_RESTRICT_SELF, ruleset, 0) else _reason()
    finally:
        os.close(ruleset)


def keeps_signals() -> bool | str:
    """Whether a restricted process can send signals only to processes with the same restriction."""
    known = _version() >= _SIGNALS_SINCE
    return True if known else "this kernel's Landlock does not know signals (Linux 6.12)"


def _version() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION))


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, access: Access) -> bool:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _OF_FILES
        rule = struct.pack("=Qi", access, fd)
        return not libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)


def _reason() -> str:
    number = ctypes.get_errno()
    return _MISSING.get(number, f"Landlock: {os.strerror(number)}")
