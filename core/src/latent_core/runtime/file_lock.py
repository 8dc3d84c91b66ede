"""Locks on files that the system releases when their process ends."""

from __future__ import annotations

import errno
import fcntl
from typing import Final

_HELD: Final = (errno.EAGAIN, errno.EACCES)


def try_lock(descriptor: int) -> bool:
    """Lock the open file exclusively without waiting; False while another process or descriptor holds it."""
    return _try(descriptor, fcntl.LOCK_EX)


def try_share(descriptor: int) -> bool:
    """Share the lock of the open file without waiting; False while another process or descriptor holds it alone."""
    return _try(descriptor, fcntl.LOCK_SH)


def _try(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in _HELD:
            return False
        raise
    return True
