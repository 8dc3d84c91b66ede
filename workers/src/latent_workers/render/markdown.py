"""Markdown to elements: raw HTML is shown as text, images as their description, nothing is fetched."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from latent_workers.parse.text.front_matter import NONE, front_matter
from latent_workers.parse.text.lines import Lines
from latent_workers.parse.text.markdown import body_below
from latent_workers.render.elements import (
    BREAK,
    Element,
    Mark,
    code,
    mark_id,
    mark_spans,
    softened,
)
from latent_workers.render.rows import SourceRow, lexer_for, rows

_ROWS_AT_ONCE: Final = 60
_MARKED: Final = frozenset({"paragraph_open", "heading_open", "list_item_open", "tr_open", "hr"})
_FLOWING: Final = frozenset({"paragraph_open", "heading_open"})
_CODE: Final = frozenset({"fence", "code_block"})


def elements(text: str, *, has_front_matter: bool = True) -> Iterator[Element]:
    """Top-level blocks in order."""
    lines = Lines(text)
    matter = front_matter(text, lines) if has_front_matter else NONE
    writer = _HtmlWriter(lines)
    if matter.lines:
        yield from writer.code(1, matter.lines, matter.language)
    for tokens in _blocks(writer.markdown.parse(body_below(text, lines, matter.lines))):
        yield from writer.block(tokens)


def _blocks(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Runs of tokens that are one top-level block each."""
    block: list[Token] = []
    for token in tokens:
        block.append(token)
        if token.level == 0 and token.nesting <= 0:
            yield block
            block = []


class _HtmlWriter:
    """Writes the blocks of one document, with marks in increasing order."""

    def __init__(self, lines: Lines) -> None:
        self.markdown = MarkdownIt("commonmark", {"html": False})
        self.markdown.enable(["table", "strikethrough"])
        self._lines = lines
        self._last = -1

    def block(self, tokens: list[Token]) -> Iterator[Element]:
        first = tokens[0]
        _prepare(tokens)
        if first.type in _CODE and first.map:
            yield from self.code(first.map[0] + 1, first.map[1], _language(first))
        elif first.type == "table_open":
            yield from self._table(tokens)
        else:
            marks = tuple(self._mark(tokens))
            yield Element(self._html(tokens), marks)

    def code(self, first: int, last: int, language: str | None) -> Iterator[Element]:
        """Lines ``first`` to ``last`` unchanged; the fence itself is not highlighted."""
        numbers = range(first, min(last, len(self._lines)) + 1)
        source = [(self._lines.span(n, n)[0], self._lines.text(n)) for n in numbers]
        plain = lexer_for()
        if language is None or len(source) < 3:
            shown: Iterable[SourceRow] = rows(source, plain, first)
        else:
            shown = chain(
                rows(source[:1], plain, first),
                rows(source[1:-1], lexer_for(language=language), first + 1),
                rows(source[-1:], plain, last),
            )
        for element in code(shown, numbered=False):
            self._last = max(self._last, element.marks[-1].offset)
            yield element

    def _html(self, tokens: Sequence[Token]) -> str:
        return str(self.markdown.renderer.render(tokens, self.markdown.options, {}))

    def _mark(self, tokens: Sequence[Token]) -> Iterator[Mark]:
        opened = ""
        for token in tokens:
            if token.map is None:
                continue
            if token.type == "inline" and opened in _FLOWING:
                yield from self._inline(token)
            opened = token.type
            if token.type in _CODE:
                inner = list(self.code(token.map[0] + 1, token.map[1], _language(token)))
                _become(token, "html_block", "".join(element.html for element in inner))
                for element in inner:
                    yield from element.marks
            elif token.type in _MARKED and not token.hidden:
                offset = self._lines.span(token.map[0] + 1, token.map[0] + 1)[0]
                if offset > self._last:
                    self._last = offset
                    token.attrSet("id", mark_id(offset))
                    yield Mark(mark_id(offset), offset)

    def _inline(self, token: Token) -> Iterator[Mark]:
        """A mark at each line of a paragraph, and about every row in a long one. Text that is not in the source as
        it is shown (with an entity, for instance) has none."""
        content, at = token.content, 0
        children: list[Token] = []
        for child in token.children or ():
            text = child.content.replace(BREAK, "")
            found = content.find(text, at) if child.type in ("text", "code_inline") and text else -1
            if found < 0 or child.type != "text":
                children.append(child)
                at = max(at, found + len(text))
                continue
            for start, end in mark_spans(text):
                offset = self._offset(token, found + start)
                piece = Token("text", "", 0, content=softened(text[start:end]))
                if offset is None or offset <= self._last:
                    children.append(piece)
                    continue
                self._last = offset
                yield Mark(mark_id(offset), offset)
                span = Token("html_inline", "", 0, content=f'<span id="{mark_id(offset)}">')
                children += [span, piece, Token("html_inline", "", 0, content="</span>")]
            at = found + len(text)
        token.children = children

    def _offset(self, token: Token, place: int) -> int | None:
        """Where a place in the content of a paragraph is in the source: the content has no indents and no marks of
        quotations and lists."""
        begun = token.content.rfind("\n", 0, place) + 1
        line = token.content[begun:].partition("\n")[0]
        text = line.lstrip()
        number = (token.map or [0])[0] + 1 + token.content.count("\n", 0, place)
        column = self._lines.text(number).find(text.rstrip())
        if column < 0 or place - begun < len(line) - len(text):
            return None
        start, _ = self._lines.span(number, number)
        return start + column + place - begun - (len(line) - len(text))

    def _table(self, tokens: list[Token]) -> Iterator[Element]:
        """Parts of a table, each with the header."""
        head, body = _head_and_rows(tokens)
        groups = [body[at : at + _ROWS_AT_ONCE] for at in range(0, len(body), _ROWS_AT_ONCE)]
        for group in groups or [[]]:
            part = [*head, *(token for row in group for token in row)]
            marks = tuple(self._mark(part))
            inner = self._html(part)
            for token in head:
                token.attrs.pop("id", None)
            yield Element(
                f"<table>{inner}</table>",
                marks,
                smaller=f'<table class="small">{inner}</table>',
                fallback=tuple(self._raw(part, marks)),
            )

    def _raw(self, part: Sequence[Token], marks: Sequence[Mark]) -> Iterator[Element]:
        if not marks:
            return
        first = self._lines.at(marks[0].offset)
        last = max(token.map[1] for token in part if token.map)
        yield from self.code(first, last, None)


