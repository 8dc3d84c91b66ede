"""Display: the order in which the hits of a page are shown, by the containers' ``display.sort``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from latent_core.domain.hit import Hit
from latent_core.search.plan import Plan


def in_display_order(plan: Plan, hits: Sequence[Hit]) -> list[Hit]:
    """The hits chosen by score, as people want to read them. Containers that differ are shown by score."""
    wanted = {part.container.manifest.display.sort for part in plan.containers}
    match wanted.pop() if len(wanted) == 1 else "score_then_freshness":
        case "freshness_then_score":
            return sorted(hits, key=lambda hit: (_age(hit), -hit.score))
        case "source_then_score":
            ranks = _priorities(plan)
            return sorted(
                hits, key=lambda hit: (ranks.get(hit.source_type, len(ranks)), -hit.score)
            )
        case _:
            return sorted(hits, key=lambda hit: (-hit.score, _age(hit)))


def _age(hit: Hit) -> float:
    """The younger, the smaller; what has no time comes last."""
    since: datetime | None = hit.modified_at or hit.fetched_at
    return -since.timestamp() if since else 0.0


def _priorities(plan: Plan) -> dict[str, int]:
    named = [name for p in plan.containers for name in p.container.manifest.display.source_priority]
    return {name: rank for rank, name in enumerate(dict.fromkeys(named))}
