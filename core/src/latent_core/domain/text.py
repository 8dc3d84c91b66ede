"""Rules of text that is stored or shown, and the names of languages."""

from __future__ import annotations

import difflib
import math
import re
from typing import Annotated, Any, Final

import orjson
from pydantic import AfterValidator

MAX_DEPTH: Final = 64
MAX_META_BYTES: Final = 64 * 1024
MAX_INTEGER: Final = 2**64
MIN_INTEGER: Final = -(2**63)

_LAYOUT: Final = frozenset("\t\n\r")

HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
"""Characters that people do not see and models or terminals obey: control characters (ESC begins commands of a
terminal), bidirectional overrides, and Unicode tags, which can hide a whole text."""


def trouble(text: str, *, layout: bool = False) -> str | None:
    """Why the stores refuse ``text``; None when it is valid. ``layout`` allows tabs and line ends."""
    for character in text:
        code = ord(character)
        if (code < 0x20 or code == 0x7F) and not (layout and character in _LAYOUT):
            return f"must not contain the control character U+{code:04X}"
        if 0xD800 <= code <= 0xDFFF:
            return f"must not contain the lone surrogate U+{code:04X}"
    return None


def unsound(data: Any) -> tuple[str, str] | None:
    """The first dotted place in JSON-like ``data`` that cannot be stored, and why. Not recursive: the sender sets the depth."""
    waiting: list[tuple[str, Any, int]] = [("", data, 0)]
    while waiting:
        path, value, depth = waiting.pop()
        found = _trouble_of(value, depth)
        if found is not None:
            return path, found
        prefix = f"{path}." if path else ""
        if isinstance(value, dict):
            for key in value:
                wrong = trouble(key) if isinstance(key, str) else None
                if wrong is not None:
                    return path, f"a key {wrong}"
            waiting += [(f"{prefix}{key}", inner, depth + 1) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{prefix}{n}", inner, depth + 1) for n, inner in enumerate(value)]
    return None


def _trouble_of(value: Any, depth: int) -> str | None:
    if isinstance(value, dict | list) and depth >= MAX_DEPTH:
        return f"must not be nested deeper than {MAX_DEPTH}"
    if isinstance(value, str):
        return trouble(value, layout=True)
    if isinstance(value, int) and not MIN_INTEGER <= value < MAX_INTEGER:
        return "must not contain an integer of more than 64 bits"
    if isinstance(value, float) and not math.isfinite(value):
        return "must not contain a number that is not finite"
    return None


def _line(value: str) -> str:
    wrong = trouble(value)
    if wrong is not None:
        raise ValueError(wrong)
    return value


def _meta(value: dict[str, Any]) -> dict[str, Any]:
    wrong = unsound(value)
    if wrong is not None:
        path, why = wrong
        raise ValueError(f"'{path[:80]}' {why}" if path else why)
    if len(orjson.dumps(value)) > MAX_META_BYTES:
        raise ValueError(f"must have at most {MAX_META_BYTES} bytes as JSON")
    return value


Text = Annotated[str, AfterValidator(_line)]
"""One line without control characters and lone surrogates: a name, an id, an address."""
Meta = Annotated[dict[str, Any], AfterValidator(_meta)]
"""A JSON object that can be stored with a document."""


# Name, then its codes of ISO 639-1 and 639-2 or -3.
_TABLE: Final = """
arabic ar ara
armenian hy hye arm
basque eu eus baq
catalan ca cat
code
czech cs ces cze
danish da dan
dutch nl nld dut
english en eng
esperanto eo epo
estonian et est
finnish fi fin
french fr fra fre
german de deu ger
greek el ell gre
hindi hi hin
hungarian hu hun
indonesian id ind
irish ga gle
italian it ita
lithuanian lt lit
nepali ne nep
norwegian no nor nb nob nn nno
persian fa fas per
polish pl pol
portuguese pt por
romanian ro ron rum
russian ru rus
serbian sr srp
sesotho st sot
simple und
spanish es spa
swedish sv swe
tamil ta tam
turkish tr tur
yiddish yi yid
"""

_NAMES: Final = {
    word: words[0]
    for words in (line.split() for line in _TABLE.strip().splitlines())
    for word in words
}
LANGUAGES: Final = tuple(dict.fromkeys(_NAMES.values()))
"""``code`` is source code and similar text, ``simple`` any other language."""


def language_named(written: str) -> str:
    """The name for a name, a code or a tag such as ``de-AT``; ``ValueError`` for an unknown one."""
    name_given = written.strip().lower()
    name = _NAMES.get(name_given) or _NAMES.get(name_given.replace("_", "-").partition("-")[0])
    if name is not None:
        return name
    near = difflib.get_close_matches(name_given[:40], LANGUAGES, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(LANGUAGES)}"
    raise ValueError(f"is not a supported language; {hint}")