def _head_and_rows(tokens: Sequence[Token]) -> tuple[list[Token], list[list[Token]]]:
    """The tokens of the header and those of each row of the body."""
    inside = [token for token in tokens[1:-1] if not token.type.startswith("tbody")]
    end = next(at for at, token in enumerate(inside) if token.type == "thead_close") + 1
    found: list[list[Token]] = []
    for token in inside[end:]:
        if token.type == "tr_open":
            found.append([])
        found[-1].append(token)
    return list(inside[:end]), found


def _prepare(tokens: Sequence[Token]) -> None:
    """Adds break positions to long words, more of them in narrow columns; images and links become text."""
    narrow = False
    for token in tokens:
        if token.type in ("th_open", "td_open", "th_close", "td_close"):
            narrow = token.nesting == 1
        for child in token.children or ():
            if child.type in ("text", "code_inline"):
                child.content = softened(child.content, narrow=narrow)
            elif child.type == "image":
                words = html.escape(softened(child.content, narrow=narrow), quote=False)
                _become(child, "html_inline", f'<span class="picture">[picture: {words}]</span>')
            elif child.type == "link_open":
                _become(child, "html_inline", '<span class="link">')
            elif child.type == "link_close":
                _become(child, "html_inline", "</span>")


def _become(token: Token, kind: str, content: str) -> None:
    """Our own raw HTML; the source cannot contain any, because the parser treats it as text."""
    token.type, token.content = kind, content


def _language(token: Token) -> str | None:
    words = token.info.split()
    return words[0].strip("{}.") if words else None
