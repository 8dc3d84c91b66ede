"""Locks on files that the system releases when their process ends."""

from __future__ import annotations

import errno
import fcntl
from typing import Final

_HELD: Final = (errno.EAGAIN, errno.EACCES)


def try_lock(descriptor: int) -> bool:
    """Lock the open file exclusively without waiting; False while another process or descriptor holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in _HELD:
            return False
        raise
    return True
