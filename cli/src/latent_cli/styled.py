"""Styled lines: drawn on a terminal, plain text elsewhere. What draws them takes a tenth of a search to import."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Final

Line = list[tuple[str, str]]
"""Texts, each with a style of ``rich``; empty: none."""
FORCED: Final = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Variables by which people request a terminal's output without one."""


def print_lines(lines: Iterable[Line]) -> None:
    """Print the lines on stdout."""
    if not _is_drawn():
        sys.stdout.writelines("".join(text for text, _ in line) + "\n" for line in lines)
        return
    from rich.text import Text

    from latent_cli.output import answers

    console = answers()
    for line in lines:
        console.print(Text.assemble(*line))


def _is_drawn() -> bool:
    forced = any(os.environ.get(name) for name in FORCED)  # noqa: TID251 - the terminal's, no setting
    return forced or sys.stdout.isatty()
