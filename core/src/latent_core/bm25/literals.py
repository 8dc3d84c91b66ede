"""What a text must hold so that a regular expression can match it: literals of three characters or more.

The expression is read by Python's own parser, for its structure only: nothing is ever matched with it. What that
parser does not know (RE2 has some syntax of its own) gives no literals, and then every text is a candidate.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any, Final

from latent_core.bm25.signature import MIN_CHARS

_parser: Final[Any] = re._parser  # type: ignore[attr-defined]  # the structure of a pattern, by the standard library
_constants: Final[Any] = re._constants  # type: ignore[attr-defined]

MAX_DEPTH: Final = 50


def required(pattern: str) -> list[str]:
    """Strings that every match of ``pattern`` holds, in any case of their letters; [] when none is certain."""
    if "[:" in pattern:  # a POSIX class: Python reads its end as a character
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError, ValueError):
        return []
    return [run for run in _runs(parsed, 0) if len(run) >= MIN_CHARS]


def _runs(items: Any, depth: int) -> Iterator[str]:
    """Literal runs of a sequence, all of which must be there; what is optional or one of several ends a run."""
    run: list[str] = []
    for op, argument in items:
        if op is _constants.LITERAL:
            run.append(chr(argument))
            continue
        if op is _constants.AT:  # an anchor takes no room
            continue
        yield "".join(run)
        run = []
        if depth < MAX_DEPTH:
            yield from _inside(op, argument, depth + 1)
    yield "".join(run)


def _inside(op: Any, argument: Any, depth: int) -> Iterator[str]:
    if op is _constants.SUBPATTERN:
        yield from _runs(argument[-1], depth)
    elif op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT) and argument[0] > 0:
        yield from _runs(argument[2], depth)
