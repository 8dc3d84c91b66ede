"""Thin texts: tiny ("hi") or damaged by a wrong encoding. Their vectors lie somewhere near many queries by chance.

A thin text keeps its place only if it is relevant (``latent_core.search.relevance``), such as "hi" for the query "hi".
Otherwise it follows all other hits. Texts are read only when a thin one would be shown, or on a later page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from latent_core.bm25.analyser import analyse
from latent_core.db.connection import Database
from latent_core.db.containers import Container
from latent_core.db.documents import chunk_texts
from latent_core.search.ranking import RankedCandidate, best_first
from latent_core.search.relevance import is_weak

MAX_TINY_TERMS: Final = 2
TINY_FACTOR: Final = 10
"""A tiny text has this many times fewer terms than the container's average chunk."""
MAX_TINY_CHARS: Final = 120
READ_CHARS: Final = 400
MIN_DAMAGED_SHARE: Final = 0.2
"""Of the characters. A few wrong accents do not make a text unreadable."""
DEMOTION: Final = 1e-3

# UTF-8 that was read as Latin-1 or Windows-1252, replacement characters, C1 controls, private use.
_SECOND_BYTE: Final = "[\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013\u2014\u2018-\u201a\u201c-\u201e\u2020-\u2022\u2026\u2030\u2039\u203a\u20ac\u2122]"
_DAMAGE: Final = re.compile(
    f"[\u00c2-\u00f4]{_SECOND_BYTE}{{1,3}}|[\ufffd\u0080-\u009f\ue000-\uf8ff]"
)
_SPACE: Final = re.compile(r"\s+")


def is_tiny(text: str, language: str | None, average_length: float) -> bool:
    """Whether a text has hardly a term, and far fewer than the average chunk of its container."""
    if len(text) > MAX_TINY_CHARS:
        return False
    terms = len(analyse(text, language or "simple").positions)
    return terms <= MAX_TINY_TERMS and terms * TINY_FACTOR <= average_length


def is_damaged(text: str) -> bool:
    """Whether much of a text was read in a wrong encoding."""
    head = text[:READ_CHARS]
    if head.isascii():  # as most hits are; a hundredth of the time of the search for damage
        return False
    shown = _SPACE.sub("", head)
    damaged = sum(len(match.group()) for match in _DAMAGE.finditer(shown))
    return damaged > 0 and damaged >= MIN_DAMAGED_SHARE * len(shown)


def is_thin(text: str, language: str | None, average_length: float) -> bool:
    return is_tiny(text, language, average_length) or is_damaged(text)


async def demote_thin(
    db: Database, candidates: Sequence[RankedCandidate], containers: Mapping[str, Container]
) -> list[RankedCandidate]:
    """Best first, with the irrelevant thin ones below all others."""
    thin: set[tuple[str, int]] = set()
    for container_id, container in containers.items():
        suspects = [
            c.chunk_no for c in candidates if c.container_id == container_id and is_suspect(c)
        ]
        async with db.reading() as conn:
            texts = await chunk_texts.embedded(conn, container_id, suspects, READ_CHARS)
        thin |= {
            (container_id, one.chunk_no)
            for one in texts
            if is_thin(one.text, one.language, container.average_length)
        }
    return sorted(
        (
            c._replace(score=c.score * DEMOTION) if (c.container_id, c.chunk_no) in thin else c
            for c in candidates
        ),
        key=best_first,
    )


def is_suspect(candidate: RankedCandidate) -> bool:
    """Whether the candidate loses its place if its text is thin."""
    return candidate.relevance is None or is_weak(candidate.relevance)
