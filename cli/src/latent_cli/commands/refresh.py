"""``latent refresh``"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console

from latent_cli.jobs_output import finish_jobs
from latent_cli.options import Json, Wait, command_app
from latent_cli.output import amount, answers, emit, safe
from latent_cli.session import ask
from latent_core.domain.errors import Invalid
from latent_core.wire.refresh import (
    ModelView,
    PlanAnswer,
    RefreshPlan,
    RefreshRequest,
    RollbackAnswer,
    Strategy,
    Way,
)

app = command_app()

BACK = "rollback"


@app.command()
def refresh(
    container: Annotated[
        str,
        typer.Argument(
            metavar="CONTAINER", help="Container id, or the word rollback followed by one."
        ),
    ],
    after_rollback: Annotated[str | None, typer.Argument(metavar="[CONTAINER]")] = None,
    strategy: Annotated[
        Strategy, typer.Option("--strategy", help="How to rebuild vectors or chunks.")
    ] = Strategy.PARALLEL,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="EMBEDDER",
            help="New embedder, as in a manifest; default: the current one.",
        ),
    ] = None,
    version: Annotated[
        str | None, typer.Option("--version", help="Version of the embedder.")
    ] = None,
    dims: Annotated[
        int | None, typer.Option("--dims", min=1, help="Dimensions of the embedder.")
    ] = None,
    way: Annotated[
        Way | None, typer.Option("--way", help="For strategy drift: the vectors to map.")
    ] = None,
    keep_days: Annotated[
        float | None,
        typer.Option("--keep-days", min=0, help="Days during which a rollback is possible."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Switch even if a gate fails; inplace: empty the space first."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate the cost and change nothing.")
    ] = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Change a container's embedder or rebuild its vectors or chunks.

    parallel (default) builds a second space and switches when it is complete and no worse. inplace embeds
    everything again in the same space. drift maps vectors with an adapter between the two models. reparse
    starts from the stored originals. `latent refresh rollback CONTAINER` restores the previous space.
    """
    if after_rollback is not None:
        if container != BACK:
            raise Invalid(f"give one container, not both '{container}' and '{after_rollback}'")
        _roll_back(after_rollback, as_json=as_json)
        return
    target = {"embedder": to, "version": version, "dims": dims}
    given = {name: value for name, value in target.items() if value is not None}
    if given and to is None:
        given["embedder"] = ask(lambda client: client.describe(container)).embedder["embedder"]
    request = _request(
        strategy=strategy, to=given or None, way=way, keep_days=keep_days, force=force
    )
    begun = ask(lambda client: client.refresh(container, request, dry_run=dry_run))
    if isinstance(begun, PlanAnswer):
        emit(begun.plan) if as_json else _show(answers(), begun.plan)
    else:
        finish_jobs([begun.job_id], wait=wait, as_json=as_json)


def _request(**words: Any) -> RefreshRequest:
    try:
        return RefreshRequest.model_validate({k: v for k, v in words.items() if v is not None})
    except ValidationError as exc:
        messages = [str(error["msg"]).removeprefix("Value error, ") for error in exc.errors()]
        places = [".".join(str(part) for part in error["loc"]) for error in exc.errors()]
        lines = [
            f"{place}: {word}" if place else word
            for place, word in zip(places, messages, strict=True)
        ]
        raise Invalid("; ".join(lines)) from exc


def _roll_back(container: str, *, as_json: bool) -> None:
    done = ask(lambda client: client.rollback(container))
    if as_json:
        emit(done)
    else:
        answers().print(safe(_back(container, done)))


def _back(container: str, done: RollbackAnswer) -> str:
    if done.aborted is not None:
        return f"'{container}': the build of {_model(done.aborted)} is aborted; {_model(done.now)} stays in use"
    was = _model(done.was) if done.was is not None else "another space"
    return f"'{container}' uses {_model(done.now)} again instead of {was}"


def _model(model: ModelView) -> str:
    return f"{model.embedder} {model.version} ({model.dims} dimensions)"


def _cost(plan: RefreshPlan) -> str:
    if plan.cost is None:
        return "unknown: set LLC_EMBED_PRICE_PER_MILLION"
    return f"{plan.cost:,.4f} by LLC_EMBED_PRICE_PER_MILLION" if plan.cost else "nothing"


def _show(console: Console, plan: RefreshPlan) -> None:
    lines = {
        "from": _model(plan.source),
        "to": _model(plan.target),
        "holds": f"{amount(plan.documents, 'document')}, {amount(plan.chunks, 'chunk')}",
        "embeds": f"{amount(plan.texts, 'text')}, {amount(plan.tokens, 'token')}; "
        f"{amount(plan.cached, 'chunk')} cached",
        "costs": _cost(plan),
        "takes": "unknown" if plan.seconds is None else f"about {plan.seconds:,.0f} s",
        "by": plan.basis,
        "judged by": f"{plan.golden_queries} golden queries",
    }
    for name, value in lines.items():
        console.print(f"{name:<9} {safe(value)}")
    for note in plan.notes:
        console.print(safe(f"note      {note}"))
