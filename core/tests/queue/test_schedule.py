"""Cron expressions: what they name is met once, however late one looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import due_since, parse_manifest

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
MOMENTS = st.timedeltas(timedelta(0), timedelta(days=1000)).map(lambda since: BEGIN + since)


@settings(max_examples=300, deadline=None)
@given(last=MOMENTS, waited=st.timedeltas(timedelta(0), timedelta(days=5)))
def test_daily_at_three_is_due_once_it_was_three_since_the_last_look(
    last: datetime, waited: timedelta
) -> None:
    now = last + waited
    three = last.replace(hour=3, minute=0, second=0, microsecond=0)
    first = three if three > last else three + timedelta(days=1)
    due = due_since("0 3 * * *", last, now)
    assert (due is not None) == (first <= now)
    if due is not None:
        assert due.hour == 3
        assert last < due <= now
        assert now - due < timedelta(days=1)  # of several that were missed the latest


@pytest.mark.parametrize(
    "cron", ["0 3 * *", "61 * * * *", "0 0 30 2 *", "daily", "0 0 3 * * *", ""]
)
def test_a_manifest_with_a_time_that_never_comes_is_refused_by_its_key(cron: str) -> None:
    with pytest.raises(Invalid, match=r"backup\.cron"):
        parse_manifest({"id": "a", "name": "A", "backup": {"cron": cron}})
