"""The text of an answer, made safe while it streams: no image, no HTML and no link, only citations ``[n]``.

A model writes what a document dictates to it, such as an image whose address carries the question to a stranger. So
nothing is recognised as harmless: what Markdown or HTML could turn into a link, an image or an element is written so
that it is none. Code stays as it is, and addresses become code.

``feed`` returns only what later text cannot change, so the result does not depend on how the text was divided.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from latent_core.domain.text import HIDDEN

FENCE: Final = re.compile(r" {0,3}(?:(`{3,})([^`\n]*)|(~{3,})([^\n]*))")
MAYBE_FENCE: Final = re.compile(r" {0,3}(?:`{0,2}|~{0,2}|`{3,}[^`\n]*|~{3,}[^\n]*)")
"""The beginning of a line that may still become a fence."""
INFO: Final = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")
CITATION: Final = re.compile(r"([ \t]*)\[[ \t]*(\d{1,4}(?:[ \t]*[,;][ \t]*\d{1,4})*)[ \t]*\]")
MAYBE_CITATION: Final = re.compile(r"[ \t]*(?:\[[\d,; \t]*)?")
ENTITY: Final = re.compile(r"&(?:#\d{1,8}|#[xX][0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{1,31});")
MAYBE_ENTITY: Final = re.compile(r"&#?[A-Za-z0-9]{0,32}")
BACKTICKS: Final = re.compile(r"`+")
BLANKS: Final = re.compile(r"[ \t]+")
WORD: Final = re.compile(r"(?:[^ \t\n`\\<>\[\]!|&]|\\\\|\\(?![`\\]))+")
"""Backslashes in pairs, as Markdown reads them; one before a backtick is no part of a word."""
PUNCTUATION: Final = re.compile(r"[.,;:!?)]+")
AROUND: Final = "(*_\"'~{,;:.?)}"
"""Around an address, and no part of it."""
ADDRESS: Final = re.compile(
    r"[a-z][a-z0-9+.-]*:/|//\w|www\.|(?:mailto|xmpp|script):\S|(?<![a-z0-9])(?:data|tel):\S|\S@\S+\.\S|\w\.[a-z]{2,}/",
    re.IGNORECASE,
)
"""What renderers make a link of without brackets."""


class AnswerSanitiser:
    """Takes the pieces of one answer and returns safe text."""

    def __init__(self, sources: Collection[int]) -> None:
        self.cited: set[int] = set()
        """The sources that the text so far names."""
        self._sources = sources
        self._rest = ""
        self._fence: str | None = None
        """The characters that opened the code block."""
        self._starts_line = True
        self._last = "\n"
        """The last character of the output."""
        self._removed = False
        """A citation was removed here: what it separated must not become one word."""

    def feed(self, piece: str) -> str:
        """The text that is final after this piece; the rest waits for the next one."""
        self._rest += HIDDEN.sub("", piece.replace("\r", ""))
        return self._read(final=False)

    def finish(self) -> str:
        """What waited, at the end of the answer. An open code block is closed."""
        text = self._read(final=True)
        if self._fence is not None:
            text += ("" if self._last == "\n" else "\n") + self._fence
            self._fence = None
        return text

    def _read(self, *, final: bool) -> str:
        parts: list[str] = []
        while self._rest:
            step = self._line_start(final) if self._starts_line else self._token(final)
            if step is None:
                break
            length, text = step
            self._starts_line = length > 0 and self._rest[length - 1] == "\n"
            self._rest = self._rest[length:]
            if text:
                parts.append(self._apart(text))
                self._last = text[-1]
        return "".join(parts)

    def _apart(self, text: str) -> str:
        """``text`` behind a space where it would give the last character a meaning."""
        last, first = self._last, text[0]
        joins = (
            (self._removed and not first.isspace() and not PUNCTUATION.fullmatch(text))
            or (last == "]" and first in "([:")
            or (last == "!" and first == "[")
            or (last == "<" and not first.isspace())
            or (last in "`\\" and first == "`")
        )
        self._removed = False
        return f" {text}" if joins else text

    def _line(self, final: bool) -> str | None:
        """The rest of the line with its end; None while that may still come."""
        end = self._rest.find("\n")
        if end >= 0:
            return self._rest[: end + 1]
        return self._rest if final else None

    def _line_start(self, final: bool) -> tuple[int, str] | None:
        """A line of a code block, or the fence that opens one. Fences are written without indentation, so that every
        renderer sees the block begin and end here."""
        line = self._line(final)
        if self._fence is not None:
            return None if line is None else self._code_line(line, self._fence)
        if line is None:
            return None if MAYBE_FENCE.fullmatch(self._rest) else (0, "")
        fence = FENCE.fullmatch(line.removesuffix("\n"))
        if fence is None:
            return 0, ""
        self._fence = fence[1] or fence[3]
        info = INFO.match((fence[2] or fence[4] or "").strip())
        return len(line), f"{self._fence}{info[0] if info else ''}\n"

    def _code_line(self, line: str, fence: str) -> tuple[int, str]:
        bare = line.strip(" \t\n")
        indent = len(line) - len(line.lstrip(" "))
        if indent <= 3 and len(bare) >= len(fence) and not bare.strip(fence[0]):
            self._fence = None
            return len(line), fence + line[len(line.rstrip("\n")) :]
        return len(line), line

    def _token(self, final: bool) -> tuple[int, str] | None:
        """How much of the rest is read, and what is written for it; None if that depends on what follows."""
        first = self._rest[0]
        if first in " \t[":
            return self._citation(final)
        if first == "`":
            return self._code_span(final)
        if first == "&":
            return self._entity(final)
        word = WORD.match(self._rest)
        if word is not None:
            if word.end() == len(self._rest) and not final:
                return None
            return word.end(), _without_address(word[0])
        if first == "\\":  # before a backtick, which it makes an ordinary character
            return (2, "\\`")
        return 1, first

    def _citation(self, final: bool) -> tuple[int, str] | None:
        found = CITATION.match(self._rest)
        if found is not None:
            numbers = [int(number) for number in re.findall(r"\d+", found[2])]
            known = [number for number in dict.fromkeys(numbers) if number in self._sources]
            self.cited.update(known)
            self._removed |= not known
            return found.end(), found[1] + " ".join(f"[{n}]" for n in known) if known else ""
        if MAYBE_CITATION.fullmatch(self._rest) and not final:
            return None
        blanks = BLANKS.match(self._rest)
        return (blanks.end(), blanks[0]) if blanks is not None else (1, "[")

    def _code_span(self, final: bool) -> tuple[int, str] | None:
        """A code span of one line; backticks that open none are escaped. A bar would end the span in a table."""
        line = self._line(final)
        length = _run_length(self._rest)
        if length == len(self._rest) and not final:
            return None
        for run in BACKTICKS.finditer(line if line is not None else self._rest, length):
            if run.end() == len(self._rest) and not final:
                return None
            if run.end() - run.start() == length:
                inner = self._rest[length : run.start()]
                if "|" in inner:
                    return length, "\\`" * length
                return run.end(), self._rest[: run.end()].replace("]:", "] :")
        return None if line is None else (length, "\\`" * length)

    def _entity(self, final: bool) -> tuple[int, str] | None:
        """A character that is written as its number is shown as that number."""
        found = ENTITY.match(self._rest)
        if found is not None:
            return found.end(), f"& {found[0][1:]}"
        if MAYBE_ENTITY.fullmatch(self._rest) and not final:
            return None
        return 1, "&"


def _run_length(text: str) -> int:
    return len(text) - len(text.lstrip("`"))


def _without_address(word: str) -> str:
    """The word, an address within it as code."""
    if word.startswith("~~~"):  # a fence, if what was before it in the line is removed
        word = f"\\{word}"
    if not ADDRESS.search(word) and not ADDRESS.search(word.replace("\\", "")):
        return word
    core = word.strip(AROUND)
    if not core:
        return word
    start = word.index(core)
    return f"{word[:start]}`{core}`{word[start + len(core) :]}"
