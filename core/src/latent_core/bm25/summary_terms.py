"""Terms of summaries, apart from those of the texts that they summarise (docs/adr/0055-summaries.md).

``~harbour`` is the term of a summary with the word "harbour", so a summary changes neither how rare a word is among the
originals nor what phrases, completions and corrections find. The term ``~`` alone is in every summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from latent_core.bm25.analyser import AnalysedText
from latent_core.bm25.names import is_name
from latent_core.bm25.segment import cut

SIGN: Final = "~"
"""Before a term. No word of a text begins with it."""
EVERY: Final = SIGN
"""The term of every summary."""


def is_of_summary(term: str) -> bool:
    return term.startswith(SIGN)


def of_summary(analysed: AnalysedText) -> AnalysedText:
    """The index terms of a summary, from those of its text."""
    terms = {cut(SIGN + term): places for term, places in analysed.positions.items()}
    return AnalysedText({EVERY: (1,), **terms}, analysed.length)


def summary_query(terms: Iterable[str]) -> list[str]:
    """The terms of a query as summaries have them. A summary defines no names."""
    return [cut(SIGN + term) for term in terms if not is_name(term)]


def summary_groups(as_one: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Terms that count as one, as summaries have them."""
    return {cut(SIGN + name): summary_query(terms) for name, terms in as_one.items()}
