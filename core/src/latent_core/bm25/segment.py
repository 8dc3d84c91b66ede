"""From text to words: tokens, their parts, and folding.

Independent of language. A token is a run of letters, digits and marks, joined by single dots, hyphens and
apostrophes. ``shape`` splits it into the indexed forms:

- an identifier whole **and** in parts (``getUserName``, ``user_name``, ``os.path``, ``utf8``)

- a hyphenated word in parts and joined, so that ``on-line`` matches ``online``

- an abbreviation of single letters joined (``U.S.A.``), a decimal number whole (``2.5``)

- scripts without spaces as overlapping pairs of characters
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

LAST_LETTER: Final = 0x20000
"""Above it there are only ideographs."""
MAX_LEXEME_BYTES: Final = 255
"""A longer lexeme is cut; Postgres's limit is 2046."""
MAX_PARTS: Final = 12
"""A word with more parts is data (a digest, base64), not a name: it stays whole."""
MAX_DIGIT_RUNS: Final = 2
MAX_JOINED: Final = 4
"""Hyphenated words with more parts are slugs, which are not joined."""

_APOSTROPHES: Final = "'\u2019\u02bc"
_HYPHENS: Final = "\\-\u2010\u2011"
# Soft hyphen, joiners, variation selectors, byte order mark: inside words, and without meaning to us.
IGNORABLE_CLASS: Final = "\u00ad\u200b\u200c\u200d\u2060\ufe0e\ufe0f\ufeff"


def _ranges(categories: frozenset[str]) -> str:
    """A character class (without brackets) of all characters in these general categories."""
    found: list[list[int]] = []
    for point in range(0x80, LAST_LETTER):
        if unicodedata.category(chr(point)) in categories:
            if found and found[-1][1] == point - 1:
                found[-1][1] = point
            else:
                found.append([point, point])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in found)


# ``\w`` of re leaves out combining marks, without which most Indic scripts fall to pieces.
MARKS_CLASS: Final = _ranges(frozenset({"Mn", "Mc"}))
_WORD: Final = f"\\w[\\w{MARKS_CLASS}{IGNORABLE_CLASS}]*"
TOKEN: Final = re.compile(
    rf"(?:[Cc]\+\+|[CcFf]#)(?![\w+#])|{_WORD}(?:[.{_APOSTROPHES}{_HYPHENS}]{_WORD})*"
)
# The same for ASCII text, several times faster.
ASCII_TOKEN: Final = re.compile(r"(?:[Cc]\+\+|[CcFf]#)(?![\w+#])|\w+(?:[.'-]\w+)*", re.ASCII)

