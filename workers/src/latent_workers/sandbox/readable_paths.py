"""What a child may open by name: programs and libraries of the system, Python and its packages. No data of anybody."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import latent_core
import latent_workers
from latent_workers.sandbox.landlock import Access

_SYSTEM: Final = ("/usr", "/bin", "/lib", "/lib64", "/nix/store", "/gnu/store")
"""The last two hold all programs of systems that have nothing in the others."""
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
"""Below its prefixes. Not all that is there: an environment may be made in the folder of a project."""
_OF_PROCESS: Final = Path("/proc/self")
_NOWHERE: Final = Path("/dev/null")

_kept_open: list[int] = []


def readable(further: Iterable[Path], *, programs: bool) -> dict[Path, Access]:
    """With ``further`` files and folders; where other programs may be started, those that are found there."""
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
    """What a process can see of itself, such as the memory it holds.

    Landlock knows a folder by its inode, and procfs makes another one when it was not used for a while and memory is
    short: so the folder stays open as long as the process lives.
    """
    try:
        _kept_open.append(os.open(_OF_PROCESS, os.O_PATH | os.O_CLOEXEC))
    except OSError:
        return {}
    return {_OF_PROCESS: Access.READ | Access.LIST}
