"""The limits of a task, and the profile of its child."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one task. A task that reaches one fails alone, and the error names the limit."""

    cpu_seconds: int = 120
    wall_seconds: float = 300.0
    """Time the caller waits for the child, without the caller's own time between items."""
    memory_bytes: int = 2048 * MIB
    """Address space above that of the idle child."""
    output_bytes: int = 256 * MIB
    """All items of the task together."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The default is what parsers get."""

    programs: bool = False
    """Whether a child may start other programs, which inherit every limit and the empty network."""
    reads: tuple[Path, ...] = ()
    """Files and folders that a child may read besides Python's and the system's."""
    niceness: int = 0
    """Scheduling priority of a child; 0 (normal) to 19 (lowest)."""
    keep_resident_bytes: int = 256 * MIB
    """A child that uses more after a task is replaced."""


PARSING: Final = Profile()
DRAWING: Final = Profile(niceness=12)
"""No user waits for page images: parsers and the embedder's threads have priority."""
