"""What the children of one pool may do, and how long they are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from latent_workers.sandbox.budget import MIB


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
