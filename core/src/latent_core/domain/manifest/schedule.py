"""Schedules: cron expressions of five fields, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError


def check_cron(expression: str) -> str:
    """Return the expression if it is valid and occurs at all; ``ValueError`` says what is wrong."""
    if len(expression.split()) != 5:
        raise ValueError(
            f"'{expression}' must have five fields: minute hour day month weekday, in UTC"
        )
    try:
        next(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration) as exc:
        raise ValueError(
            f"'{expression}' never occurs or is not a cron expression ({exc}); '0 3 * * *' means daily at 3:00 UTC"
        ) from exc
    return expression


def due_since(expression: str, last: datetime, now: datetime) -> datetime | None:
    """The latest due time after ``last`` and up to ``now``; None when there is none.

    Searches backwards from now, so a thousand missed times cost no more than one.
    """
    latest = next(CronSim(expression, now.astimezone(UTC), reverse=True), None)
    exact = next(CronSim(expression, last.astimezone(UTC)), None)
    if latest is None or exact is None or exact > now:
        return None
    return max(latest, exact)
