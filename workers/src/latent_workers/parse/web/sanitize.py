"""Removes hidden text from a page, and what the manifest's rules name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lxml import etree
from lxml.html import HtmlElement

_NEVER_TEXT: Final = frozenset(
    [
        "script",
        "style",
        "template",
        "noscript",
        "head",
        "link",
        "meta",
        "iframe",
        "object",
        "embed",
        "svg",
        "canvas",
        "audio",
        "video",
        "map",
        "dialog",
    ]
)
_HIDING: Final = re.compile(
    r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|font-size\s*:\s*0(?:px|em|rem|pt|%)?\s*(?:!|;|$))",
    re.IGNORECASE,
)
_MAIN: Final = frozenset({"html", "body", "main", "article"})
"""Pages hide these only until their script has run."""
_MAX_OF_PAGE: Final = 0.4
"""Share of the text that a single navigation or advertisement never has …"""
_MAX_LOST: Final = 0.8
"""… and that all of them together never have."""


def _words(*words: str) -> re.Pattern[str]:
    """One of ``words`` as a separate word in a class or an id."""
    return re.compile(rf"(?:^|[\s_-])(?:{'|'.join(words)})(?:$|[\s_-])", re.IGNORECASE)


_NAVIGATION: Final = _words(
    "nav",
    "navbar",
    "navigation",
    "breadcrumbs?",
    "menu",
    "menubar",
    "sitenav",
    "topnav",
    "pagination",
)
_ADS: Final = _words(
    "ads?",
    "advert",
    "adverts",
    "advertisement",
    "advertorial",
    "adsbygoogle",
    "adslot",
    "banner-ad",
    "sponsored",
    "sponsor",
    "taboola",
    "outbrain",
    "dfp",
)
_COMMENTS: Final = _words(
    "comments", "comment-list", "commentlist", "disqus_thread", "disqus", "respond"
)
_COOKIES: Final = _words(
    "cookie", "cookies", "consent", "gdpr", "cookiebar", "cookie-banner", "onetrust-banner-sdk"
)
_RELATED: Final = _words(
    "related", "recommended", "recommendations", "more-stories", "read-next", "see-also-box"
)


def _is_navigation(element: HtmlElement) -> bool:
    return (
        element.tag == "nav"
        or _role(element) in ("navigation", "menu", "menubar")
        or _named(element, _NAVIGATION)
    )


def _is_ad(element: HtmlElement) -> bool:
    return (element.tag == "ins" and "adsbygoogle" in element.get("class", "")) or _named(
        element, _ADS
    )


def _is_page_header(element: HtmlElement) -> bool:
    """Whether it is the page's header; an article's own header contains its title."""
    return _role(element) == "banner" or (element.tag == "header" and not _inside_article(element))


def _is_page_footer(element: HtmlElement) -> bool:
    return _role(element) == "contentinfo" or (
        element.tag == "footer" and not _inside_article(element)
    )


RULES: Final[Mapping[str, Callable[[HtmlElement], bool]]] = {
    "strip_nav": _is_navigation,
    "strip_ads": _is_ad,
    "strip_header": _is_page_header,
    "strip_footer": _is_page_footer,
    "strip_aside": lambda e: e.tag == "aside" or _role(e) == "complementary",
    "strip_forms": lambda e: e.tag in ("form", "fieldset", "button", "select", "textarea"),
    "strip_comments": lambda e: _named(e, _COMMENTS),
    "strip_cookies": lambda e: _named(e, _COOKIES),
    "strip_related": lambda e: _named(e, _RELATED),
}
"""``latent_core.domain.manifest.model.SANITIZE_RULES``, each with what it removes."""


def sanitize(tree: HtmlElement, rules: Iterable[str]) -> None:
    """Remove, in place, elements that are never text, hidden elements, and what ``rules`` name."""
    _drop([element for element in tree.iter(etree.Element) if _goes(element)])
    tests = [RULES[rule] for rule in rules]
    whole = _length(tree)
    named: dict[HtmlElement, None] = {}
    lost = 0.0
    for element in tree.iter(etree.Element):
        if any(test(element) for test in tests) and not _is_inside(element, named):
            length = _length(element)
            if element.tag not in _MAIN and length <= _MAX_OF_PAGE * whole:
                named[element] = None
                lost += length
    # Names tell of what an element holds, and sometimes of what a page has, or is.
    if lost <= _MAX_LOST * whole:
        _drop(list(named))


def _drop(doomed: list[HtmlElement]) -> None:
    for element in doomed:
        if element.getparent() is not None:
            element.drop_tree()


def _is_inside(element: HtmlElement, others: Mapping[HtmlElement, None]) -> bool:
    return any(above in others for above in element.iterancestors())


def _goes(element: HtmlElement) -> bool:
    return element.tag in _NEVER_TEXT or (element.tag not in _MAIN and is_hidden(element))


def _length(element: HtmlElement) -> float:
    return float(element.xpath("string-length(normalize-space(.))"))


def is_hidden(element: HtmlElement) -> bool:
    """Whether the element itself declares that it is hidden; style sheets are not read."""
    hidden = element.get("hidden")
    if hidden is not None and hidden.strip().lower() != "until-found":
        return True
    if element.tag == "input" and element.get("type", "").lower() == "hidden":
        return True
    style = element.get("style")
    return style is not None and _HIDING.search(style) is not None


def _role(element: HtmlElement) -> str:
    return str(element.get("role", "")).strip().lower()


def _named(element: HtmlElement, words: re.Pattern[str]) -> bool:
    return any(words.search(element.get(name, "")) for name in ("class", "id"))


def _inside_article(element: HtmlElement) -> bool:
    return any(above.tag in ("article", "main") for above in element.iterancestors())