UNSPACED_CLASS: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u1100-\u11ff\u3005-\u3007\u3041-\u30ff\u3105-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED: Final = re.compile(f"[{UNSPACED_CLASS}]")
_RUNS: Final = re.compile(f"[{UNSPACED_CLASS}{MARKS_CLASS}]+|[^{UNSPACED_CLASS}]+")
_CLUSTER: Final = re.compile(f"[^{MARKS_CLASS}][{MARKS_CLASS}]*")
_IDEOGRAPH: Final = re.compile(
    "[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)

# On a silhouette (see there): PDFs | HTTP in HTTPServer | Server | digits.
_PART: Final = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ACRONYMS: Final = re.compile(r"[A-Z]{2,}s")

# Accents of any script but Cyrillic, where they make other letters (й); stress marks; vowel points
# of Arabic and Hebrew; the Arabic filler.
_STRIPPED: Final = re.compile(
    "(?<![\u0400-\u052f])[\u0300-\u036f]+|[\u0300\u0301]|[\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]"
)
_LETTERS: Final = str.maketrans(
    {
        "ё": "\u0435",
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "æ": "ae",
        "œ": "oe",
        "\u0131": "i",
        "ħ": "h",
        "ŧ": "t",
    }
)
_DROPPED: Final = str.maketrans("", "", IGNORABLE_CLASS)
_PLAIN: Final = str.maketrans("\u2019\u02bc\u2010\u2011", "''--")


@dataclass(frozen=True, slots=True)
class Form:
    """An indexed form of a token: folded text, its offset, whether it is stemmed."""

    text: str
    offset: int
    """In words after the token's first one."""
    word: bool
    """A word of a language, with stop words and stems; otherwise unchanged."""


@dataclass(frozen=True, slots=True)
class TokenShape:
    forms: tuple[Form, ...]
    width: int
    """Number of positions of the token."""


def tokens(text: str) -> list[str]:
    """The tokens of ``text``, unchanged."""
    return (ASCII_TOKEN if text.isascii() else TOKEN).findall(text)


def fold(text: str) -> str:
    """Without case, accents and typographic variants."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKC", text.translate(_DROPPED)).casefold()
    text = _STRIPPED.sub("", unicodedata.normalize("NFD", text))
    text = unicodedata.normalize("NFC", text).translate(_LETTERS)
    return text if text.isascii() else "".join(map(_digit, text))


def cut(lexeme: str) -> str:
    """At most ``MAX_LEXEME_BYTES`` of ``lexeme``, whole characters."""
    if len(lexeme) * 4 <= MAX_LEXEME_BYTES:
        return lexeme
    return lexeme.encode()[:MAX_LEXEME_BYTES].decode(errors="ignore")


def shape(token: str) -> TokenShape:
    """Split a token into its forms."""
    if not token.isascii():
        token = unicodedata.normalize("NFKC", token.translate(_DROPPED)).translate(_PLAIN)
    builder = _FormBuilder()
    if token.endswith(("+", "#")):
        builder.next(token, word=False)
    else:
        for part in _without_possessive(token).split("'"):
            builder.dotted(part)
    return TokenShape(tuple(builder.forms), builder.at)


def _without_possessive(token: str) -> str:
    return token[:-2] if token.endswith(("'s", "'S")) else token


def _digit(char: str) -> str:
    return str(unicodedata.decimal(char)) if char.isdecimal() else char


def _silhouette(text: str) -> str:
    """``text`` with cased letters as A or a, other letters and marks as a, digits as 0."""
    if text.isascii():
        return text
    return "".join("A" if c.isupper() else "0" if c.isdecimal() else "a" for c in text)


class _FormBuilder:
    """Collects the forms of one token; ``at`` is the position of its next word."""

    def __init__(self) -> None:
        self.forms: list[Form] = []
        self.at = 0

    def add(self, text: str, offset: int, *, word: bool) -> None:
        form = Form(cut(fold(text)), offset, word)
        if form.text and form not in self.forms[-MAX_PARTS:]:
            self.forms.append(form)

    def next(self, text: str, *, word: bool = True) -> None:
        self.add(text, self.at, word=word)
        self.at += 1

    def dotted(self, text: str) -> None:
        start, parts = self.at, [part for part in text.split(".") if part]
        if len(parts) > 1 and all(len(part) == 1 and part.isalpha() for part in parts):
            self.next("".join(parts))
        elif len(parts) > 1 and all(part.isdecimal() for part in parts):
            self.next(text, word=False)
        else:
            for part in parts:
                self.hyphenated(part)
            if len(parts) > 1 and len(text) <= MAX_LEXEME_BYTES:
                self.add(text, start, word=False)

    def hyphenated(self, text: str) -> None:
        start, parts = self.at, [part for part in text.split("-") if part]
        for part in parts:
            for run in _runs(part):
                self.identifier(run)
        if 1 < len(parts) <= MAX_JOINED and parts[0][0].isalpha():
            self.add("".join(parts), start, word=True)

    def identifier(self, text: str) -> None:
        if _UNSPACED.match(text):
            self.pairs(text)
            return
        start, words = self.at, [word for part in text.split("_") if part for word in _words(part)]
        for word in words:
            self.next(word)
        if len(words) > 1 or ("_" in text and words):
            self.add(text, start, word=text.isalpha())

    def pairs(self, text: str) -> None:
        """Overlapping pairs, and single ideographs too, because many of them are words."""
        clusters = _CLUSTER.findall(text)
        for place, cluster in enumerate(clusters):
            if len(clusters) == 1 or _IDEOGRAPH.match(cluster):
                self.add(cluster, self.at + place, word=False)
            if place + 1 < len(clusters):
                self.add(cluster + clusters[place + 1], self.at + place, word=False)
        self.at += len(clusters)


def _runs(text: str) -> Iterator[str]:
    """``text`` split between scripts with and without spaces."""
    if text.isascii() or not _UNSPACED.search(text):
        yield text
    else:
        yield from _RUNS.findall(text)


def _words(text: str) -> list[str]:
    """The words in one run of letters and digits, by case and digits."""
    if text.isalpha() and (text.islower() or text[1:].islower()):
        return [text]
    if _ACRONYMS.fullmatch(text):
        return [text[:-1]]
    found = [text[m.start() : m.end()] for m in _PART.finditer(_silhouette(text))]
    digits = sum(part[0].isdecimal() for part in found)
    return found if len(found) <= MAX_PARTS and digits <= MAX_DIGIT_RUNS else [text]
