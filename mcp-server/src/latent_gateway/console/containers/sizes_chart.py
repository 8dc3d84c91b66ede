"""Sizes over time as a drawing: one stacked bar per day, by store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from latent_core.wire.container_sizes import StoreSizes
from latent_gateway.console.frame.text_format import size

WIDTH: Final = 720
HEIGHT: Final = 180
LEFT: Final = 64
BOTTOM: Final = 22
TOP: Final = 8
MAX_BAR: Final = 28
MIN_GAP: Final = 1.0
STORES: Final = (
    ("original_bytes", "Originals"),
    ("page_file_bytes", "Page files"),
    ("postgres_bytes", "Postgres"),
    ("vector_bytes", "Vectors"),
    ("archive_bytes", "Archives"),
)


@dataclass(frozen=True, slots=True)
class ChartBox:
    """One store on one day, in units of the drawing."""

    store: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line of the scale."""

    y: float
    label: str


@dataclass(frozen=True, slots=True)
class SizesChart:
    """A drawing of ``WIDTH`` by ``HEIGHT``."""

    boxes: list[ChartBox]
    lines: list[ChartLine]
    first: str
    last: str
    stores: tuple[tuple[str, str], ...] = STORES
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    floor: int = HEIGHT - BOTTOM


def sizes_chart(sizes: Sequence[StoreSizes]) -> SizesChart | None:
    """None without a measurement. Missing days are gaps."""
    if not sizes:
        return None
    days = (sizes[-1].day - sizes[0].day).days + 1
    step = (WIDTH - LEFT) / days
    width = min(MAX_BAR, max(step - MIN_GAP, step / 2))
    largest = scale_end(max(one.bytes for one in sizes))
    tall = HEIGHT - BOTTOM - TOP
    boxes = []
    for one in sizes:
        x = LEFT + (one.day - sizes[0].day).days * step
        y = float(HEIGHT - BOTTOM)
        for number, (name, _) in enumerate(STORES):
            height = tall * getattr(one, name) / largest
            y -= height
            if height > 0:
                boxes.append(
                    ChartBox(number, round(x, 2), round(y, 2), round(width, 2), round(height, 2))
                )
    lines = [
        ChartLine(round(HEIGHT - BOTTOM - tall * share, 2), size(round(largest * share)))
        for share in (0.5, 1.0)
    ]
    return SizesChart(boxes, lines, sizes[0].day.isoformat(), sizes[-1].day.isoformat())


def scale_end(largest: int) -> int:
    """The round number at or above ``largest`` at which the scale ends."""
    power = 1
    while power * 10 < largest:
        power *= 10
    return next(power * step for step in (1, 2, 5, 10) if power * step >= largest)
