"""Console output of an evaluation."""

from __future__ import annotations

from rich.console import Console

from latent_cli.output import answers, safe, table
from latent_core.wire.evaluation import (
    EvalReport,
    Interval,
    RerankFigures,
    RerankReport,
    SetupReport,
    Suggestion,
)

SHOWN_SETUPS = 10


def show(report: EvalReport, console: Console | None = None) -> None:
    out = console or answers()
    columns = (
        "SETUP",
        ">QUERIES",
        ">NDCG@10",
        "95 %",
        ">R@20",
        ">R@100",
        ">MRR",
        ">NO HIT",
        ">P50 MS",
        ">P95 MS",
    )
    out.print(table(columns, (_row(setup) for setup in report.setups)))
    for setup in report.setups:
        _details(out, setup)
    if report.suggestion is not None:
        _suggestion(out, report.suggestion)
    if report.reranking is not None:
        _reranking(out, report.reranking)
    kept = "; saved for later comparison" if report.kept else ""
    out.print(f"all gates pass{kept}" if report.passed else f"a gate fails{kept}")


def verdicts(report: SetupReport, console: Console) -> None:
    """The verdict of every golden query."""
    rows = (
        (
            v.id,
            f"{v.ndcg_at_10:.3f}",
            f"{v.recall_at_20:.3f}",
            v.hits,
            "; ".join(v.failures) or "ok",
        )
        for v in report.verdicts
    )
    console.print(table(("QUERY", ">NDCG@10", ">RECALL@20", ">HITS", "VERDICT"), rows))


def _row(report: SetupReport) -> tuple[object, ...]:
    means = report.means
    return (
        report.name,
        report.queries,
        f"{means.ndcg_at_10:.3f}",
        f"{report.ndcg.low:.3f} to {report.ndcg.high:.3f}",
        f"{means.recall_at_20:.3f}",
        f"{means.recall_at_100:.3f}",
        f"{means.mrr:.3f}",
        f"{means.zero_hit_rate:.1%}",
        f"{means.p50_ms:.1f}",
        f"{means.p95_ms:.1f}",
    )


def _details(out: Console, report: SetupReport) -> None:
    if report.compared is not None:
        out.print(
            safe(
                f"{report.name}: nDCG@10 {_signed(report.compared.ndcg_at_10)} against {report.compared.of}"
            )
        )
    if report.partial:
        out.print(
            safe(f"{report.name}: {report.partial} answers were incomplete (deadline exceeded)")
        )
    for gate in report.gates:
        out.print(safe(f"gate fails: {report.name}: {gate}"))
    for verdict in report.verdicts:
        if verdict.failures:
            out.print(safe(f"  {verdict.id}: {'; '.join(verdict.failures)}"))


def _suggestion(out: Console, found: Suggestion) -> None:
    rows = ((name, f"{ndcg:.3f}") for name, ndcg in found.tried[:SHOWN_SETUPS])
    out.print(table(("TRIED", ">NDCG@10"), rows))
    gain = _signed(found.over_current)
    if found.worth_it:
        out.print(
            safe(
                f"better than the current setup: {found.name}, by {gain}; set retrieval.fusion in the manifest"
            )
        )
    else:
        out.print(
            safe(
                f"no setup is significantly better than the current one (best: {found.name}, {gain})"
            )
        )


def _reranking(out: Console, report: RerankReport) -> None:
    if report.without is not None and report.reranked is not None:
        columns = (safe(report.setup), ">NDCG@10", ">R@20", ">HIT@1", ">P50 MS", ">P95 MS")
        rows = [
            _figures("without reranking", report.without),
            _figures("with reranking", report.reranked),
        ]
        out.print(table(columns, rows))
    out.print(safe(report.summary))
    if report.partial:
        out.print(
            safe(
                f"reranking: {report.partial} of {report.queries} answers were reranked in part or not at all: {report.cause}"
            )
        )


def _figures(name: str, figures: RerankFigures) -> tuple[object, ...]:
    return (
        name,
        f"{figures.ndcg_at_10:.3f}",
        f"{figures.recall_at_20:.3f}",
        f"{figures.hit_at_1:.3f}",
        f"{figures.p50_ms:.1f}",
        f"{figures.p95_ms:.1f}",
    )


def _signed(interval: Interval) -> str:
    return f"{interval.value:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
