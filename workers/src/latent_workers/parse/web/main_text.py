"""What of a page is its text: trafilatura's answer, readability's where it sees clearly more, else all there is."""

from __future__ import annotations

import re
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from lxml import etree, html
from lxml.html import HtmlElement
from readability import Document
from readability.readability import Unparseable
from trafilatura import bare_extraction

from latent_workers.parse.web.markdown import markdown_of

FEW_WORDS: Final = 30
"""Fewer are hardly what a page is about."""
CLEARLY_LESS: Final = 0.5
"""A share of the other's words: whatever was found, most of the page was missed."""
COVERED: Final = 0.9
"""A share of the words that the other found too: it saw the same, and what it has besides …"""
MORE: Final = 1.2
"""… is text that was lost, if it is so many times as long."""
MAX_CHARS_FOR_VOTES: Final = 8 * 1024 * 1024
"""Characters of text and markup; a longer page is taken whole: the heuristics would take minutes and gigabytes."""

_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True)
class MainText:
    text: str
    by: str
    """Who found it: trafilatura, readability or page."""

    @cached_property
    def words(self) -> Counter[str]:
        return Counter(_WORD.findall(self.text))

    @property
    def size(self) -> int:
        return self.words.total()


def main_text(tree: HtmlElement) -> MainText:
    """Markdown of what the page is about; of all of it where nobody can tell."""
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
    """Whether the second opinion is the better one: the first found little, clearly less, or only a part of it."""
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
