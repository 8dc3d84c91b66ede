"""What one task may spend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one task; a task that reaches one fails alone, with the limit named."""

    cpu_seconds: int = 120
    wall_seconds: float = 300.0
    """Time the caller waits for the child; time the caller takes between items is not counted."""
    memory_bytes: int = 2048 * MIB
    """Address space on top of what the idle child holds."""
    output_bytes: int = 256 * MIB
    """All items of the task together."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The default is what parsers get."""

    programs: bool = False
    """Whether a child may start other programs. They inherit every limit and the empty network."""
    reads: tuple[Path, ...] = ()
    """Files and folders a child may read beside Python's own and the system's."""
    niceness: int = 0
    """How much a child gives way to others; 0 to 19."""
    keep_resident_bytes: int = 256 * MIB
    """A child that holds more after a task is replaced."""


PARSING: Final = Profile()
DRAWING: Final = Profile(niceness=12)
"""Nobody waits for a picture: parsers, and even the embedder's threads, go first."""
