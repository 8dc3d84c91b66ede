"""A page as a tree: parsed within bounds, and without characters nobody sees."""

from __future__ import annotations

from dataclasses import dataclass

from lxml import etree, html
from lxml.html import HtmlElement

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.text.decode import clean
from latent_workers.parse.web.invisible import strip_invisible
from latent_workers.parse.web.shallow import shallow


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """``tree`` is the ``html`` element, always with a ``body``."""

    tree: HtmlElement
    hidden_characters: int
    """Taken out: those that can carry a message nobody sees."""
    replaced_characters: int


def parse_page(text: str, name: str) -> HtmlPage:
    """``IngestFailed`` when there is no element in it."""
    try:
        tree, complete = _tree(text)
        if not complete:
            tree, _ = _tree(shallow(text))
    except (etree.ParserError, etree.XMLSyntaxError, ValueError, AssertionError) as exc:
        raise IngestFailed(f"'{name}' holds no HTML that can be read: {exc}") from exc
    hidden, replaced = _strip(tree)
    return HtmlPage(tree, hidden, replaced)


def _tree(text: str) -> tuple[HtmlElement, bool]:
    """The tree, and False when the parser gave up because it nests too deeply."""
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
