"""The console's tests in a browser. `make test-processes` has the frame, the first steps and the reference of the API;
`make test-console` has all areas: with the mouse, by keyboard alone, and at 390 pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.harness.browser import Way

HERE: Final = Path(__file__).parent
START_SECONDS: Final = 300
"""A browser and an installation start within a test's time; four of them on two cores are slow."""
AREAS: Final = frozenset(
    {"adding", "agents", "containers", "documents", "operations", "quality", "searching"}
)
"""Their walks take longer than all other tests together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.timeout(START_SECONDS))
        spec = getattr(item, "callspec", None)
        by_mouse = spec is None or spec.params.get("way", Way.MOUSE) == Way.MOUSE
        walks = item.path.parent.name in AREAS and "browser" in getattr(item, "fixturenames", ())
        if walks or not by_mouse:
            item.add_marker(pytest.mark.slow)
