"""The speed of all participants as bars: one SVG, a row of panels for each size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from benchmarks.compare.modes import OURS, title

WIDTH: Final = 900
NAMES: Final = 130
ROW: Final = 22
HEAD: Final = 34
PANELS: Final = (
    ("hybrid, p50 and p95, ms (less is better)", "#1d4ed8"),
    ("words, p50 and p95, ms (less is better)", "#b45309"),
    ("hybrid searches per second, 8 clients (more is better)", "#047857"),
)


def bars_of(speed: Mapping[str, Mapping[str, Any]]) -> str:
    """The drawing. A bar ends at p50, its thin end at p95; a participant without the mode has no bar."""
    parts: list[str] = []
    top = 10.0
    for chunks in sorted(speed, key=int):
        results = [one for one in speed[chunks]["results"] if not one["reason"]]
        parts.append(f'<text x="8" y="{top + 14}" font-weight="bold">{int(chunks):,} chunks</text>')
        top += 20
        for (heading, colour), values in zip(PANELS, _values(results), strict=True):
            parts += _panel(heading, colour, results, values, top)
            top += HEAD + ROW * len(results)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 10:g}" font-family="sans-serif" font-size="12">'
    back = f'<rect width="{WIDTH}" height="{top + 10:g}" fill="white"/>'
    return "\n".join([head, back, *parts, "</svg>", ""])


Bar = tuple[float, float] | None
"""Where it ends, and where its thin end does."""


def _values(results: Sequence[Mapping[str, Any]]) -> Iterator[list[Bar]]:
    for mode in ("hybrid", "words"):
        spreads = [one["latency"].get(mode) for one in results]
        yield [None if one is None else (one["p50_ms"], one["p95_ms"]) for one in spreads]
    yield [
        (one["per_second"], one["per_second"]) if "hybrid" in one["latency"] else None
        for one in results
    ]


def _panel(
    heading: str,
    colour: str,
    results: Sequence[Mapping[str, Any]],
    values: Sequence[Bar],
    top: float,
) -> Iterator[str]:
    yield f'<text x="8" y="{top + 20:g}" fill="#374151">{heading}</text>'
    longest = max((value[1] for value in values if value), default=1.0)
    scale = (WIDTH - NAMES - 90) / longest
    for number, (one, value) in enumerate(zip(results, values, strict=True)):
        y = top + HEAD - 4 + ROW * number
        weight = "bold" if one["name"] == OURS else "normal"
        yield f'<text x="{NAMES - 6}" y="{y + 12:g}" text-anchor="end" font-weight="{weight}">{title(one["name"])}</text>'
        if value is None:
            yield f'<text x="{NAMES}" y="{y + 12:g}" fill="#6b7280">has no such mode</text>'
            continue
        middle, end = value
        yield f'<rect x="{NAMES}" y="{y:g}" width="{middle * scale:.1f}" height="15" fill="{colour}"/>'
        yield f'<rect x="{NAMES}" y="{y + 6:g}" width="{end * scale:.1f}" height="3" fill="{colour}"/>'
        text = f"{middle:g}" if middle == end else f"{middle:g} / {end:g}"
        yield f'<text x="{NAMES + end * scale + 6:.1f}" y="{y + 12:g}">{text}</text>'
