"""A page that nests deeper than a parser allows, made shallow: the same text in order, without the deepest elements."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

from typing_extensions import override

DEEPEST: Final = 60
"""Elements that count, each of which may hold three that end by themselves: a table, its row and its cell."""
_SEARCHED: Final = 400
"""Open elements looked through for the one that ends; an end tag of an older one is left out."""
_VOID: Final = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    ]
)
# Ended by the next of their kind, whatever their author forgot.
_SELF_ENDING: Final = frozenset(
    ["p", "li", "dt", "dd", "tr", "td", "th", "option", "thead", "tbody", "tfoot"]
)
_SPLITTING: Final = frozenset(
    ["div", "section", "article", "ul", "ol", "dl", "table", "blockquote", "pre"]
)


def shallow(text: str) -> str:
    """HTML with elements nested at most ``DEEPEST`` deep, or little more."""
    reader = _TagReader()
    reader.feed(text)
    reader.close()
    return "".join(reader.written)


class _TagReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.written: list[str] = []
        self._open: list[tuple[str, bool]] = []
        """Tags, and whether they were written."""

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID or tag in _SELF_ENDING:
            self._write(self.get_starttag_text())
            return
        kept = len(self._open) < DEEPEST
        self._open.append((tag, kept))
        if kept:
            self._write(self.get_starttag_text())
        elif tag in _SPLITTING:
            self._write("<br>")

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._write(self.get_starttag_text())

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag in _SELF_ENDING:
            self._write(f"</{tag}>")
            return
        recent = self._open[-_SEARCHED:]
        at = next((n for n, (name, _) in enumerate(reversed(recent), 1) if name == tag), 0)
        if at:
            ended = self._open[-at:]
            del self._open[-at:]
            self._write("".join(f"</{name}>" for name, kept in reversed(ended) if kept))

    @override
    def handle_data(self, data: str) -> None:
        # Next to a tag that is left out, it must not become one.
        self._write(data if self.cdata_elem else data.replace("<", "&lt;"))

    @override
    def handle_entityref(self, name: str) -> None:
        self._write(f"&{name};")

    @override
    def handle_charref(self, name: str) -> None:
        self._write(f"&#{name};")

    def _write(self, text: str | None) -> None:
        self.written.append(text or "")
