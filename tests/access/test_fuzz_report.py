"""What a run of the fuzzer says: findings, shortly, and never that all is well when nothing was tried."""

from __future__ import annotations

import argparse
from typing import Any, Final

import pytest

from scripts import fuzz
from scripts.fuzz import MAX_LINES, ROLES, KnownIds, findings, tried

FINE: Final = """
==== WARNINGS ====
12 operations mostly rejected generated data
==== SUMMARY ====
Test cases:
  60 generated, 60 passed, 2 skipped
==== 1 warning in 24.17s ====
"""
FOUND: Final = """
==== FAILURES ====
____ GET /v1/jobs ____
- Server error
    curl -X GET http://127.0.0.1/v1/jobs
==== SUMMARY ====
Test cases:
  60 generated, 59 passed, 1 found 1 unique failures
==== 1 failure in 24.17s ====
"""
NOTHING: Final = """
==== SUMMARY ====
Test cases:
  No test cases were generated
==== Empty test suite ====
"""


def test_a_run_without_findings_reports_only_the_number_of_cases() -> None:
    assert findings(FINE, failed=False) == ["  60 generated, 60 passed, 2 skipped"]


def test_a_finding_is_reported_with_its_curl_line() -> None:
    report = findings(FOUND, failed=True)
    assert "    curl -X GET http://127.0.0.1/v1/jobs" in report
    assert report[-1].endswith("1 unique failures")


def test_a_run_that_never_began_is_reported_as_such() -> None:
    assert findings("the schema cannot be read", failed=True) == ["the schema cannot be read"]


def test_many_findings_are_cut_off() -> None:
    report = findings("== FAILURES ==\n" + "line\n" * 2 * MAX_LINES, failed=True)
    assert len(report) == MAX_LINES + 1


@pytest.mark.parametrize(
    ("answers", "fine"),
    [
        ([(0, FINE)], True),
        ([(1, FOUND)], False),
        ([(0, NOTHING), (0, FINE)], True),
        ([(0, NOTHING), (1, FOUND)], False),
        ([(0, NOTHING), (0, NOTHING)], False),
    ],
)
def test_a_role_that_was_not_tried_is_given_more_time_once_and_then_fails(
    answers: list[tuple[int, str]], fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(answers)
    monkeypatch.setattr(fuzz, "fuzz", lambda *_: left.pop(0))
    nowhere: Any = None
    assert tried(nowhere, ROLES[0], "", KnownIds(), 20, argparse.Namespace()) is fine
    assert left == []
