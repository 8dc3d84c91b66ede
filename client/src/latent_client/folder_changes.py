"""Notices changes of a folder: by notifications of the operating system, or by reading the folder again and again.

Notifications do not tell what other computers change on a network file system, and Linux limits their number.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from watchfiles import awatch

from latent_client.walk import walk
from latent_core.domain.errors import Invalid

MOUNTS: Final = Path("/proc/self/mounts")
NETWORK_TYPES: Final = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "ncpfs",
        "9p",
        "afs",
        "ceph",
        "lustre",
        "beegfs",
        "gfs2",
        "ocfs2",
        "virtiofs",
        "vboxsf",
        "prl_fs",
        "drvfs",
        "davfs",
    ]
)
"""File systems that others can change. All of ``fuse`` count too: most of them are remote, such as sshfs."""
ESCAPED: Final = re.compile(r"\\([0-7]{3})")
LIMITS: Final = {
    "watch limit": "fs.inotify.max_user_watches",
    "Too many open files": "fs.inotify.max_user_instances",
}
"""What the error of a watch says at a limit of Linux, and the setting that raises it."""
DUTY: Final = 20
"""Reading a large folder takes long: it pauses at least this many times as long."""

OnNote = Callable[[str], None]


async def notified(
    root: Path, stop: asyncio.Event, *, debounce_ms: int, quiet_ms: int, tick_ms: int
) -> AsyncIterator[list[str]]:
    """Paths that changed, an empty list at each tick. Raises ``OSError`` or ``RuntimeError`` if that is not possible."""
    async for changes in awatch(
        root,
        watch_filter=None,
        debounce=debounce_ms,
        step=quiet_ms,
        rust_timeout=tick_ms,
        yield_on_timeout=True,
        stop_event=stop,
        ignore_permission_denied=True,
    ):
        yield [path for _, path in changes]


async def polled(root: Path, stop: asyncio.Event, *, seconds: float) -> AsyncIterator[bool]:
    """Whether something changed since the last reading, every ``seconds`` until ``stop`` is set."""
    before: str | None = None
    while not stop.is_set():
        began = time.monotonic()
        now = await asyncio.to_thread(_fingerprint, root)
        yield now != before
        before = now
        pause = max(seconds, DUTY * (time.monotonic() - began))
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await stop.wait()


def polling_reason(root: Path) -> str | None:
    """Why a folder must be polled from the start; None if notifications suffice."""
    found = network_type(root)
    if found is None:
        return None
    return f"{found} is a network file system, whose changes are not notified"


def limit_reason(error: Exception) -> str | None:
    """Which limit of Linux ended a watch, and what raises it; None for another error."""
    for sign, setting in LIMITS.items():
        if sign in str(error):
            return f"the limit {setting} is reached; `sudo sysctl {setting}=1048576` raises it"
    return None


def network_type(root: Path) -> str | None:
    """The type of a network file system that holds the folder or a part of it. Known on Linux only."""
    try:
        lines = MOUNTS.read_text("utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    mounts = [
        (Path(_plain(fields[1])), fields[2]) for fields in map(str.split, lines) if len(fields) > 2
    ]
    above = [
        (len(place.parts), number)
        for number, (place, _) in enumerate(mounts)
        if root.is_relative_to(place)
    ]
    own = [mounts[max(above)[1]][1]] if above else []
    below = [kind for place, kind in mounts if place.is_relative_to(root)]
    return next((kind for kind in (*own, *below) if _is_network(kind)), None)


def _is_network(kind: str) -> bool:
    return kind in NETWORK_TYPES or kind.startswith("fuse.") or kind == "fuse"


def _plain(place: str) -> str:
    """A mount point: blanks and backslashes are octal numbers."""
    return ESCAPED.sub(lambda found: chr(int(found[1], 8)), place)


def _fingerprint(root: Path) -> str:
    """Differs if a file, a sidecar or what the rules ignore differs. That of an unreadable folder is its error."""
    digest = hashlib.sha256()
    try:
        found = walk(root)
    except Invalid as exc:
        return exc.message
    for file in found.files:
        digest.update(f"{file.path}\0{file.bytes}\0{file.mtime_ns}\0".encode())
        if file.sidecar is not None:
            with suppress(OSError):
                digest.update(str(os.stat(file.sidecar).st_mtime_ns).encode())
    skipped: Sequence[str] = [one.path for one in found.skipped]
    digest.update("\0".join(skipped).encode())
    return digest.hexdigest()
