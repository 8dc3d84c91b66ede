"""Why a hit is where it is: its place in each channel's list, and the query's words that it has. Drawn as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final

from latent_core.bm25.analyser import analyse, spans
from latent_core.search.plan import BM25, EXACT, SUMMARIES, VECTOR
from latent_core.wire.search import ContainerStatus, Diagnostics, Hit

LABELS: Final = {BM25: "Words", VECTOR: "Meaning", EXACT: "Exact text", SUMMARIES: "Summary"}
LEFT: Final = 96
"""Of the first place, in units of the picture."""
RIGHT: Final = 336
WIDTH: Final = 360
ROW: Final = 30
MAX_WORDS: Final = 12
MAX_SCANNED_CHARS: Final = 4000
MAX_QUERY_CHARS: Final = 400
MAX_LANGUAGES: Final = 3


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """The list of one channel, from its first place to its last, and where the hit stands in it."""

    label: str
    length: int
    """Candidates in the list."""
    rank: int | None
    """From 1; None if the list does not have the hit."""
    share: float | None
    """0..1: how far the channel moves the order of this search; None if its fusion does not tell."""
    x: int
    y: int

    @property
    def words(self) -> str:
        if self.rank is None:
            return f"not among the first {self.length:,}" if self.length else "found nothing"
        return f"place {self.rank:,} of {self.length:,}"


@dataclass(frozen=True, slots=True)
class QueryWord:
    text: str
    count: int
    """In the text of the hit."""


@dataclass(frozen=True, slots=True)
class WhyPicture:
    rows: Sequence[ChannelRow]
    words: Sequence[QueryWord]
    exact: Sequence[str]
    """What must occur and does, in words."""
    height: int

    @property
    def summary(self) -> str:
        """The picture in one sentence."""
        return "; ".join(f"{row.label}: {row.words}" for row in self.rows)


def picture(
    hit: Hit, query: str, languages: Sequence[str], diagnostics: Diagnostics | None
) -> WhyPicture:
    """Of one hit of an answer. ``languages``: of the texts of its container."""
    lengths = _lengths(hit.container_id, diagnostics.container_status if diagnostics else ())
    shares: Mapping[str, float] = (
        diagnostics.influence.get(hit.container_id, {}) if diagnostics else {}
    )
    ranks = {reason.channel: reason.rank for reason in reversed(hit.why)}
    channels = [c for c in LABELS if c in lengths or c in ranks]
    rows = [
        _row(n, channel, ranks.get(channel), lengths.get(channel, 0), shares.get(channel))
        for n, channel in enumerate(channels)
    ]
    words = _words(hit, query, languages)
    return WhyPicture(rows, words, _exact(hit), ROW * len(rows) + 6)


def _lengths(container_id: str, statuses: Sequence[ContainerStatus]) -> dict[str, int]:
    return next((s.list_lengths for s in statuses if s.container_id == container_id), {})


def _row(n: int, channel: str, rank: int | None, length: int, share: float | None) -> ChannelRow:
    length = max(length, rank or 0)
    return ChannelRow(
        LABELS[channel], length, rank, share, _x(rank or length, length), 20 + n * ROW
    )


def _x(rank: int, length: int) -> int:
    """By the logarithm of the place: the first ones differ most."""
    if length < 2:
        return LEFT
    return round(LEFT + (RIGHT - LEFT) * log(rank) / log(length))


def _words(hit: Hit, query: str, languages: Sequence[str]) -> list[QueryWord]:
    """The words of the query that are indexed, with how often the hit has each."""
    if not query:
        return []
    text = (hit.text or hit.snippet)[:MAX_SCANNED_CHARS]
    languages = languages[:MAX_LANGUAGES]
    counts = {language: analyse(text, language).tfs for language in languages}
    found: dict[str, int] = {}
    for language in languages:
        for span in spans(query[:MAX_QUERY_CHARS], language):
            word = query[span.start : span.end]
            times = max((counts[language].get(term, 0) for term in span.terms), default=0)
            found[word] = max(found.get(word, 0), times)
    return [QueryWord(word, times) for word, times in found.items()][:MAX_WORDS]


def _exact(hit: Hit) -> list[str]:
    found = []
    for reason in hit.why:
        what = reason.term or reason.regex or reason.path
        if what is not None:
            times = f", {reason.count} times" if reason.count and reason.count > 1 else ""
            found.append(f"{what}{times}")
    return found
