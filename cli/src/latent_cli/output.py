"""Output of commands: answers on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import BaseModel

from latent_client.retry import MAX_ATTEMPTS, RetryNotice

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WITHOUT_LINKS: Final = frozenset({"", "dumb", "linux", "screen"})
"""Kinds of terminals (TERM) that print a hyperlink as text, or may."""
FIRST_VTE: Final = 5000
"""Older versions of this terminal garble hyperlinks."""
UNCUT: Final = 1000
"""Width if stdout is not a terminal: programs get no wrapped or truncated lines."""
MAX_CAUSE: Final = 120
"""Characters of a cause in a list."""
SECONDS_BETWEEN_NOTES: Final = 1.0
_CONTROLS: Final = dict.fromkeys((*range(32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")
_CONTROLS_OF_TEXT: Final = {c: r for c, r in _CONTROLS.items() if chr(c) not in "\n\t"}


def answers() -> Console:
    """The console for answers, on stdout."""
    from rich.console import Console  # not needed by searches whose output is no terminal

    width = None if sys.stdout.isatty() else UNCUT
    return Console(highlight=False, markup=False, emoji=False, width=width)


def notes() -> Console:
    """The console for progress and remarks, on stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def print_note(text: str) -> None:
    """One remark on stderr; only a terminal needs what draws."""
    if sys.stderr.isatty():
        notes().print(safe(text))
    else:
        sys.stderr.write(f"{safe(text)}\n")


class RetryNotes:
    """Tells on stderr that a call is sent again. Concurrent calls share a line."""

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def __call__(self, notice: RetryNotice) -> None:
        now = time.monotonic()
        if notice.absent or now < self._quiet_until:
            return
        self._quiet_until = now + max(notice.seconds, SECONDS_BETWEEN_NOTES)
        message = safe(" ".join(notice.error.message.split()))
        notes().print(
            f"latent: {message}; trying again in {notice.seconds:.0f} s "
            f"(attempt {notice.attempt} of {MAX_ATTEMPTS})",
            soft_wrap=True,
        )


def safe(text: str, *, lines: bool = False) -> str:
    """Foreign text with control characters replaced, so that it cannot control the terminal.

    With ``lines``, line breaks and tabs stay.
    """
    return text.translate(_CONTROLS_OF_TEXT if lines else _CONTROLS)


def emit(data: Any, *, line: bool = False) -> None:
    """Print JSON: an indented document, or with ``line`` one line of a stream."""
    option = orjson.OPT_APPEND_NEWLINE | (0 if line else orjson.OPT_INDENT_2)
    sys.stdout.buffer.write(orjson.dumps(data, default=_plain, option=option))
    sys.stdout.flush()


def can_link() -> bool:
    """Whether stdout is a terminal that shows hyperlinks (OSC 8), or at least ignores them."""
    named = os.environ  # noqa: TID251 - the terminal's, no setting
    kind, vte = named.get("TERM", ""), named.get("VTE_VERSION", "")
    if not sys.stdout.isatty() or kind.partition("-")[0] in WITHOUT_LINKS:
        return False
    return named.get("TERM_PROGRAM") != "Apple_Terminal" and not (
        vte.isdecimal() and int(vte) < FIRST_VTE
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table without borders. Columns whose name begins with ``>`` are right-aligned."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        number = column.startswith(">")
        drawn.add_column(column.removeprefix(">"), justify="right" if number else "left")
    for row in rows:
        drawn.add_row(*(Text(safe("" if cell is None else str(cell))) for cell in row))
    return drawn


def brief(cause: str) -> str:
    """A cause for one cell of a table, without its remedy; commands that show one thing print it whole."""
    first = cause.partition("; ")[0]
    return (
        first
        if len(first) <= MAX_CAUSE
        else f"{first[: MAX_CAUSE - 1].rstrip()}\N{HORIZONTAL ELLIPSIS}"
    )


def moment(at: datetime | None) -> str:
    """A time in UTC, for display."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else ""


def amount(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def size(count: int | None) -> str:
    """A number of bytes, for display."""
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
