"""The exact channel: chunks that contain all given terms literally and match one of the given regular expressions.

RE2 runs in linear time for any pattern, so a hostile one does no harm. Postgres selects candidates by trigram
signatures; each of them is read and matched here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal
from uuid import UUID

import numpy as np
import re2
from numpy.typing import NDArray

from latent_core.bm25.exact import CandidateText, ExactIndex, SubstringQuery, required
from latent_core.domain.errors import Invalid

MAX_MATCHES: Final = 1000
"""Limit of matching chunks; with more, the result is incomplete."""
COUNTED: Final = 100
"""Limit of matches counted per pattern and chunk."""
LINES: Final = 20
"""Limit of line numbers reported per pattern and chunk."""
PATTERN_BYTES: Final = 4 << 20
"""Memory limit of one compiled pattern."""

Kind = Literal["term", "regex"]


@dataclass(frozen=True, slots=True)
class ExactQuery:
    """Exact terms, regular expressions and path of a request."""

    must_terms: tuple[str, ...] = ()
    """All must occur, as substrings."""
    regexes: tuple[str, ...] = ()
    """At least one must match."""
    path_like: str | None = None
    """A glob with ``*`` and ``?``, else a part of the path; in any case."""
    ignore_case: bool = False

    def __bool__(self) -> bool:
        return bool(self.must_terms or self.regexes or self.path_like)


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """The matches of one pattern in a chunk."""

    kind: Kind
    pattern: str
    count: int
    lines: tuple[int, ...]
    """Of the source; none where it has no lines."""
    first: int
    """Offset of the first match in the chunk's text."""


@dataclass(frozen=True, slots=True)
class Match:
    """A chunk that matches the exact query."""

    chunk_no: int
    doc_id: UUID
    found: tuple[PatternMatch, ...]

    @property
    def count(self) -> int:
        return sum(one.count for one in self.found)


@dataclass(slots=True)
class Matches:
    """Chunks that match, the ones with the most matches first; ties by chunk_no."""

    by_chunk_no: dict[int, Match] = field(default_factory=dict)
    complete: bool = False
    """The container has no further matches."""
    late: bool = False
    """Time ran out before all candidates were read."""

    def ranked(self) -> list[Match]:
        return sorted(
            self.by_chunk_no.values(), key=lambda m: (-len(m.found), -m.count, m.chunk_no)
        )


class Matcher:
    """A compiled query. The constructor raises ``Invalid`` and names the faulty pattern."""

    def __init__(self, query: ExactQuery) -> None:
        self.query = query
        self._terms = [(t, _compiled(re2.escape(t), query.ignore_case)) for t in query.must_terms]
        self._regexes = [(r, _compiled(r, query.ignore_case)) for r in query.regexes]

    @property
    def substring_query(self) -> SubstringQuery:
        """The substrings by which Postgres selects candidates."""
        return SubstringQuery(
            all_of=self.query.must_terms,
            any_of=tuple(tuple(required(pattern)) for pattern in self.query.regexes),
            path=_like(self.query.path_like),
        )

    def judge(self, text: CandidateText) -> Match | None:
        found = [_found("term", term, pattern, text) for term, pattern in self._terms]
        if not all(found):
            return None
        if self._regexes:
            matched = [_found("regex", given, pattern, text) for given, pattern in self._regexes]
            if not any(matched):
                return None
            found += matched
        return Match(text.chunk_no, text.doc_id, tuple(one for one in found if one is not None))

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """The matches in ``text``, by pattern: start, end and the pattern."""
        return [
            (*match.span(), given)
            for given, pattern in (*self._terms, *self._regexes)
            for match in islice(pattern.finditer(text), COUNTED)
        ]


async def exact_matches(
    index: ExactIndex,
    container_id: str,
    matcher: Matcher,
    *,
    chunk_nos: NDArray[np.int64] | None = None,
    timeout_seconds: float,
) -> Matches:
    """Chunks of the container that match (of ``chunk_nos`` alone, when given), at most ``MAX_MATCHES``."""
    matches = Matches()
    candidates = index.candidates(container_id, matcher.substring_query, chunk_nos=chunk_nos)
    try:
        async with asyncio.timeout(timeout_seconds), aclosing(candidates):
            async for texts in candidates:
                for match in await asyncio.to_thread(_judged, matcher, texts):
                    matches.by_chunk_no[match.chunk_no] = match
                if len(matches.by_chunk_no) >= MAX_MATCHES:
                    return matches
    except TimeoutError:
        matches.late = True
        return matches
    matches.complete = True
    return matches


def _judged(matcher: Matcher, texts: Sequence[CandidateText]) -> list[Match]:
    return [match for text in texts if (match := matcher.judge(text)) is not None]


def _compiled(pattern: str, ignore_case: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(f"(?m:{pattern})", options)
    except re2.error as exc:
        raise Invalid(
            f"Regular expression '{pattern[:80]}' cannot be used: {_reason(exc)} (RE2 syntax: no look-around, no back-references).",
            regex=pattern[:200],
        ) from exc


def _reason(exc: Exception) -> str:
    given = exc.args[0] if exc.args else ""
    text = given.decode("utf-8", "replace") if isinstance(given, bytes) else str(given)
    return text.replace("(?m:", "", 1)


def _found(kind: Kind, given: str, pattern: Any, text: CandidateText) -> PatternMatch | None:
    spans = [m.start() for m in islice(pattern.finditer(text.text), COUNTED)]
    # The overlap at the start belongs to the previous chunk, which counts its matches.
    own = [start for start in spans if start >= text.repeated_chars] or spans
    if not own:
        return None
    return PatternMatch(kind, given, len(own), tuple(_lines(text, own)), own[0])


def _lines(text: CandidateText, starts: Iterable[int]) -> list[int]:
    if text.line_start is None:
        return []
    lines: dict[int, None] = {}
    at, line = text.repeated_chars, text.line_start
    for start in starts:
        if start < at:
            continue
        line += _breaks(text.text, at, start)
        at = start
        lines[line] = None
        if len(lines) == LINES:
            break
    return list(lines)


def _breaks(text: str, start: int, end: int) -> int:
    """Line ends that begin between two offsets: LF, CR LF, and CR alone."""
    part = text[start:end]
    both = part.count("\r\n")
    return (
        part.count("\n")
        + part.count("\r")
        - both
        - (part.endswith("\r") and text[end : end + 1] == "\n")
    )


def _like(path: str | None) -> str | None:
    """A LIKE pattern on uris."""
    if path is None:
        return None
    escaped = path.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    if "*" in path or "?" in path:
        return "%/" + escaped.lstrip("/").replace("*", "%").replace("?", "_")
    return f"%{escaped}%"
