"""Which texts go through a model together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MIN_FILL: Final = 0.8
"""The shortest text of a run has at least this share of the longest one's tokens …"""
SLACK: Final = 4
"""… or is at most this many tokens shorter."""


def plan_runs(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of texts, run by run, the longest texts first.

    A run is at most ``budget`` tokens, padding included, unless one text alone is more. Texts of like
    length stand together: a fifth of a run is the most that can be padding, beyond ``SLACK`` a text.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    runs: list[list[int]] = []
    width = 0
    for index in order:
        length = lengths[index]
        alike = length >= MIN_FILL * width or width - length <= SLACK
        if runs and alike and (len(runs[-1]) + 1) * width <= budget:
            runs[-1].append(index)
        else:
            runs.append([index])
            width = length
    return runs
