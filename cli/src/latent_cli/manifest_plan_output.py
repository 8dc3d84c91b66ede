"""The plan of a changed manifest as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from latent_cli.output import amount, safe
from latent_core.domain.manifest.changes import ChangeEffect
from latent_core.wire.manifest_plan import ManifestPlan
from latent_core.wire.refresh import Strategy

if TYPE_CHECKING:
    from rich.console import Console

WORDS: Final = {
    ChangeEffect.IMMEDIATE: "at once",
    ChangeEffect.NEW_DOCUMENTS: "for new documents",
    ChangeEffect.RECHUNK: "re-chunk",
    ChangeEffect.REEMBED: "re-embed",
    ChangeEffect.REFUSED: "refused",
}


def show_plan(console: Console, plan: ManifestPlan) -> None:
    """Every change with its effect, then the refresh that follows and what it takes."""
    if plan.effect is None:
        console.print(f"'{plan.container_id}' is already up to date")
        return
    for change in plan.changes:
        words = f"{change.key}: {change.old!r} → {change.new!r}"
        concerned = f", {amount(change.documents, 'document')}" if change.documents else ""
        console.print(safe(f"{words} ({WORDS[change.effect]}{concerned})"))
    for reason in plan.refused:
        console.print(safe(f"refused   {reason}"))
    for name, value in _figures(plan).items():
        console.print(safe(f"{name:<9} {value}"))
    for note in plan.notes:
        console.print(safe(f"note      {note}"))


def _figures(plan: ManifestPlan) -> dict[str, str]:
    if plan.refresh is None:
        return {}
    cost = "unknown: the embedder has no price" if plan.cost is None else f"{plan.cost:,.4f}"
    duration = "unknown" if plan.seconds is None else f"about {plan.seconds:,.0f} s"
    to = f" --to {plan.refresh.to.embedder}" if plan.refresh.to is not None else ""
    first = "then" if plan.refresh.strategy is Strategy.REPARSE else "instead"
    return {
        first: f"latent refresh {plan.container_id} --strategy {plan.refresh.strategy.value}{to}",
        "reads": f"{amount(plan.documents, 'document')}, {amount(plan.chunks, 'chunk')}",
        "embeds": f"at most {amount(plan.texts, 'text')}, {amount(plan.tokens, 'token')};"
        f" {amount(plan.cached, 'chunk')} cached",
        "costs": cost if plan.cost else ("nothing" if plan.cost == 0 else cost),
        "takes": duration,
        "by": plan.basis,
    }
