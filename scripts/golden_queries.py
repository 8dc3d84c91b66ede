"""Measure the retrieval quality of a container with golden queries and check its gates.

    python -m scripts.golden_queries                          the sample container, on a fresh stack
    python -m scripts.golden_queries --container ID --url URL another container on its gateway
    python -m scripts.golden_queries --stack compose          the sample container, on the compose stack

On a fresh stack it also asks samples/nextjs-auth for exact terms, with their lines and pages (scripts.exact_answers).
Reads manifests/<id>/eval.json, manifests/<id>.eval.json and golden_queries.json, whichever exist.
Exit code 1 if a gate fails or no golden query exists.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from latent_cli.eval_output import show, verdicts
from latent_cli.session import token_of
from latent_client import SyncClient
from latent_core.domain.errors import Invalid, LatentError
from latent_core.domain.golden import GoldenSet
from latent_core.eval.datasets import read_golden
from latent_core.settings import load_settings
from latent_core.wire.evaluation import EvalReport, EvalRequest
from scripts import exact_answers
from tests.support import LIGHTHOUSE, MANIFESTS
from tests.support.harness.throwaway import TemporaryInstallation, throwaway

if TYPE_CHECKING:
    from scripts.compose_stack import ComposeStack

REPOSITORY = Path(__file__).resolve().parents[1]
MAKE_PDF = REPOSITORY / "scripts" / "make_sample_pdf.py"
SAMPLES = "samples"
EVAL_SECONDS = 600.0


def main() -> int:
    options = arguments()
    console = Console(highlight=False, width=140)
    try:
        files = golden_files(options.manifests, options.container)
        sets = [(file, read_golden(file)) for file in files]
        with gateway(options) as client:
            passed = [judged(client, options, console, file, golden) for file, golden in sets]
            if not options.url:
                with tempfile.TemporaryDirectory() as folder:
                    passed.append(
                        exact_answers.passed(
                            client, Path(folder) / exact_answers.CONTAINER, console
                        )
                    )
    except LatentError as exc:
        print(f"golden queries: {exc.message}", file=sys.stderr)
        return 1
    return 0 if all(passed) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Retrieval quality of a container against its gates"
    )
    parser.add_argument("--container", default=SAMPLES)
    parser.add_argument("--url", help="running gateway; default: a temporary one with the samples")
    parser.add_argument("--stack", choices=("embedded", "compose"), default="embedded")
    parser.add_argument("--with", dest="overrides", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--manifests", type=Path, default=MANIFESTS)
    parser.add_argument(
        "--keep",
        action="store_true",
        help="save this run for comparison with the next one, if it passes",
    )
    return parser.parse_args()


def golden_files(manifests: Path, container: str) -> list[Path]:
    """The golden query files of a container. Raises ``Invalid`` if there is none."""
    candidates = (
        manifests / container / "eval.json",
        manifests / f"{container}.eval.json",
        Path("golden_queries.json"),
    )
    found = [file for file in candidates if file.is_file()]
    if not found:
        raise Invalid(f"no golden queries found; create {candidates[0]}")
    return found


@contextmanager
def gateway(options: argparse.Namespace) -> Iterator[SyncClient]:
    """A client of the given gateway, or of a temporary one with the sample container."""
    if options.url:
        with SyncClient(options.url, token_of(load_settings())) as client:
            yield client
        return
    if options.container != SAMPLES:
        raise Invalid(
            f"a fresh stack holds '{SAMPLES}' only: name the gateway of '{options.container}' by --url"
        )
    with (
        fresh(options) as installation,
        # The folder is gone afterwards: nothing to note in the user's data directory.
        SyncClient(
            installation.url, installation.token, data_dir=installation.folder / "client"
        ) as client,
    ):
        folder = installation.folder / "lighthouse"
        shutil.copytree(LIGHTHOUSE, folder)
        subprocess.run([sys.executable, MAKE_PDF, folder, folder / "handbook.pdf"], check=True)
        client.wait(client.sync_folder(SAMPLES, folder).job_ids, timeout_seconds=300)
        yield client


def fresh(
    options: argparse.Namespace,
) -> AbstractContextManager[TemporaryInstallation | ComposeStack]:
    if options.stack == "embedded":
        return throwaway(MANIFESTS)
    from scripts.compose_stack import composed

    return composed(options.overrides)


def judged(
    client: SyncClient, options: argparse.Namespace, console: Console, file: Path, golden: GoldenSet
) -> bool:
    """Evaluate the queries of one file and print the report. Returns whether all gates pass."""
    request = EvalRequest(golden=golden, compare=not options.keep)
    queued = client.evaluate(options.container, request)
    (job,) = client.wait([queued.job_id], timeout_seconds=EVAL_SECONDS)
    if job.result is None:
        raise Invalid(f"{file}: {job.cause.message if job.cause else job.state.value}")
    report = EvalReport.model_validate(job.result)
    console.print(f"\n{file}")
    for setup in report.setups:
        verdicts(setup, console)
    show(report, console)
    return report.passed


if __name__ == "__main__":
    sys.exit(main())
