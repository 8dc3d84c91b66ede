"""Two runs, query by query."""

from __future__ import annotations

from collections.abc import Sequence

from latent_core.eval.reporting import paired_interval
from latent_core.wire.evaluation import EvalRun, QueryChange, QueryVerdict, RunDifference


def difference(
    before: tuple[EvalRun, Sequence[QueryVerdict]], after: tuple[EvalRun, Sequence[QueryVerdict]]
) -> RunDifference:
    """What changed from the first run to the second. A query whose text changed counts as another one."""
    known = {(verdict.id, verdict.query): verdict for verdict in before[1]}
    pairs = [
        (known[verdict.id, verdict.query], verdict)
        for verdict in after[1]
        if (verdict.id, verdict.query) in known
    ]
    changes = [
        QueryChange(
            id=new.id,
            query=new.query,
            before=old,
            after=new,
            change=new.ndcg_at_10 - old.ndcg_at_10,
        )
        for old, new in pairs
    ]
    interval = None
    if changes:
        interval = paired_interval(
            [new.ndcg_at_10 for _, new in pairs], [old.ndcg_at_10 for old, _ in pairs]
        )
    better = sum(change.change > 0 for change in changes)
    worse = sum(change.change < 0 for change in changes)
    return RunDifference(
        before=before[0],
        after=after[0],
        ndcg_at_10=interval,
        better=better,
        worse=worse,
        same=len(changes) - better - worse,
        only_before=len(before[1]) - len(pairs),
        only_after=len(after[1]) - len(pairs),
        changes=sorted(
            (change for change in changes if _differs(change)),
            key=lambda change: (-abs(change.change), change.id),
        ),
    )


def _differs(change: QueryChange) -> bool:
    before, after = change.before, change.after
    return (before.ndcg_at_10, before.recall_at_20, before.reciprocal_rank, before.failures) != (
        after.ndcg_at_10,
        after.recall_at_20,
        after.reciprocal_rank,
        after.failures,
    )
