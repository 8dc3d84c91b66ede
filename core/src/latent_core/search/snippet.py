"""Snippets: the part of a chunk with the densest query words, as an exact excerpt with highlights."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from latent_core.bm25 import analyser
from latent_core.domain.table import header_row
from latent_core.search.word_matches import Spans, TermMatch, word_matches

ExactSpan = tuple[int, int, str]
"""Start and end of an exact match, and the pattern."""

SCANNED_CHARS: Final = 20_000
"""Only this many characters of a chunk are scanned for the best window."""
MIN_LABELS: Final = 3
"""Lines in a row that are labels; a single short line is a heading or the end of a paragraph."""
MAX_LABEL_CHARS: Final = 24
MIN_PROSE_CHARS: Final = 80
PROSE_SHARE: Final = 3
"""At least this fraction of a window with prose is no label."""
CUT: Final = "..."
_ITEM: Final = re.compile(r"\s*(?:[-*+\u2022]|\d{1,9}[.)])\s+\S")
"""An item of a list, which may be short."""


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
    evidence: tuple[tuple[int, str, float], ...] = ()
    """What it was chosen for: offsets in the text, each with its term and the weight of this (``_weights``); only exact
    matches if there are any."""

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
    text: str,
    language: str,
    terms: Collection[str],
    max_chars: int,
    spans: Spans,
    head: int = 0,
    *,
    exact: Sequence[ExactSpan] = (),
    prose: bool = False,
) -> Snippet:
    """The best window of at most ``max_chars`` characters, cut at whole words. ``head``: length of the header row of a
    table, which is shown above its rows anyway: words in the rows select the window. ``exact``: matches of exact
    terms, expressions and phrases, which select it before words. ``prose``: a window with sentences is better than one
    of labels (``_labels``), though these contain more words."""
    scanned = text[:SCANNED_CHARS]
    query_terms = set(terms)
    matches = list(word_matches(scanned, language, query_terms, spans)) if query_terms else []
    matches += [(start, end, {f"={pattern}"}) for start, end, pattern in exact]
    matches.sort(key=lambda match: match[:2])
    deciding = [m for m in matches if m[0] >= head] or matches
    labels = _labels(text) if prose and len(text) > max_chars else []
    weights = _weights(deciding)
    start, end = _window(text, deciding, max_chars, labels, weights)
    inside = [m for m in deciding if start <= m[0] < end]
    shown = [
        (max(s, start) - start, min(e, end) - start) for s, e, _ in matches if s < end and e > start
    ]
    return Snippet(
        text[start:end],
        _joined(shown),
        cut_before=start > 0,
        cut_after=end < len(text),
        start=start,
        evidence=_evidence(inside, weights),
    )


def _weights(matches: Sequence[TermMatch]) -> dict[str, float]:
    """A term that is rare in the text says more about a place in it."""
    counts = Counter(term for _, _, terms in matches for term in terms)
    return {term: 1 / count for term, count in counts.items()}


def _evidence(
    matches: Sequence[TermMatch], weights: Mapping[str, float]
) -> tuple[tuple[int, str, float], ...]:
    exact = [m for m in matches if any(term.startswith("=") for term in m[2])]
    return tuple(
        (start, term, weights[term])
        for start, _, terms in exact or matches
        for term in sorted(terms)
    )


def highlighted(text: str, language: str, query: str) -> list[tuple[int, int]]:
    """Character ranges of the words in ``text`` that match a word of ``query``, in order and apart."""
    terms = set(analyser.query_terms(query, [language]))
    scanned = text[:SCANNED_CHARS]
    matches = word_matches(scanned, language, terms, analyser.spans) if terms else ()
    return _joined([(start, end) for start, end, _ in matches])


def _window(
    text: str,
    matches: Sequence[TermMatch],
    max_chars: int,
    labels: Sequence[tuple[int, int]],
    weights: Mapping[str, float],
) -> tuple[int, int]:
    """Start and end of the window with the most distinct exact matches, then one with prose, then the one with the most
    distinct terms, then with the rarest, then with the most matches, then the earliest."""
    if len(text) <= max_chars:
        return 0, len(text)
    best, best_worth = -1, (0, False, 0, 0.0, 0)
    last = 0
    for first, (start, _, _) in enumerate(matches):
        last = max(last, first)
        while last < len(matches) and matches[last][1] <= start + max_chars:
            last += 1
        is_prose = _is_prose(start, min(start + max_chars, len(text)), labels)
        worth = _worth(matches[first:last], weights, is_prose=is_prose)
        if worth > best_worth:
            best, best_worth = first, worth
    exact, is_prose, *_ = best_worth
    if best < 0 or not (exact or is_prose):
        # No word of the query stands in prose: the first prose says more than labels.
        begin = labels[0][1] if labels and labels[0][0] == 0 else 0
    else:
        begin = _lead_in(text, matches[best][0], max_chars)
        begin = next(
            (end for start, end in labels if start <= begin < end <= matches[best][0]), begin
        )
    return begin, _whole_word_end(text, begin, max_chars)


def _worth(
    inside: Sequence[TermMatch], weights: Mapping[str, float], *, is_prose: bool
) -> tuple[int, bool, int, float, int]:
    terms = set[str]().union(*(m[2] for m in inside))
    exact = sum(term.startswith("=") for term in terms)
    rarity = round(sum(weights[term] for term in terms), 6)
    return exact, is_prose, len(terms), rarity, len(inside)


def _labels(text: str) -> list[tuple[int, int]]:
    """Runs of lines that are labels, as charts and maps have them (one or two words, or numbers alone), each with the
    white space after it. None in a text without prose."""
    runs: list[tuple[int, int]] = []
    start, count, at = 0, 0, 0
    for line in (*text.splitlines(keepends=True), "end of the text"):
        if line.strip() and not _is_label(line):
            if count >= MIN_LABELS:
                runs.append((start, at))
            count = 0
        elif line.strip():
            start = start if count else at
            count += 1
        at += len(line)
    return runs if len(text) - sum(end - start for start, end in runs) >= MIN_PROSE_CHARS else []


def _is_label(line: str) -> bool:
    words = line.split()
    if not any(map(str.isalpha, line)):
        return True
    return len(words) <= 2 and len(line.strip()) <= MAX_LABEL_CHARS and not _ITEM.match(line)


def _is_prose(start: int, end: int, labels: Sequence[tuple[int, int]]) -> bool:
    """Whether enough of a window is no label."""
    labelled = sum(max(0, min(end, stop) - max(start, begin)) for begin, stop in labels)
    return (end - start - labelled) * PROSE_SHARE >= end - start


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
