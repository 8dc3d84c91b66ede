"""markdown-it, as far as the blocks: inline text is not looked at, and tables are not cut into cells."""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.table import table as begins_table


def reader() -> MarkdownIt:
    """CommonMark with tables. Blocks have the same lines as with the full reader, at twice its speed."""
    markdown = MarkdownIt("commonmark").enable("table")
    markdown.core.ruler.enableOnly(["normalize", "block"])
    markdown.block.ruler.at("table", table, {"alt": ["paragraph", "reference"]})
    return markdown


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
