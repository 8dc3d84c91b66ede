"""What one task may spend."""

from __future__ import annotations

from dataclasses import dataclass

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
