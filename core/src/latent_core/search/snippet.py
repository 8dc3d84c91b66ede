"""Snippets: the part of a chunk with the densest query words, as an exact excerpt with highlights."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from latent_core.bm25.analyser import TokenSpan
from latent_core.bm25.segment import ASCII_TOKEN, TOKEN

Spans = Callable[[str, str], Sequence[TokenSpan]]
"""Maps (text, language) to the words with their lexemes."""

SCANNED_CHARS: Final = 20_000
"""Only this many characters of a chunk are scanned for the best window."""
KEEP_BEGINNINGS: Final = frozenset({"english", "simple"})
"""Languages whose stems keep the first two letters of the word. Comparing these letters rules out most words in a tenth
of the time that stemming takes."""
REMEMBERED_TOKENS: Final = 32_768
"""Cached tokens with their terms; most words of a hit occurred in earlier hits."""
REMEMBERED_CHARS: Final = 64
"""Longer tokens are rare and not cached."""


MAX_HEADER_CHARS: Final = 1000
"""A longer header row is omitted, because it would fill the snippet."""
CUT: Final = "..."
_DELIMITER: Final = re.compile(r"[ \t>]*+\|?[ \t]*+:?-[-:| \t]*+(?:\r?\n|\Z)")
"""The line of dashes below a header row."""


@dataclass(frozen=True, slots=True)
class Snippet:
    text: str
    """An exact excerpt."""
    highlights: list[tuple[int, int]]
    """Character ranges in ``text``."""
    cut_before: bool
    cut_after: bool
    start: int = 0
    """Where it begins in the text."""

    def marked(self) -> str:
        """The excerpt with its words marked as ``**word**`` and ``...`` where it is cut."""
        parts: list[str] = []
        at = 0
        for start, end in self.highlights:
            parts += [self.text[at:start], "**", self.text[start:end], "**"]
            at = end
        parts.append(self.text[at:])
        return (CUT if self.cut_before else "") + "".join(parts) + (CUT if self.cut_after else "")


def make_snippet(
    text: str, language: str, terms: Collection[str], max_chars: int, spans: Spans, head: int = 0
) -> Snippet:
    """The best window of at most ``max_chars`` characters, cut at whole words. ``head``: length of the header row of a
    table, which is shown above its rows anyway: words in the rows select the window."""
    scanned = text[:SCANNED_CHARS]
    query_terms = set(terms)
    matches = list(_matches(scanned, language, query_terms, spans)) if query_terms else []
    start, end = _window(text, [m for m in matches if m[0] >= head] or matches, max_chars)
    shown = [
        (max(s, start) - start, min(e, end) - start) for s, e, _ in matches if s < end and e > start
    ]
    return Snippet(
        text[start:end],
        _joined(shown),
        cut_before=start > 0,
        cut_after=end < len(text),
        start=start,
    )


def _matches(
    text: str, language: str, query_terms: set[str], spans: Spans
) -> Iterator[tuple[int, int, set[str]]]:
    """The words of ``text`` that match a query term: start, end and terms."""
    standing: dict[str, set[str]] = {}
    for match in _candidates(text, language, query_terms).finditer(text):
        token = match.group()
        terms = standing.get(token)
        if terms is None:
            find = _remembered if len(token) <= REMEMBERED_CHARS else _terms
            terms = standing[token] = query_terms.intersection(find(token, language, spans))
        if terms:
            yield match.start(), match.end(), terms


def _candidates(text: str, language: str, query_terms: set[str]) -> re.Pattern[str]:
    """A pattern for tokens of ``text`` that may match a query term (the innermost loop of a search)."""
    if not text.isascii():
        return TOKEN
    beginnings = _beginnings(query_terms) if language in KEEP_BEGINNINGS else None
    return _pattern(beginnings) if beginnings else ASCII_TOKEN


@lru_cache(maxsize=256)
def _pattern(beginnings: frozenset[str]) -> re.Pattern[str]:
    """``ASCII_TOKEN`` without plain words that begin with other letters; compound names still match.

    A skipped token is always one whole plain word, so no match begins inside a token.
    """
    other = "|".join(re.escape(two) for two in sorted(beginnings))
    plain = rf"(?!(?i:{other}))[A-Za-z][a-z]+(?!\w|[.'-]\w)"
    return re.compile(rf"(?<!\w)(?!{plain})(?:{ASCII_TOKEN.pattern})", re.ASCII)


def _beginnings(terms: set[str]) -> frozenset[str] | None:
    """The first two letters of plain words that may match one of ``terms``; None if any word may."""
    if any(len(term) < 2 for term in terms):
        return None
    found = {term[:2] for term in terms if term[:2].isascii() and term[:2].isalpha()}
    return frozenset(found | {f"{two[0]}y" for two in found if two[1] == "i"})  # dying: die


def _terms(token: str, language: str, spans: Spans) -> tuple[str, ...]:
    """The index terms of one token."""
    return tuple(term for span in spans(token, language) for term in span.terms)


_remembered = lru_cache(maxsize=REMEMBERED_TOKENS)(_terms)


def _window(
    text: str, matches: Sequence[tuple[int, int, set[str]]], max_chars: int
) -> tuple[int, int]:
    """Start and end of the window with the most distinct terms, then the most matches, then the earliest."""
    if len(text) <= max_chars:
        return 0, len(text)
    best, best_worth = 0, (0, 0)
    last = 0
    for first, (start, _, _) in enumerate(matches):
        last = max(last, first)
        while last < len(matches) and matches[last][1] <= start + max_chars:
            last += 1
        inside = matches[first:last]
        worth = (len(set().union(*(m[2] for m in inside))), len(inside))
        if worth > best_worth:
            best, best_worth = first, worth
    begin = _lead_in(text, matches[best][0], max_chars) if matches else 0
    return begin, _whole_word_end(text, begin, max_chars)


def _lead_in(text: str, match: int, max_chars: int) -> int:
    """Begin a little before the match: at a line or sentence if one is near, else at a word."""
    low = max(0, match - max_chars // 4)
    for mark in ("\n", ". "):
        found = text.rfind(mark, low, match)
        if found >= 0:
            return found + len(mark)
    space = text.find(" ", low, match)
    return low if low == 0 else (space + 1 if space >= 0 else match)


def _whole_word_end(text: str, begin: int, max_chars: int) -> int:
    end = min(len(text), begin + max_chars)
    if end == len(text) or text[end].isspace():
        return end
    space = max(text.rfind(" ", begin, end), text.rfind("\n", begin, end))
    return space if space > begin else end


def header_row(text: str) -> str:
    """The header row of a table, without its line end; empty if it has none or a long one."""
    header, _, rest = text.partition("\n")
    if not _DELIMITER.match(rest) or len(header) > MAX_HEADER_CHARS:
        return ""
    return header.rstrip()


def excerpt(text: str, start: int, end: int, max_chars: int, *, table: bool = False) -> str:
    """The part of ``text`` around ``start`` to ``end``, with ``...`` where it is cut: a third of the extra characters
    before it, the rest after it. Of a table whole rows, below its header row."""
    if len(text) <= max_chars:
        return text
    header = header_row(text) if table and start else ""
    left = max_chars - len(header) - 2 * len(CUT)
    extra = max(0, left - (end - start))
    low = max(0, min(start - extra // 3, len(text) - left))
    high = min(len(text), max(end, low + left) if extra else start + left)
    begin = _row_start(text, low, start) if table else _clean_start(text, low, start)
    finish = _whole_word_end(text, begin, high - begin)
    if table and (row := text.rfind("\n", end, finish)) > 0 and finish < len(text):
        finish = row
    above = f"{header}\n" if header and begin >= len(header) else ""
    return above + (CUT if begin else "") + text[begin:finish] + (CUT if finish < len(text) else "")


def _clean_start(text: str, low: int, start: int) -> int:
    """The first line, sentence or word that begins between ``low`` and ``start``."""
    if low == 0:
        return 0
    for mark in ("\n", ". ", " "):
        found = text.find(mark, low, start)
        if found >= 0:
            return found + len(mark)
    return start


def _row_start(text: str, low: int, start: int) -> int:
    """The first row that begins between ``low`` and ``start``, else the beginning of the row at ``start``."""
    if low == 0:
        return 0
    found = text.find("\n", low, start)
    return found + 1 if found >= 0 else text.rfind("\n", 0, start) + 1


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping ranges made one, so that marks never cross."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
