"""Where tests put data that need not outlive the machine: in memory, if there is enough.

Every test has a database of its own, of 300 files that are deleted a moment later. A disk's file system looks at each
recently deleted file before it makes another one, which took half of the processor time of a run.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
ENOUGH: Final = 6 * 1024**3
"""Free bytes: databases and data directories of four test processes take up to 2 GB."""


def fast_folder() -> str:
    """For ``tempfile``: in memory, else the usual place."""
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError:
        return tempfile.gettempdir()
    return str(MEMORY) if free >= ENOUGH else tempfile.gettempdir()
