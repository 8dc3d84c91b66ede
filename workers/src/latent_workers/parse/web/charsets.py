"""The charset and the text of a page: by the server's header, the page's declaration, or detection."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Final

from latent_workers.parse.text.decode import BOMS, DecodedText, clean, decode, utf16_without_mark

_PRESCAN_BYTES: Final = 4096
_PARAMETER: Final = re.compile(r"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:+-]{1,40})", re.IGNORECASE)
_META: Final = re.compile(rb"<meta\b[^>]{0,500}>", re.IGNORECASE)
_XML: Final = re.compile(rb"\A\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_.:-]{1,40})")
# Browsers read these names as the larger sets that pages are really written in (WHATWG Encoding §4.2).
_MEANT: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
_WIDE: Final = ("utf-16", "utf-32")
_NOT_TEXT: Final = frozenset(
    {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"}
)


def charset_of(content_type: str) -> str | None:
    """The ``charset`` of a Content-Type."""
    found = _PARAMETER.search(content_type)
    return found[1].lower() if found else None


def decode_page(data: bytes, charset: str | None) -> DecodedText:
    """The text of a page. A byte order mark has priority; a declared charset that does not fit is ignored."""
    if any(data.startswith(mark) for mark, _ in BOMS):
        return decode(data)
    declared = list(_declared(data, charset))
    # The Western set is what servers say who do not know; text of it is no UTF-8 by accident.
    if "cp1252" in declared[:1]:
        declared.insert(0, "utf-8")
    for name in declared:
        try:
            text, replaced = clean(data.decode(name))
        except UnicodeDecodeError:
            continue
        return DecodedText(text, name, replaced)
    looks = decode(data)
    other = next((name for name in declared if not name.startswith("utf")), None)
    if other is None or looks.encoding.startswith("utf-"):
        return looks
    # Damaged, and no Unicode: the declaration is still the best guess.
    text, replaced = clean(data.decode(other, "replace"))
    return DecodedText(text, other, replaced + text.count("\ufffd"))


def _declared(data: bytes, charset: str | None) -> Iterator[str]:
    """Codecs of the declared charsets, in order of priority."""
    head = data[:_PRESCAN_BYTES]
    for given in (charset, _of_meta(head), _of_xml(head)):
        name = _codec(given) if given else None
        if name is not None and (not name.startswith(_WIDE) or utf16_without_mark(data)):
            yield name


def _of_meta(head: bytes) -> str | None:
    for tag in _META.finditer(head):
        found = charset_of(tag[0].decode("ascii", "replace"))
        if found:
            # What was found as ASCII is no UTF-16, whatever it says.
            return "utf-8" if found.startswith("utf-16") else found
    return None


def _of_xml(head: bytes) -> str | None:
    found = _XML.match(head)
    return found[1].decode("ascii") if found else None


def _codec(name: str) -> str | None:
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    known = found.name.lower()
    # Python also knows codecs from bytes to bytes, and some that are no character sets.
    if not found._is_text_encoding or known in _NOT_TEXT:
        return None
    return _MEANT.get(known, known)
