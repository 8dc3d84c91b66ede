"""markdown-it, as far as the blocks: inline text is not looked at, and tables are not cut into cells."""

from __future__ import annotations

import string
from functools import cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import table as begins_table

_TELLING: Final = frozenset(string.digits + "`~>*-_+[<#|:=")
"""What a line begins with that may be more than a line of a paragraph."""


@cache
def reader() -> MarkdownIt:
    """CommonMark with tables. Blocks have the same lines as with the full reader, at three times its speed."""
    markdown = MarkdownIt("commonmark").enable("table")
    markdown.core.ruler.enableOnly(["normalize", "block"])
    markdown.block.ruler.at("table", table, {"alt": ["paragraph", "reference"]})
    markdown.block.ruler.before("table", "prose", prose)
    return markdown


def prose(state: StateBlock, start: int, _end: int, silent: bool) -> bool:
    """A paragraph in which no line can be anything else, which most are: without asking all other rules
    at every line. Only where a block begins; it never ends another."""
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
