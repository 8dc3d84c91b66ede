"""``latent eval-runs``"""

from __future__ import annotations

from typing import Annotated

import typer

from latent_cli.options import Json, command_app
from latent_cli.output import answers, emit, moment, safe, table
from latent_cli.session import ask
from latent_core.domain.errors import Invalid
from latent_core.wire.evaluation import EvalRun, EvalRunAnswer, QueryChange, RunDifference

app = command_app()


@app.command("eval-runs")
def eval_runs(
    container: Annotated[str, typer.Argument(metavar="CONTAINER")],
    run: Annotated[
        int | None, typer.Option("--run", min=1, help="Show every query of this run.")
    ] = None,
    since: Annotated[
        int | None, typer.Option("--since", min=1, help="Compare --run with this earlier run.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the evaluation runs of a container, show one, or compare two query by query."""
    if since is not None and run is None:
        raise Invalid("--since compares with --run; give both")
    if run is None:
        runs = ask(lambda client: client.eval_history(container))
        _show(runs, as_json=as_json)
    elif since is None:
        one = ask(lambda client: client.eval_run(container, run))
        _show_run(one, as_json=as_json)
    else:
        compared = ask(lambda client: client.eval_difference(container, run, since=since))
        _show_difference(compared, as_json=as_json)


def _show(runs: list[EvalRun], *, as_json: bool) -> None:
    if as_json:
        emit({"runs": runs})
        return
    columns = (">RUN", "AT", "SETUP", ">QUERIES", ">NDCG@10", ">R@20", ">P95 MS", "GATES")
    answers().print(table(columns, (_row(run) for run in runs)))


def _row(run: EvalRun) -> tuple[object, ...]:
    means = run.means
    figures = (f"{means.ndcg_at_10:.3f}", f"{means.recall_at_20:.3f}", f"{means.p95_ms:.1f}")
    return (
        run.id,
        moment(run.created_at),
        run.setup,
        run.queries,
        *figures,
        "; ".join(run.gates) or "pass",
    )


def _show_run(answer: EvalRunAnswer, *, as_json: bool) -> None:
    if as_json:
        emit(answer)
        return
    _show([answer.run], as_json=False)
    if answer.verdicts is None:
        answers().print("the figures of its queries are no longer kept")
        return
    rows = (
        (v.id, v.query, f"{v.ndcg_at_10:.3f}", v.hits, "; ".join(v.failures) or "ok")
        for v in answer.verdicts
    )
    answers().print(table(("ID", "QUERY", ">NDCG@10", ">HITS", "VERDICT"), rows))


def _show_difference(answer: RunDifference, *, as_json: bool) -> None:
    if as_json:
        emit(answer)
        return
    columns = ("ID", "QUERY", ">BEFORE", ">AFTER", ">CHANGE")
    answers().print(table(columns, (_change(one) for one in answer.changes)))
    mean = ""
    if answer.ndcg_at_10 is not None:
        found = answer.ndcg_at_10
        mean = f"; nDCG@10 {found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    counts = f"{answer.better} better, {answer.worse} worse, {answer.same} the same{mean}"
    answers().print(safe(counts))


def _change(one: QueryChange) -> tuple[object, ...]:
    before, after = one.before.ndcg_at_10, one.after.ndcg_at_10
    return one.id, one.query, f"{before:.3f}", f"{after:.3f}", f"{one.change:+.3f}"
