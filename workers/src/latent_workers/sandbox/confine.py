"""The child confines itself: limits, no network, no files by name, no new processes. Each layer reports whether it
works."""

from __future__ import annotations

import ctypes
import math
import os
import resource
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import latent_core
import latent_workers
from latent_workers.sandbox import landlock, seccomp
from latent_workers.sandbox.landlock import Access

_SYSTEM: Final = ("/usr", "/bin", "/lib", "/lib64", "/nix/store", "/gnu/store")
"""The last two contain all programs on systems without the others."""
_OF_THE_SYSTEM: Final = (
    # What the dynamic linkers of glibc and musl go by.
    *("/etc/ld.so.cache", "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path"),
    # Libraries fail, instead of going by their defaults, when one of these is there and cannot be read.
    *("/etc/localtime", "/etc/timezone", "/etc/mime.types", "/etc/locale.alias"),
    *("/etc/ssl/openssl.cnf", "/etc/pki/tls/openssl.cnf", "/etc/crypto-policies"),
    # How many cores there are, of what kind, and how much of them may be used.
    *("/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu", "/sys/fs/cgroup"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
)
_OF_PYTHON: Final = ("bin", "lib", "lib64", "pyvenv.cfg")
"""Below its prefixes. Not everything there: a virtual environment may be in a project's folder."""
_OF_PROCESS: Final = Path("/proc/self")
_NOWHERE: Final = Path("/dev/null")

_kept_open: list[int] = []


def readable(further: Iterable[Path], *, programs: bool) -> dict[Path, Access]:
    """With the ``further`` files and folders; if other programs may be started, those that exist there."""
    access = Access.READ | Access.LIST
    if programs:
        access |= Access.EXECUTE
    places = dict.fromkeys((*_places(), *further), access)
    return {**places, _NOWHERE: Access.READ | Access.WRITE, **_own_process()}


def _places() -> Iterator[Path]:
    yield from map(Path, (*_SYSTEM, *_OF_THE_SYSTEM))
    for prefix in {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}:
        yield from (Path(prefix, part) for part in _OF_PYTHON)
    # Packages that are installed to be edited lie where they are edited.
    yield from (Path(entry) for entry in sys.path if entry)
    for package in (latent_core, latent_workers):
        yield from map(Path, package.__path__)


def _own_process() -> dict[Path, Access]:
    """The process's own entries in procfs, such as its memory use.

    Landlock identifies a folder by its inode, and procfs creates a new one after a while under memory pressure: so
    the folder stays open as long as the process lives.
    """
    try:
        _kept_open.append(os.open(_OF_PROCESS, os.O_PATH | os.O_CLOEXEC))
    except OSError:
        return {}
    return {_OF_PROCESS: Access.READ | Access.LIST}


_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_PR_SET_DUMPABLE = 4
_OPEN_FILES = 64
_STATM = Path("/proc/self/statm")
_FIRST_TO_GO = Path("/proc/self/oom_score_adj")

Layers = Mapping[str, bool | str]


def confine(*, programs: bool = False, reads: Iterable[Path] = ()) -> dict[str, bool | str]:
    """Apply all layers permanently; call it while the process has a single thread.

    With ``programs``, other programs may be started, which inherit all other limits. ``reads`` are files and
    folders that may be read besides Python's and the system's.
    """
    linux = sys.platform.startswith("linux")
    first = linux and go_first()
    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_FSIZE, 0)
    lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
    namespace = linux and leave_network()
    # After the namespace is left: until then /proc/self may be another's.
    files = linux and landlock.restrict(readable(reads, programs=programs))
    filtered = linux and seccomp.install(programs=programs)
    missing = f"not on {sys.platform}"
    return {
        "session": True,
        "environment": True,
        "cpu_limit": True,
        "memory_limit": True if linux else missing,
        "ends_before_others": first if linux else missing,
        "file_reads": files if linux else missing,
        "file_writes": True,
        "signals": landlock.keeps_signals() if files is True else files if linux else missing,
        "network_namespace": namespace if linux else missing,
        "network_filter": filtered if linux else missing,
        "no_new_processes": _no_programs(filtered, programs) if linux else missing,
    }


def _no_programs(filtered: bool, programs: bool) -> bool | str:
    return "the OCR engine is a program of its own" if programs else filtered


def go_first() -> bool | str:
    """Under memory pressure, the kernel kills this process and its children before the worker."""
    try:
        _FIRST_TO_GO.write_text("1000", encoding="ascii")
    except OSError as exc:
        return f"the kernel does not take it: {exc.strerror}"
    return True


def lower(kind: int, limit: int) -> None:
    """Lower both limits of ``kind`` permanently."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(kind, (limit, limit))


def leave_network() -> bool:
    """Move to an empty network; with its own user namespace, even root loses its rights outside."""
    libc = ctypes.CDLL(None, use_errno=True)
    moved = not libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) or not libc.unshare(_CLONE_NEWNET)
    # A new user namespace makes the process undumpable, and /proc/self then belongs to root.
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    return moved


def limit_task(cpu_seconds: int, memory_bytes: int) -> None:
    """Set the limits of this task, in addition to what the process has used already."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _soften(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + cpu_seconds)
    if sys.platform.startswith("linux"):
        _soften(resource.RLIMIT_AS, _address_space() + memory_bytes)


def resident_bytes() -> int:
    """Current memory of this process; its peak if the system does not report it."""
    if _STATM.exists():
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _address_space() -> int:
    return int(_STATM.read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _soften(kind: int, limit: int) -> None:
    # Only the soft limit: a lowered hard limit could not be raised again for the next task.
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
