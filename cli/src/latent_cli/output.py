"""What a command prints: answers on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

UNCUT: Final = 1000
"""Columns when stdout is no terminal: nothing is wrapped or cut for those who read it by program."""
_CONTROLS: Final = dict.fromkeys((*range(32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")
_CONTROLS_OF_TEXT: Final = {c: r for c, r in _CONTROLS.items() if chr(c) not in "\n\t"}


def answers() -> Console:
    """Where answers for people go."""
    width = None if sys.stdout.isatty() else UNCUT
    return Console(highlight=False, markup=False, emoji=False, width=width)


def notes() -> Console:
    """Where progress and remarks go."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def safe(text: str, *, lines: bool = False) -> str:
    """Text of others, character for character, without what would steer a terminal.

    With ``lines`` it may have several.
    """
    return text.translate(_CONTROLS_OF_TEXT if lines else _CONTROLS)


def emit(data: Any, *, line: bool = False) -> None:
    """An answer for programs: one JSON document, or one ``line`` of a stream of them."""
    option = orjson.OPT_APPEND_NEWLINE | (0 if line else orjson.OPT_INDENT_2)
    sys.stdout.buffer.write(orjson.dumps(data, default=_plain, option=option))
    sys.stdout.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Columns that begin with ``>`` are numbers and stand to the right."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        number = column.startswith(">")
        drawn.add_column(column.removeprefix(">"), justify="right" if number else "left")
    for row in rows:
        drawn.add_row(*(Text(safe("" if cell is None else str(cell))) for cell in row))
    return drawn


def moment(at: datetime | None) -> str:
    """A time as people read it, in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else ""


def amount(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(count: int | None) -> str:
    """Bytes as people read them."""
    if count is None:
        return ""
    shown, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if shown < 1000:
            break
        shown, unit = shown / 1000, larger
    return f"{shown:.0f} {unit}" if unit == "B" else f"{shown:.1f} {unit}"


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} has no JSON form")
