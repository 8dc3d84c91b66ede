"""Decodes bytes without losing any: unreadable bytes become U+FFFD, one for one, and are counted."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Any, Final

from latent_core.domain.errors import IngestFailed

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
BOMS: Final = (
    # UTF-32 first: its little-endian mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE_BYTES = 65_536
_MAX_DEPTH = 64
_MAX_DECIMAL_BITS: Final = 4096
_INTEGERS: Final = range(-(2**63), 2**64)
"""The range of numbers that every JSON reader accepts."""


@dataclass(frozen=True, slots=True)
class DecodedText:
    text: str
    encoding: str
    replaced: int


def decode(data: bytes) -> DecodedText:
    """Text of ``data``: by its byte order mark, else UTF-8, UTF-16 (by its zero bytes), or a Western single-byte
    encoding, which accepts every byte."""
    for mark, encoding in BOMS:
        if data.startswith(mark):
            return _as(data[len(mark) :], encoding)
    wide = utf16_without_mark(data)
    if wide:
        return _as(data, wide)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    else:
        # Nearly every file: without surrogates, so that only NULs are looked for.
        return _counted(text, "utf-8") if "\0" in text else DecodedText(text, "utf-8", 0)
    try:
        return _counted(data.decode("utf-8", "surrogatepass"), "utf-8")
    except UnicodeDecodeError:
        pass
    if _mostly_utf8(data):
        return _as(data, "utf-8")
    try:
        return _counted(data.decode("cp1252"), "cp1252")
    except UnicodeDecodeError:
        return _counted(data.decode("latin-1"), "latin-1")


def decode_filled(data: bytes, name: str) -> DecodedText:
    """As ``decode``; ``IngestFailed`` for an empty text."""
    if not data:
        raise IngestFailed(f"'{name}' is empty")
    decoded = decode(data)
    if not decoded.text.strip():
        raise IngestFailed(f"'{name}' is empty")
    return decoded


def clean(text: str) -> tuple[str, int]:
    """``text`` with NULs and lone surrogates replaced one for one, and their number."""
    return _UNSTORABLE.subn("\ufffd", text)


def clean_value(value: Any, depth: int = 0) -> Any:
    """A JSON value that can be stored: strings without NULs and surrogates, numbers of 64 bits. Larger numbers and
    too deep values become text."""
    if isinstance(value, str):
        return clean(value)[0]
    if depth > _MAX_DEPTH:
        return clean(repr(value)[:1000])[0]
    if isinstance(value, dict):
        return {_key(key): clean_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_value(item, depth + 1) for item in value]
    if isinstance(value, int) and value not in _INTEGERS:
        return _digits(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return clean(str(value))[0]


def _key(key: Any) -> str:
    return clean(_digits(key) if isinstance(key, int) else str(key))[0]


def _digits(value: int) -> str:
    """Decimal digits, up to Python's limit."""
    return str(value) if value.bit_length() <= _MAX_DECIMAL_BITS else hex(value)[:1000]


def utf16_without_mark(data: bytes) -> str | None:
    """The byte order of UTF-16 text that is mostly ASCII: every other byte is zero."""
    sample = data[: _SAMPLE_BYTES - _SAMPLE_BYTES % 2]
    units = len(sample) // 2
    if units < 2:
        return None
    high_first = sample[0::2].count(0) / units
    low_first = sample[1::2].count(0) / units
    if low_first > 0.4 and high_first < 0.05:
        return "utf-16-le"
    if high_first > 0.4 and low_first < 0.05:
        return "utf-16-be"
    return None


def _as(data: bytes, encoding: str) -> DecodedText:
    """Lone surrogates and bad bytes become surrogates, which ``clean`` replaces and counts."""
    try:
        return _counted(data.decode(encoding, "surrogatepass"), encoding)
    except UnicodeDecodeError:
        pass
    if encoding == "utf-8":
        return _counted(data.decode(encoding, "surrogateescape"), encoding)
    text = data.decode(encoding, "replace")
    return _counted(
        text, encoding, bad=text.count("\ufffd") - data.count("\ufffd".encode(encoding))
    )


def _counted(text: str, encoding: str, bad: int = 0) -> DecodedText:
    text, replaced = clean(text)
    return DecodedText(text, encoding, replaced + bad)


def _mostly_utf8(data: bytes) -> bool:
    """Whether a file that is not quite UTF-8 is damaged, instead of in another encoding."""
    text = data.decode("utf-8", "surrogateescape")
    damaged = sum(1 for _ in re.finditer("[\udc80-\udcff]", text))
    meant = sum(1 for _ in re.finditer("[^\x00-\x7f\udc80-\udcff]", text))
    return meant > damaged
