"""The console's tests in a browser: every task with the mouse in `make test`, by keyboard and at 390 pixels, too, in
`make test-console` and `make test-all`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.harness.browser import Way

HERE: Final = Path(__file__).parent
START_SECONDS: Final = 300
"""A browser and an installation start within a test's time; four of them on two cores are slow."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        item.add_marker(pytest.mark.timeout(START_SECONDS))
        spec = getattr(item, "callspec", None)
        if spec is not None and spec.params.get("way", Way.MOUSE) != Way.MOUSE:
            item.add_marker(pytest.mark.slow)
