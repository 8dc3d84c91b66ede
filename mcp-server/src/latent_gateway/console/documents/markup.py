"""Text of documents as HTML: Markdown with tables, and code with classes. Runs in a child only (``rendering.py``).

Nothing of a document loads or runs: raw HTML is text, images are their descriptions, links lead to the web or to a mail
address by an allow list. There are no ids, styles or event attributes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

LINK: Final = re.compile(r"(?:https?://|mailto:)[^\s\x00-\x1f]+", re.IGNORECASE)
MAX_NESTING: Final = 20
_DELIMITER: Final = re.compile(r"^\s*\|?\s*:?-{2,}", re.MULTILINE)
_ALIGN: Final = re.compile(r"text-align:(left|center|right)")
_LEVELS: Final = {f"h{n}": n for n in range(1, 7)}


class Marker:
    """Marks words in text that is escaped."""

    def __init__(self, words: Sequence[str]) -> None:
        whole = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
        self._words = re.compile(rf"(?<!\w)(?:{whole})(?!\w)", re.IGNORECASE) if words else None

    def __call__(self, text: str) -> str:
        if self._words is None:
            return escape(text)
        parts, at = [], 0
        for found in self._words.finditer(text):
            parts += [escape(text[at : found.start()]), f"<mark>{escape(found.group())}</mark>"]
            at = found.end()
        return "".join([*parts, escape(text[at:])])


def markdown(text: str, words: Sequence[str] = ()) -> str:
    """CommonMark with tables and strike-through."""
    parser, environment = _parser(), {"marker": Marker(words)}
    tokens = parser.parse(text, environment)
    for token in tokens:
        _plain(token)
    return str(parser.renderer.render(tokens, parser.options, environment))


def table(text: str, words: Sequence[str] = ()) -> str:
    """Rows of a Markdown table; those of a later part have no header."""
    first = text.strip().split("\n", 1)[0]
    if not _DELIMITER.search(text) and first.lstrip().startswith("|"):
        columns = len(re.findall(r"(?<!\\)\|", first.strip().strip("|"))) + 1
        text = f"|{' |' * columns}\n|{' --- |' * columns}\n{text.strip()}"
    return markdown(text, words)


def code(text: str, name: str, words: Sequence[str] = ()) -> str:
    """Source code by the name of its file, or of its language."""
    return f'<pre tabindex="0"><code>{_coloured(text, name, Marker(words))}</code></pre>'


def _coloured(text: str, name: str, marker: Marker) -> str:
    parts = []
    for kind, value in _lexer(name).get_tokens(text):
        css = STANDARD_TYPES.get(kind) or STANDARD_TYPES.get(kind.parent, "")
        shown = marker(value)
        parts.append(f'<span class="{css}">{shown}</span>' if css else shown)
    return "".join(parts).rstrip("\n")


@cache
def _lexer(name: str) -> Any:
    options: dict[str, Any] = {"stripnl": False, "ensurenl": False}
    for find in (get_lexer_for_filename, get_lexer_by_name):
        try:
            return find(name, **options)
        except ClassNotFound:
            continue
    return get_lexer_by_name("text", **options)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    # All become links here; those outside of the allow list are taken away below.
    parser.validateLink = lambda url: True  # type: ignore[method-assign] # noqa: ARG005
    for name, rule in (
        ("text", _text),
        ("fence", _fence),
        ("code_block", _fence),
        ("code_inline", _code_inline),
        ("table_open", _table_open),
        ("table_close", _table_close),
    ):
        parser.add_render_rule(name, rule)
    return parser


def _plain(token: Token) -> None:
    """Headings of one level, cells aligned by a class, images as text, and no link outside of the allow list."""
    if token.tag in _LEVELS and token.type.startswith("heading"):
        if token.nesting == 1:
            token.attrSet("class", f"heading level{_LEVELS[token.tag]}")
        token.tag = "h3"
    align = _ALIGN.match(str(token.attrGet("style") or ""))
    token.attrs = (
        {"class": align[1]}
        if align
        else {key: value for key, value in token.attrs.items() if key in ("class", "href", "start")}
    )
    if token.children is None:
        return
    kept: list[Token] = []
    closing: list[bool] = []
    for child in token.children:
        if child.type == "link_open":
            href = str(child.attrGet("href") or "")
            closing.append(LINK.fullmatch(href) is not None)
            if closing[-1]:
                child.attrs = {"href": href, "rel": "noopener noreferrer nofollow"}
                kept.append(child)
        elif child.type == "link_close":
            if closing.pop() if closing else False:
                kept.append(child)
        elif child.type == "image":
            words = child.content or "without a description"
            kept.append(Token("text", "", 0, content=f"[image: {words}]"))
        else:
            kept.append(child)
    token.children = kept


def _text(_: Any, tokens: Sequence[Token], at: int, __: Any, environment: Any) -> str:
    return str(environment["marker"](tokens[at].content))


def _fence(_: Any, tokens: Sequence[Token], at: int, __: Any, environment: Any) -> str:
    language = (tokens[at].info.split() or ["text"])[0][:40]
    shown = _coloured(tokens[at].content, language, environment["marker"])
    return f'<pre tabindex="0"><code>{shown}</code></pre>\n'


def _code_inline(_: Any, tokens: Sequence[Token], at: int, __: Any, environment: Any) -> str:
    return f"<code>{environment['marker'](tokens[at].content)}</code>"


def _table_open(*_: Any) -> str:
    return '<div class="scroll" role="region" aria-label="Table" tabindex="0"><table>\n'


def _table_close(*_: Any) -> str:
    return "</table></div>\n"
