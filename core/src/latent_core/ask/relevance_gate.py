"""The refusal before a language model is called: nothing that was found is relevant to the question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from latent_core.domain.errors import Issue, IssueCode
from latent_core.wire.search import Hit

ANSWERABLE_FROM: Final = 0.45
"""The relevance that the best hit of an answerable question has in 95 of 100 cases (ADR 0057)."""


def refusal(hits: Sequence[Hit]) -> Issue | None:
    """Why the question is not answered; None if it may be. A hit whose relevance cannot be measured may be relevant."""
    if not hits:
        message = (
            "Nothing in these containers matches the question, so no language model was called."
        )
        return Issue(code=IssueCode.NO_HITS, message=message)
    if any(hit.relevance is None or hit.relevance >= ANSWERABLE_FROM for hit in hits):
        return None
    best = max(hit.relevance or 0.0 for hit in hits)
    return Issue(
        code=IssueCode.NO_HITS,
        message=(
            f"Nothing in these containers is relevant to the question (the best hit has a relevance of {best:.2f}, "
            f"{ANSWERABLE_FROM:g} is needed), so no language model was called. Use other words, or other containers."
        ),
        details={"best_relevance": best, "needed": ANSWERABLE_FROM},
    )
