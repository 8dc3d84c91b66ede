"""Markdown: blocks by markdown-it with their source lines, headings as a stack, front matter as meta."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import table as begins_table
from markdown_it.token import Token

from latent_core.domain.chunk import BlockType
from latent_workers.parse.parsed import ParsedDocument, SourceFile, TextBlock
from latent_workers.parse.text.decode import DecodedText, decode_filled
from latent_workers.parse.text.front_matter import NONE as NO_FRONT_MATTER, front_matter
from latent_workers.parse.text.lines import Lines
from latent_workers.parse.text.parser import runs

_TELLING: Final = frozenset(string.digits + "`~>*-_+[<#|:=")
"""Characters at the start of a line that may be more than part of a paragraph."""


@cache
def reader() -> MarkdownIt:
    """CommonMark with tables. Its blocks have the same lines as the full parser's, at three times its speed."""
    markdown = MarkdownIt("commonmark").enable("table")
    markdown.core.ruler.enableOnly(["normalize", "block"])
    markdown.block.ruler.at("table", table, {"alt": ["paragraph", "reference"]})
    markdown.block.ruler.before("table", "prose", prose)
    return markdown


def prose(state: StateBlock, start: int, _end: int, silent: bool) -> bool:
    """A paragraph whose lines cannot be anything else, as most are: skips all other rules. Only at the start of a
    block; it never ends another one."""
    if silent or state.is_code_block(start):
        return False
    line, source = start, state.src
    while line < state.lineMax and not state.isEmpty(line):
        if source[state.bMarks[line] + state.tShift[line]] in _TELLING:
            return False
        line += 1
    if line == start:
        return False
    state.line = line
    state.push("paragraph_open", "p", 1).map = [start, line]
    inline = state.push("inline", "", 0)
    inline.map, inline.children = [start, line], []
    state.push("paragraph_close", "p", -1)
    return True


def table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """The table rule, with one token for the table and none for its rows and cells."""
    if not begins_table(state, start, end, True):
        return False
    if silent:
        return True
    around, state.parentType = state.parentType, "table"
    line = start + 2
    while line < end and _is_row(state, line, end):
        line += 1
    state.parentType = around
    state.push("table_open", "table", 1).map = [start, line]
    state.push("table_close", "table", -1)
    state.line = line
    return True


def _is_row(state: StateBlock, line: int, end: int) -> bool:
    if state.sCount[line] < state.blkIndent or state.is_code_block(line):
        return False
    first = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
    # No other block begins with a bar, so only other lines are worth the question.
    if first.startswith("|"):
        return True
    if not first.strip():
        return False
    rules = state.md.block.ruler.getRules("blockquote")
    return not any(rule(state, line, end, True) for rule in rules)


_KINDS: Final = {
    "heading_open": BlockType.HEADING,
    "bullet_list_open": BlockType.LIST,
    "ordered_list_open": BlockType.LIST,
    "table_open": BlockType.TABLE,
    "fence": BlockType.CODE,
    "code_block": BlockType.CODE,
}
_WORDS: Final = ("text", "code_inline", "image")
_WHOLE: Final = frozenset({BlockType.TABLE, BlockType.CODE})
"""Kinds that stay separate blocks inside a list or a quotation."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines ``first`` to ``last``, from 1."""

    kind: BlockType
    first: int
    last: int
    level: int | None = None
    heading: str = ""


def parse(source: SourceFile) -> ParsedDocument:
    return of_decoded(decode_filled(source.read(), source.name))


def of_decoded(decoded: DecodedText, *, has_front_matter: bool = True) -> ParsedDocument:
    """Blocks of decoded Markdown. Front matter that can be read is meta and no block, unless there is nothing else."""
    text = decoded.text
    lines = Lines(text)
    matter = front_matter(text, lines) if has_front_matter else NO_FRONT_MATTER
    body = body_below(text, lines, matter.lines)
    is_text = matter.is_text or not any(map(str.isalnum, body))
    pieces = _pieces(body, lines.filled(), matter.lines, is_text=is_text)
    blocks = tuple(_blocks(text, lines, pieces))
    return ParsedDocument(
        text=text,
        title=_title(matter.meta, blocks),
        blocks=blocks,
        meta={**matter.meta, "encoding": decoded.encoding},
        warnings=matter.warnings,
        replaced_characters=decoded.replaced,
    )


