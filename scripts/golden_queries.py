"""Golden queries: retrieval quality of a container against its gates.

    python scripts/golden_queries.py                          the sample container, on a fresh stack
    python scripts/golden_queries.py --container ID --url URL another one, where it runs

Reads manifests/<id>/eval.json, manifests/<id>.eval.json and golden_queries.json, whichever exist.
Exit code 1 when a gate fails or there is nothing to judge.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from latent_cli.output import table
from latent_cli.session import token_of
from latent_cli.throwaway import throwaway
from latent_client import SyncClient
from latent_core.domain.errors import Invalid, LatentError
from latent_core.domain.golden import (
    RECALL_DEPTH,
    Figures,
    GoldenSet,
    Latency,
    Report,
    judge,
    parse_golden,
    regressions,
    summarise,
)
from latent_core.domain.query import SearchRequest, SearchResponse
from latent_core.settings import load_settings

REPOSITORY = Path(__file__).resolve().parents[1]
MAKE_PDF = REPOSITORY / "scripts" / "make_sample_pdf.py"
SAMPLES = "samples"
ROUNDS = 3
"""Times each query is asked; the first answer is judged, all are timed."""


def main() -> int:
    asked = arguments()
    console = Console(highlight=False, width=140)
    try:
        files = golden_files(asked.manifests, asked.container)
        sets = [(file, parse_golden(_json(file), where=str(file))) for file in files]
        with gateway(asked) as client:
            passed = [judged(client, asked, console, file, golden) for file, golden in sets]
    except LatentError as exc:
        print(f"golden queries: {exc.message}", file=sys.stderr)
        return 1
    return 0 if all(passed) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Retrieval quality of a container against its gates"
    )
    parser.add_argument("--container", default=SAMPLES)
    parser.add_argument(
        "--url", help="a gateway that runs; by default a fresh one with the samples"
    )
    parser.add_argument("--manifests", type=Path, default=REPOSITORY / "manifests")
    parser.add_argument(
        "--last-run", type=Path, help="compared with, then written when all gates hold"
    )
    return parser.parse_args()


def golden_files(manifests: Path, container: str) -> list[Path]:
    """The files of golden queries of a container; ``Invalid`` when there is none."""
    candidates = (
        manifests / container / "eval.json",
        manifests / f"{container}.eval.json",
        Path("golden_queries.json"),
    )
    found = [file for file in candidates if file.is_file()]
    if not found:
        raise Invalid(f"no golden queries: write {candidates[0]}")
    return found


@contextmanager
def gateway(asked: argparse.Namespace) -> Iterator[SyncClient]:
    """A client of the given gateway, or of a fresh one that holds the sample container."""
    if asked.url:
        with SyncClient(asked.url, token_of(load_settings())) as client:
            yield client
        return
    if asked.container != SAMPLES:
        raise Invalid(
            f"a fresh stack holds '{SAMPLES}' only: name the gateway of '{asked.container}' by --url"
        )
    with (
        throwaway(REPOSITORY / "manifests") as installation,
        SyncClient(installation.url, installation.token) as client,
    ):
        folder = installation.folder / "lighthouse"
        shutil.copytree(REPOSITORY / "samples" / "lighthouse", folder)
        subprocess.run([sys.executable, MAKE_PDF, folder, folder / "handbook.pdf"], check=True)
        client.wait(client.sync_folder(SAMPLES, folder).job_ids, timeout_seconds=300)
        yield client


def judged(
    client: SyncClient, asked: argparse.Namespace, console: Console, file: Path, golden: GoldenSet
) -> bool:
    """Run one file's queries, print what came of it; whether all gates hold."""
    report = evaluate(client, asked.container, golden)
    worse = compare(asked.last_run, file, report)
    show(console, file, report, worse)
    passed = report.passed and not worse
    if passed and asked.last_run:
        keep(asked.last_run, file, report)
    return passed


def evaluate(client: SyncClient, container: str, golden: GoldenSet) -> Report:
    timed(client, container, golden.queries[0].query)  # loads what is loaded at first use
    answers = [
        [timed(client, container, query.query) for query in golden.queries] for _ in range(ROUNDS)
    ]
    verdicts = [
        judge(query, answer.hits)
        for query, (answer, _) in zip(golden.queries, answers[0], strict=True)
    ]
    return summarise(golden, verdicts, [ms for one in answers for _, ms in one])


def timed(client: SyncClient, container: str, query: str) -> tuple[SearchResponse, float]:
    request = SearchRequest(containers=[container], query=query, top_k=RECALL_DEPTH, dedup=False)
    begun = time.perf_counter()
    answer = client.search(request)
    return answer, (time.perf_counter() - begun) * 1000


def show(console: Console, file: Path, report: Report, worse: list[str]) -> None:
    rows = (
        (
            v.id,
            f"{v.figures.ndcg:.3f}",
            f"{v.figures.recall:.3f}",
            v.hits,
            "; ".join(v.failures) or "ok",
        )
        for v in report.verdicts
    )
    console.print(f"\n{file}")
    console.print(table(("QUERY", ">NDCG@10", ">RECALL@20", ">HITS", "VERDICT"), rows))
    mean, latency = report.mean, report.latency
    console.print(
        f"mean nDCG@10 {mean.ndcg:.3f}, Recall@20 {mean.recall:.3f}; "
        f"p50 {latency.p50_ms:.1f} ms, p95 {latency.p95_ms:.1f} ms over {ROUNDS} rounds"
    )
    for gate in (*report.gates, *worse):
        console.print(f"gate fails: {gate}")


def _key(file: Path) -> str:
    """The folder counts: every container's file may be called eval.json."""
    return f"{file.parent.name}/{file.name}"


def compare(last_run: Path | None, file: Path, report: Report) -> list[str]:
    """What is worse than in the last run; nothing when there is none."""
    if last_run is None or not last_run.is_file():
        return []
    last = _json(last_run).get(_key(file))
    if last is None:
        return []
    kept = (Figures(**last["mean"]), Latency(**last["latency"]))
    return regressions(report.mean, report.latency, kept)


def keep(last_run: Path, file: Path, report: Report) -> None:
    kept = _json(last_run) if last_run.is_file() else {}
    kept[_key(file)] = {"mean": report.mean, "latency": report.latency}
    last_run.write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2))


def _json(file: Path) -> Any:
    try:
        return orjson.loads(file.read_bytes())
    except (OSError, ValueError) as exc:
        raise Invalid(f"{file} cannot be read: {exc}") from exc


if __name__ == "__main__":
    sys.exit(main())
