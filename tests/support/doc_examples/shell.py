"""Just enough of a shell's grammar to find the simple commands of an example."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

PLACEHOLDER: Final = "PLACEHOLDER"
_PLACE: Final = re.compile(r"<(?=[^\s<>(=])[^<>\n]*>")
_HEREDOC: Final = re.compile(r"<<-?\s*'?(\w+)'?(.*?)\n.*?^\1$", re.MULTILINE | re.DOTALL)
_SUBSTITUTION: Final = re.compile(r"\$\(([^()]*)\)")
_ASSIGNED: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_ENDS: Final = frozenset({"|", "||", "&", "&&", ";", "(", ")"})
_REDIRECTS: Final = frozenset({"<", ">", ">>", "2>", "&>"})


@dataclass(frozen=True)
class Command:
    """The words of a simple command, and the variables set for it."""

    words: tuple[str, ...]


def commands_in(text: str) -> Iterator[Command]:
    """Every simple command, also those inside ``$(…)``. ``ValueError`` for an open quote."""
    text = _HEREDOC.sub(r"\2", text.replace("\\\n", " "))
    text = _PLACE.sub(PLACEHOLDER, text)
    for line in _lines(text):
        inner = _SUBSTITUTION.findall(line)
        for part in inner:
            yield from commands_in(part)
        yield from _simple(_SUBSTITUTION.sub(PLACEHOLDER, line))


def _lines(text: str) -> Iterator[str]:
    """Whole commands: a line with an open quote continues on the next one."""
    pending = ""
    for line in text.splitlines():
        pending = f"{pending}\n{line}" if pending else line
        try:
            shlex.split(pending, comments=True)
        except ValueError:
            continue
        yield pending
        pending = ""
    if pending:
        raise ValueError(f"a quote is not closed: {pending.strip()[:80]}")


def _simple(line: str) -> Iterator[Command]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    redirected = False
    for token in [*lexer, ";"]:
        if token in _ENDS:
            words = _without_assignments(words)
            if words:
                yield Command(tuple(words))
            words = []
        elif token in _REDIRECTS:
            redirected = True
        elif redirected:
            redirected = False
        else:
            words.append(token)


def _without_assignments(words: list[str]) -> list[str]:
    rest = list(words)
    while rest and _ASSIGNED.fullmatch(rest[0]):
        del rest[0]
    return rest
