"""A web page: its main text as Markdown by trafilatura, with readability as a second opinion, without hidden text."""

from __future__ import annotations

import re
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from html.parser import HTMLParser
from typing import Any, Final

from lxml import etree, html
from lxml.html import HtmlElement
from readability import Document
from readability.readability import Unparseable
from trafilatura import bare_extraction
from typing_extensions import override

from latent_core.domain.errors import IngestFailed, Issue, IssueCode
from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.parse.text import markdown
from latent_workers.parse.text.decode import DecodedText, clean
from latent_workers.parse.web.charsets import decode_page
from latent_workers.parse.web.markdown import markdown_of
from latent_workers.parse.web.metadata import about, strip_invisible
from latent_workers.parse.web.sanitize import sanitize

DEEPEST: Final = 60
"""Maximum depth of counted elements; each may contain three that end by themselves: a table, its row and its cell."""
_SEARCHED: Final = 400
"""Open elements that are searched for an end tag; an end tag of an older one is ignored."""
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
    """HTML with elements nested at most about ``DEEPEST`` deep."""
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


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """``tree`` is the ``html`` element, always with a ``body``."""

    tree: HtmlElement
    hidden_characters: int
    """Removed invisible characters that can carry a message."""
    replaced_characters: int


def parse_page(text: str, name: str) -> HtmlPage:
    """``IngestFailed`` if it has no element."""
    try:
        tree, complete = _tree(text)
        if not complete:
            tree, _ = _tree(shallow(text))
    except (etree.ParserError, etree.XMLSyntaxError, ValueError, AssertionError) as exc:
        raise IngestFailed(f"'{name}' has no readable HTML: {exc}") from exc
    hidden, replaced = _strip(tree)
    return HtmlPage(tree, hidden, replaced)


def _tree(text: str) -> tuple[HtmlElement, bool]:
    """The tree, and False if the parser stopped because of the depth."""
    parser = html.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, no_network=True, huge_tree=False
    )
    tree = html.document_fromstring(text.encode("utf-8"), parser=parser, ensure_head_body=True)
    gave_up = any(entry.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT for entry in parser.error_log)
    return tree, not gave_up


def _strip(tree: HtmlElement) -> tuple[int, int]:
    hidden = replaced = 0
    for element in tree.iter():
        for place in ("text", "tail"):
            element_text = getattr(element, place)
            if element_text and not element_text.isascii():
                seen, taken = strip_invisible(element_text)
                seen, bad = clean(seen)
                hidden, replaced = hidden + taken, replaced + bad
                if seen != element_text:
                    setattr(element, place, seen)
    return hidden, replaced


FEW_WORDS: Final = 30
"""Fewer words are probably not the page's content."""
CLEARLY_LESS: Final = 0.5
"""Share of the other's words: below it, most of the page was missed."""
COVERED: Final = 0.9
"""Share of the words that the other found too: above it, both saw the same content …"""
MORE: Final = 1.2
"""… and if one has this many times more words, the other lost text."""
MAX_CHARS_FOR_VOTES: Final = 8 * 1024 * 1024
"""Characters of text and markup; a longer page is used completely: the heuristics would take minutes and gigabytes."""

_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True)
class MainText:
    text: str
    by: str
    """The source of the text: trafilatura, readability or page."""

    @cached_property
    def words(self) -> Counter[str]:
        return Counter(_WORD.findall(self.text))

    @property
    def size(self) -> int:
        return self.words.total()


def main_text(tree: HtmlElement) -> MainText:
    """Markdown of the page's content; of the whole page if neither finds it."""
    written = etree.tostring(tree, encoding="unicode", method="html")
    if len(written) > MAX_CHARS_FOR_VOTES:
        return _whole(tree)
    first = _by_trafilatura(tree)
    second = _by_readability(written)
    best = second if sees_more(second, first) else first
    if best.size >= FEW_WORDS:
        return best
    return max(best, _whole(tree), key=lambda found: found.size)


def sees_more(second: MainText, first: MainText) -> bool:
    """Whether the second opinion is better: the first found little, clearly less, or only a part of it."""
    if first.size < FEW_WORDS or first.size < CLEARLY_LESS * second.size:
        return second.size > first.size
    common = (first.words & second.words).total()
    return second.size >= MORE * first.size and common >= COVERED * first.size


def _by_trafilatura(tree: HtmlElement) -> MainText:
    found = bare_extraction(
        deepcopy(tree), include_comments=False, include_tables=True, with_metadata=False
    )
    body = getattr(found, "body", None)
    return MainText("" if body is None else markdown_of(body), "trafilatura")


def _by_readability(written: str) -> MainText:
    try:
        summary = Document(written).summary(html_partial=True)
        tree = html.fromstring(summary)
    except (Unparseable, etree.ParserError, ValueError):
        return MainText("", "readability")
    return MainText(markdown_of(tree), "readability")


def _whole(tree: HtmlElement) -> MainText:
    body = tree.find("body")
    return MainText("" if body is None else markdown_of(body), "page")


def parse(source: SourceFile) -> ParsedDocument:
    """``Parsed.text`` is the Markdown; offsets and lines refer to it."""
    decoded = decode_page(source.read(), source.charset)
    if not decoded.text.strip():
        raise IngestFailed(f"'{source.name}' is empty")
    page = parse_page(decoded.text, source.name)
    metadata = about(page.tree)
    sanitize(page.tree, source.sanitize_rules)
    found = main_text(page.tree)
    text, replaced = clean(found.text)
    if not any(map(str.isalnum, text)):
        raise IngestFailed(
            f"'{source.name}' has no visible text. If a script creates it, save the page in a browser and upload it"
        )
    replaced += decoded.replaced + page.replaced_characters
    parsed = markdown.of_decoded(
        DecodedText(text + "\n", decoded.encoding, replaced), has_front_matter=False
    )
    meta: dict[str, Any] = {**metadata.meta, "encoding": decoded.encoding, "extractor": found.by}
    return replace(
        parsed,
        title=metadata.title or parsed.title,
        language=metadata.language,
        meta=meta,
        warnings=(*parsed.warnings, *_warnings(page)),
    )


def _warnings(page: HtmlPage) -> list[Issue]:
    if not page.hidden_characters:
        return []
    return [
        Issue(
            code=IssueCode.INGEST_FAIL,
            message=f"{page.hidden_characters} invisible characters were removed; they may have hidden a message",
            details={"hidden_characters": page.hidden_characters},
        )
    ]
