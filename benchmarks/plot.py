"""How time and memory grow with a container, drawn as one SVG: two panels, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.search import Footprint, ModeLatency

WIDTH: Final = 420
HEIGHT: Final = 300
MARGIN: Final = 56
COLOURS: Final = {"lexical": "#b45309", "semantic": "#1d4ed8", "hybrid": "#047857", "MB": "#6d28d9"}

Point = tuple[float, float]


def at(points: Sequence[Point], chunks: int) -> float:
    """What the line through the two largest says of ``chunks``."""
    (x1, y1), (x2, y2) = sorted(points)[-2:]
    rise = math.log(y2 / y1) / math.log(x2 / x1)
    return float(y2 * (chunks / x2) ** rise)


def growth(search: Sequence[ModeLatency], memory: Sequence[Footprint]) -> str:
    """The drawing."""
    times = {
        mode: sorted((float(row.chunks), row.total.p95_ms) for row in search if row.mode == mode)
        for mode in dict.fromkeys(row.mode for row in search)
    }
    sizes = {"MB": sorted((float(one.chunks), one.megabytes) for one in memory)}
    panels = [("p95, ms", times)] + ([("memory, MB", sizes)] if memory else [])
    parts = [
        part
        for number, (title, lines) in enumerate(panels)
        for part in _panel(title, lines, number * (WIDTH + 20))
    ]
    width = len(panels) * (WIDTH + 20)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + 30}" font-family="sans-serif" font-size="11">'
    return "\n".join(
        [head, f'<rect width="{width}" height="{HEIGHT + 30}" fill="white"/>', *parts, "</svg>", ""]
    )


def _panel(title: str, lines: dict[str, list[Point]], left: int) -> Iterator[str]:
    points = [point for line in lines.values() for point in line]
    x_axis = _decades([x for x, _ in points])
    y_axis = _decades([y for _, y in points])

    def place(point: Point) -> str:
        x = left + MARGIN + (WIDTH - MARGIN - 10) * _share(point[0], x_axis)
        y = HEIGHT - (HEIGHT - 40) * _share(point[1], y_axis)
        return f"{x:.1f},{y:.1f}"

    yield f'<text x="{left + MARGIN}" y="20" font-weight="bold">{title}, by chunks</text>'
    for tick in x_axis:
        x = place((tick, y_axis[0])).partition(",")[0]
        yield f'<path d="M{x},40V{HEIGHT}" stroke="#e5e7eb"/>'
        yield f'<text x="{x}" y="{HEIGHT + 16}" text-anchor="middle">{tick:,.0f}</text>'
    for tick in y_axis:
        y = place((x_axis[0], tick)).partition(",")[2]
        yield f'<path d="M{left + MARGIN},{y}H{left + WIDTH - 10}" stroke="#e5e7eb"/>'
        yield f'<text x="{left + MARGIN - 6}" y="{y}" text-anchor="end" dominant-baseline="middle">{tick:,.0f}</text>'
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS.get(name, "black")
        path = " ".join(map(place, line))
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for point in line:
            x, _, y = place(point).partition(",")
            yield f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
        yield f'<text x="{left + MARGIN + 10}" y="{56 + 14 * number}" fill="{colour}">{name}</text>'


def _decades(values: Sequence[float]) -> list[float]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**power for power in range(low, max(high, low + 1) + 1)]


def _share(value: float, axis: Sequence[float]) -> float:
    return math.log(value / axis[0]) / math.log(axis[-1] / axis[0])
