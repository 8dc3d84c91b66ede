"""Turns lines of a PDF into paragraphs: joins lines broken at the margin, and hyphenated words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from latent_workers.parse.pdf.lines import CELL_BREAK, Line, is_rtl

_WORD: Final = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)*")
_LAST_PART: Final = re.compile(r"([^\W\d_]+(?:-[^\W\d_]+)*)[-\u2010\u00ad]$")
_FIRST_PART: Final = re.compile(r"[^\W\d_]+")
_HYPHEN_END: Final = re.compile(r"\w[-\u2010]$")
_LEADER: Final = re.compile(r"\s*(?:[.\u00b7\u2026_]\s?){5,}")
"""Dots between an entry and its page number."""
_SOFT_HYPHEN: Final = "\u00ad"
_BULLETS: Final = "•◦▪▫‣⁃●○■□◆◇➢➤✓✔❖\u00b7\uf0a7\uf0b7\uf0d8\uf0fc\uf076"  # noqa: RUF001
_BULLET: Final = re.compile(rf"^(?:\ufffd{{1,2}}|[{_BULLETS}])\s*(?=[^\s\ufffd])")
_ITEM: Final = re.compile(r"^(?:[-\u2013*•]|\(?(?:\d{1,3}|[a-z]|[ivx]{1,4})[.)])\s")
_SENTENCE_END: Final = re.compile(r"[.!?:;…。！？：；][\"'”’»)\]]*$")  # noqa: RUF001 - CJK
_TOGETHER: Final = frozenset(["and", "or", "und", "oder", "bzw", "et", "ou", "y", "o", "e"])
"""Words after a hyphen that stands for the other half of a word: "in- and output"."""
_PACKED: Final = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]")
"""Scripts without spaces between words."""
_FULL: Final = 0.97
_MIN_WORD: Final = 3
_NARROW: Final = 30
"""Characters of the longest line: a narrower block has intended line ends."""


class Vocabulary:
    """The words inside the lines of a document, to distinguish a hyphenated word from a compound."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._words: Counter[str] = Counter()
        for line in lines:
            # The last word of a line may be half of one.
            self._words.update(word.casefold() for word in _WORD.findall(line.text)[:-1])

    def joined(self, first: str, second: str) -> str:
        """The parts of a hyphenated word joined, unless the compound or only its parts occur elsewhere."""
        whole, compound = first + second, f"{first}-{second}"
        if self._known(whole):
            return whole
        if self._known(compound) or "-" in first or second[:1].isupper():
            return compound
        parts = min(len(first), len(second)) >= _MIN_WORD
        return compound if parts and self._known(first) and self._known(second) else whole

    def _known(self, word: str) -> bool:
        return self._words[word.casefold()] > 0


def bulleted(text: str) -> str:
    """A line that starts with any bullet, with a dash instead."""
    return _BULLET.sub("- ", text)


def is_item(text: str) -> bool:
    return bool(_ITEM.match(text) or _BULLET.match(text))


def is_entry(text: str) -> bool:
    """Whether it is a line of a table of contents, or a blank to fill in."""
    return bool(_LEADER.search(text))


def ends_sentence(text: str) -> bool:
    return bool(_SENTENCE_END.search(text))


def paragraph(lines: Sequence[Line], vocabulary: Vocabulary) -> str:
    """The text of a block; intended line ends are kept."""
    left, right = _sides(lines)
    narrow = max(len(line.text) for line in lines) < _NARROW
    text = ""
    for number, line in enumerate(lines):
        bulleted_text = bulleted(line.text)
        if not number:
            text = bulleted_text
        elif flows(lines[number - 1], line, left, right) and not (narrow and _begins(line.text)):
            text = join(text, bulleted_text, vocabulary)
        else:
            text = f"{text}\n{bulleted_text}"
    return _LEADER.sub(" \u2026 ", text.replace(_SOFT_HYPHEN, "")).strip()


def _begins(text: str) -> bool:
    """Whether a line may stand alone: it does not start in the middle of a sentence."""
    return not text[:1].islower() and not _PACKED.match(text)


def _sides(lines: Sequence[Line]) -> tuple[float, float]:
    return min(line.box[0] for line in lines), max(line.box[2] for line in lines)


def flows(line: Line, following: Line, left: float, right: float) -> bool:
    """Whether ``following`` continues a full ``line``. ``left`` and ``right`` are the column's borders."""
    if CELL_BREAK in line.text or CELL_BREAK in following.text or is_item(following.text):
        return False
    if is_entry(line.text) or is_entry(following.text):
        return False
    if hyphenated(line.text, following.text):
        return True
    return is_full(line, following, left, right)


def is_full(line: Line, following: Line, left: float, right: float) -> bool:
    """Whether the first word of ``following`` did not fit on ``line``."""
    first = following.text.split(" ", 1)[0]
    if _PACKED.match(first):
        first = first[:1]
    width = (following.box[2] - following.box[0]) * (len(first) + 1) / max(1, len(following.text))
    reach = right - line.box[2] if not is_rtl(line.text) else line.box[0] - left
    return reach < width + (1 - _FULL) * (right - left)


def hyphenated(text: str, following: str) -> bool:
    """Whether a hyphen splits a word between the two."""
    return bool(_LAST_PART.search(text)) and following[:1].islower()


def join(text: str, following: str, vocabulary: Vocabulary) -> str:
    """Two lines of one paragraph."""
    found, second = _LAST_PART.search(text), _FIRST_PART.match(following)
    if found and second:
        if second[0] in _TOGETHER:
            return f"{text} {following}"
        word = vocabulary.joined(found[1], second[0])
        return text[: found.start()] + word + following[second.end() :]
    if _HYPHEN_END.search(text) and following[:1].isalnum():
        return text + following
    if _PACKED.match(text[-1:]) and _PACKED.match(following):
        return text + following
    return f"{text} {following}"
