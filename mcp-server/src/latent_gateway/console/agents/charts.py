"""Bars of calls, drawn as SVG on the server; the numbers are in a table beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from latent_core.domain.token import OperationCalls, TokenCalls

HEIGHT: Final = 100.0
STEP: Final = 10.0
GAP: Final = 2.0
MIN_HEIGHT: Final = 1.5
"""Of a bar that is not 0: it must be seen."""


@dataclass(frozen=True, slots=True)
class DayBar:
    """Lengths in units of the drawing, from its top left corner."""

    day: date
    calls: int
    failures: int
    x: float
    y: float
    height: float
    failed_height: float
    """Of the lower part, which failed."""


@dataclass(frozen=True, slots=True)
class DayChart:
    bars: Sequence[DayBar]
    width: float
    height: float
    bar_width: float
    busiest: int
    """Calls of the busiest day."""
    total: int
    failures: int


@dataclass(frozen=True, slots=True)
class OperationBar:
    calls: OperationCalls
    percent: float
    """Of the most frequent operation."""


def by_day(calls: Iterable[TokenCalls], today: date, days: int) -> DayChart:
    """One bar per day, also of days without calls."""
    totals = {today - timedelta(days=back): [0, 0] for back in reversed(range(days))}
    for one in calls:
        if one.day in totals:
            totals[one.day][0] += one.calls
            totals[one.day][1] += one.failures
    busiest = max(count for count, _ in totals.values())
    bars = []
    for place, (day, (count, failures)) in enumerate(totals.items()):
        height = _length(count, busiest)
        failed = min(height, _length(failures, busiest))
        x, y = place * STEP + GAP / 2, round(HEIGHT - height, 2)
        bars.append(DayBar(day, count, failures, x, y, height, failed))
    return DayChart(
        bars,
        width=days * STEP,
        height=HEIGHT,
        bar_width=STEP - GAP,
        busiest=busiest,
        total=sum(bar.calls for bar in bars),
        failures=sum(bar.failures for bar in bars),
    )


def _length(count: int, highest: int) -> float:
    return round(max(MIN_HEIGHT, HEIGHT * count / highest), 2) if count else 0.0


def by_operation(calls: Iterable[OperationCalls]) -> list[OperationBar]:
    """The most frequent first."""
    totals: dict[tuple[str, str], OperationCalls] = {}
    for one in calls:
        key = (one.api.value, one.operation)
        before = totals.get(key)
        totals[key] = OperationCalls(
            api=one.api,
            operation=one.operation,
            calls=one.calls + (before.calls if before else 0),
            failures=one.failures + (before.failures if before else 0),
        )
    ordered = sorted(totals.values(), key=lambda one: (-one.calls, one.api, one.operation))
    highest = ordered[0].calls if ordered else 1
    return [OperationBar(one, round(100 * one.calls / highest, 1)) for one in ordered]
