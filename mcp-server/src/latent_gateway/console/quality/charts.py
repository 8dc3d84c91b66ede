"""Curves of evaluation runs and bars of differences, as numbers for SVG that the templates draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from latent_core.wire.evaluation import EvalRun

WIDTH: Final = 400
HEIGHT: Final = 170
LEFT: Final = 38
RIGHT: Final = 12
TOP: Final = 12
BOTTOM: Final = 22
MAX_POINTS: Final = 60
"""The newest runs."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    x: float
    y: float
    label: str
    failed: bool


@dataclass(frozen=True, slots=True)
class CurveSeries:
    """One line."""

    name: str
    css: str
    points: tuple[CurvePoint, ...]

    @property
    def path(self) -> str:
        return " ".join(
            f"{'M' if place == 0 else 'L'}{point.x:.1f} {point.y:.1f}"
            for place, point in enumerate(self.points)
        )


@dataclass(frozen=True, slots=True)
class Curve:
    """Lines over the runs, the oldest at the left."""

    title: str
    series: tuple[CurveSeries, ...]
    grid: tuple[tuple[float, str], ...]
    """Height and label of each line of the grid."""
    breaks: tuple[float, ...]
    """Where other queries are measured than before."""
    begin: str
    end: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def curves(runs: Sequence[EvalRun]) -> tuple[Curve, Curve]:
    """Quality and speed of runs of one setup, which come newest first."""
    shown = list(reversed(runs[:MAX_POINTS]))
    quality = _curve(
        "Quality",
        shown,
        [
            ("nDCG@10", "first", lambda run: run.means.ndcg_at_10),
            ("Recall@20", "second", lambda run: run.means.recall_at_20),
        ],
        1.0,
        "{:.2f}",
    )
    slowest = max((run.means.p95_ms for run in shown), default=1.0)
    speed = _curve(
        "Milliseconds",
        shown,
        [
            ("p95", "first", lambda run: run.means.p95_ms),
            ("p50", "second", lambda run: run.means.p50_ms),
        ],
        nice_top(slowest),
        "{:.0f}",
    )
    return quality, speed


def _curve(
    title: str,
    runs: Sequence[EvalRun],
    lines: Sequence[tuple[str, str, Callable[[EvalRun], float]]],
    top: float,
    form: str,
) -> Curve:
    xs = _places(len(runs))

    def height(value: float) -> float:
        return HEIGHT - BOTTOM - min(value / top, 1.0) * (HEIGHT - TOP - BOTTOM)

    series = tuple(
        CurveSeries(
            name,
            css,
            tuple(
                CurvePoint(
                    x,
                    height(value(run)),
                    f"{name} {form.format(value(run))}, run {run.id}",
                    bool(run.gates),
                )
                for x, run in zip(xs, runs, strict=True)
            ),
        )
        for name, css, value in lines
    )
    days = [run.created_at.strftime("%Y-%m-%d") for run in runs]
    return Curve(
        title,
        series,
        tuple((height(share * top), form.format(share * top)) for share in (0.0, 0.5, 1.0)),
        tuple(
            (xs[place - 1] + xs[place]) / 2
            for place in range(1, len(runs))
            if runs[place].dataset != runs[place - 1].dataset
        ),
        days[0] if days else "",
        days[-1] if days else "",
    )


def _places(number: int) -> list[float]:
    if number == 1:
        return [(LEFT + WIDTH - RIGHT) / 2]
    step = (WIDTH - LEFT - RIGHT) / max(number - 1, 1)
    return [LEFT + place * step for place in range(number)]


def nice_top(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 … that is not below ``value``."""
    if value <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return float(next(step * power for step in (1, 2, 5, 10) if step * power >= value))


BAR_WIDTH: Final = 120


@dataclass(frozen=True, slots=True)
class ChangeBar:
    """A change of -1..1 as a bar from the middle."""

    x: float
    width: float
    css: str


def change_bar(change: float) -> ChangeBar:
    half = BAR_WIDTH / 2
    length = max(min(abs(change), 1.0) * half, 1.0)
    return ChangeBar(
        half if change >= 0 else half - length, length, "up" if change >= 0 else "down"
    )