def body_below(text: str, lines: Lines, matter_lines: int) -> str:
    """The text with the front matter's lines emptied, so that line numbers stay."""
    if not matter_lines:
        return text
    _, end = lines.span(1, matter_lines)
    return "\n" * (matter_lines - 1) + text[end:]


def _pieces(body: str, filled: Sequence[bool], matter_lines: int, *, is_text: bool) -> list[_Piece]:
    """Pieces in order that together contain every filled line, those of the front matter only if it ``is_text``."""
    markdown = reader()
    pieces = [_Piece(BlockType.PARAGRAPH, 1, matter_lines)] if matter_lines and is_text else []
    for piece in _structure(markdown.parse(body), markdown):
        done = pieces[-1].last if pieces else matter_lines
        trimmed = _trim(piece, filled, done)
        if trimmed:
            pieces += _missing(filled, done, trimmed.first - 1)
            pieces.append(trimmed)
    return pieces + _missing(filled, pieces[-1].last if pieces else matter_lines, len(filled))


def _structure(tokens: Sequence[Token], markdown: MarkdownIt) -> Iterator[_Piece]:
    """Top-level blocks; a container is split around tables and fences."""
    for index, token in enumerate(tokens):
        if token.level or not token.map or token.nesting < 0:
            continue
        kind = _KINDS.get(token.type, BlockType.PARAGRAPH)
        first, last = token.map[0] + 1, token.map[1]
        if kind is BlockType.HEADING:
            heading = _plain(tokens[index + 1].content, markdown)
            yield _Piece(kind, first, last, int(token.tag[1:]), heading)
        elif kind in _WHOLE:
            yield _Piece(kind, first, last)
        else:
            yield from _cut(kind, first, last, tokens, index)


def _cut(
    kind: BlockType, first: int, last: int, tokens: Sequence[Token], index: int
) -> Iterator[_Piece]:
    if tokens[index].nesting == 1:
        for token in tokens[index + 1 :]:
            if not token.level:
                break
            inner = _KINDS.get(token.type)
            if inner in _WHOLE and token.map and token.map[0] + 1 >= first:
                if token.map[0] + 1 > first:
                    yield _Piece(kind, first, token.map[0])
                yield _Piece(inner, token.map[0] + 1, token.map[1])
                first = token.map[1] + 1
    if first <= last:
        yield _Piece(kind, first, last)


def _trim(piece: _Piece, filled: Sequence[bool], done: int) -> _Piece | None:
    """The piece without lines that are already used and without blank lines at its ends."""
    first, last = max(piece.first, done + 1), min(piece.last, len(filled))
    while first <= last and not filled[first - 1]:
        first += 1
    while first <= last and not filled[last - 1]:
        last -= 1
    return replace(piece, first=first, last=last) if first <= last else None


def _missing(filled: Sequence[bool], done: int, last: int) -> list[_Piece]:
    """Lines outside of all blocks (link definitions), as paragraphs."""
    return [
        _Piece(BlockType.PARAGRAPH, done + start, done + end)
        for start, end in runs(filled[done:last])
    ]


def _plain(content: str, markdown: MarkdownIt) -> str:
    """The words of a heading without its markup."""
    tokens: list[Token] = []
    markdown.inline.parse(content, markdown, {}, tokens)
    words = (
        token.content if token.type in _WORDS else " " if token.type.endswith("break") else ""
        for token in tokens
    )
    return " ".join("".join(words).split())


def _blocks(text: str, lines: Lines, pieces: Sequence[_Piece]) -> Iterator[TextBlock]:
    stack: list[tuple[int, str]] = []
    for piece in pieces:
        if piece.level:
            stack = [above for above in stack if above[0] < piece.level]
            if piece.heading:
                stack.append((piece.level, piece.heading))
        start, end = lines.span(piece.first, piece.last)
        yield TextBlock(
            kind=piece.kind,
            text=text[start:end],
            offset_start=start,
            offset_end=end,
            line_start=piece.first,
            line_end=piece.last,
            heading_path=tuple(heading for _, heading in stack),
            level=piece.level,
        )


def _title(meta: dict[str, Any], blocks: Sequence[TextBlock]) -> str | None:
    """From the front matter, else the first heading of the highest level."""
    given = meta.get("title")
    if isinstance(given, str | int | float) and not isinstance(given, bool) and str(given).strip():
        return " ".join(str(given).split())
    headings = [block for block in blocks if block.level and block.heading_path]
    best = min(headings, key=lambda block: block.level or 0, default=None)
    return best.heading_path[-1] if best else None
