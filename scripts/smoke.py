"""Smoke test on a temporary stack: start, ingest, render, search, open pages, ingest again, doctor, stop.

    python -m scripts.smoke                                    embedded, as `latent up` runs
    python -m scripts.smoke --stack compose [--with small]     the compose stack, on a free port

If a check fails, it prints the failures and the end of the server's log. The exit code is then 1.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson
from PIL import Image

from latent_client import SyncClient
from latent_core.domain.errors import LatentError
from latent_core.domain.job import JobKind, JobState
from latent_core.domain.manifest.model import SearchMode
from latent_core.wire.search import Hit, SearchRequest
from tests.support import LIGHTHOUSE, MANIFESTS
from tests.support.harness.throwaway import throwaway

REPOSITORY = Path(__file__).resolve().parents[1]
MAKE_PDF = REPOSITORY / "scripts" / "make_sample_pdf.py"
CONTAINER = "samples"
COMMAND_SECONDS = 300.0
JOB_SECONDS = 120.0
SEARCHES = (
    ("LAMP_ROTATION_SECONDS", "rotation.md"),
    ("Why is the big lens made of separate rings of glass?", "lens.md"),
    ("what to do when mercury is spilled on the floor", "emergencies.md"),
)
TOP = 3
EMBEDDED = re.compile(r"^latent_embedded_texts_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


class SmokeInstallation(Protocol):
    """The stack to check: ``latent up`` or compose."""

    started_seconds: float

    @property
    def folder(self) -> Path: ...
    @property
    def url(self) -> str: ...
    @property
    def token(self) -> str: ...
    def latent(
        self, *arguments: str | Path, seconds: float
    ) -> subprocess.CompletedProcess[str]: ...
    def stop(self) -> int: ...
    def tail(self) -> str: ...


@dataclass
class Checks:
    """The checks so far. Prints each result at once."""

    failed: list[str] = field(default_factory=list)

    def that(self, passed: bool, what: str) -> None:
        print(f"  {'ok  ' if passed else 'FAIL'} {what}", flush=True)
        if not passed:
            self.failed.append(what)


def main() -> int:
    checks = Checks()
    begun = time.monotonic()
    try:
        with fresh(sys.argv[1:]) as installation:
            guarded(installation, checks)
    except LatentError as exc:
        checks.that(False, f"the stack starts: {exc.message}")
    seconds = time.monotonic() - begun
    verdict = f"{len(checks.failed)} checks failed" if checks.failed else "all checks passed"
    print(f"\n{verdict}, after {seconds:.1f} s")
    return 1 if checks.failed else 0


def fresh(given: Sequence[str]) -> AbstractContextManager[SmokeInstallation]:
    """The installation that the options select."""
    parser = argparse.ArgumentParser(description="The whole way, on a fresh stack")
    parser.add_argument("--stack", choices=("embedded", "compose"), default="embedded")
    parser.add_argument("--with", dest="overrides", nargs="*", default=[], metavar="NAME")
    options = parser.parse_args(given)
    if options.stack == "embedded":
        return throwaway(MANIFESTS)
    from scripts.compose_stack import composed

    return composed(options.overrides)


class StopRun(Exception):
    """The remaining checks cannot run."""


def guarded(installation: SmokeInstallation, checks: Checks) -> None:
    """Run all checks. If one fails, print the end of the server's log."""
    try:
        run(installation, checks)
    except (LatentError, OSError, subprocess.SubprocessError, StopRun) as exc:
        checks.that(False, f"{type(exc).__name__}: {exc}")
    if checks.failed:
        print(f"\nend of the server's log:\n{installation.tail()}")


def run(installation: SmokeInstallation, checks: Checks) -> None:
    print(f"latent runs at {installation.url} after {installation.started_seconds:.1f} s")
    folder = sample_folder(installation)
    with SyncClient(installation.url, installation.token) as client:
        ingest(installation, checks, folder)
        wait_for_pages(client, checks)
        for query, expected in SEARCHES:
            search(client, checks, query, expected)
        ingest_again(installation, client, checks, folder)
        sizes = client.describe(CONTAINER).sizes
    print(f"held: {sizes.documents} documents, {sizes.chunks} chunks, {sizes.pages} pages")
    done = installation.latent("doctor", seconds=COMMAND_SECONDS)
    checks.that(done.returncode == 0, f"doctor finds no difference{_why(done)}")
    begun = time.monotonic()
    code = installation.stop()
    checks.that(
        code == 0, f"the stack stops cleanly ({time.monotonic() - begun:.1f} s, code {code})"
    )


def sample_folder(installation: SmokeInstallation) -> Path:
    """The sample container's files: its Markdown and the PDF created from it."""
    folder = installation.folder / "lighthouse"
    shutil.copytree(LIGHTHOUSE, folder)
    subprocess.run([sys.executable, MAKE_PDF, folder, folder / "handbook.pdf"], check=True)
    return folder


def ingest(installation: SmokeInstallation, checks: Checks, folder: Path) -> None:
    begun = time.monotonic()
    report = ingested(installation, folder)
    seconds = time.monotonic() - begun
    jobs = report["jobs"]
    files = len(list(folder.iterdir()))
    print(f"ingested {len(jobs)} files in {seconds:.1f} s")
    states = {job["state"] for job in jobs}
    checks.that(len(jobs) == files and states == {"done"}, f"all {files} files are visible")


def ingested(installation: SmokeInstallation, folder: Path) -> dict[str, Any]:
    """The report of `latent ingest FOLDER --wait`."""
    done = installation.latent(
        "ingest", folder, "-c", CONTAINER, "--wait", "--json", seconds=COMMAND_SECONDS
    )
    if done.returncode != 0:
        raise StopRun(f"latent ingest ended with {done.returncode}{_why(done)}")
    report: dict[str, Any] = orjson.loads(done.stdout)
    return report


def wait_for_pages(client: SyncClient, checks: Checks) -> None:
    begun = time.monotonic()
    renders = [j.job_id for j in client.jobs(container_id=CONTAINER) if j.kind is JobKind.RENDER]
    ended = client.wait(renders, timeout_seconds=JOB_SECONDS)
    good = bool(ended) and all(job.state is JobState.DONE for job in ended)
    seconds = time.monotonic() - begun
    checks.that(
        good, f"{len(ended)} documents are rendered to page images (waited {seconds:.1f} s)"
    )


def search(client: SyncClient, checks: Checks, query: str, expected: str) -> None:
    request = SearchRequest(
        containers=[CONTAINER], query=query, top_k=10, mode=SearchMode.HYBRID, diagnostics=True
    )
    begun = time.monotonic()
    answer = client.search(request)
    milliseconds = (time.monotonic() - begun) * 1000
    print(f"search '{query}': {len(answer.hits)} hits in {milliseconds:.0f} ms")
    best = [hit.source_path.rpartition("/")[2] for hit in answer.hits[:TOP]]
    checks.that(expected in best, f"{expected} is among the first {TOP}: {', '.join(best)}")
    found = answer.diagnostics
    scores = {name: len(entries) for name, entries in found.stage_scores.items()} if found else {}
    both = scores.get("bm25", 0) > 0 and scores.get("vector", 0) > 0
    checks.that(both and not answer.partial, f"diagnostics show both channels: {scores}")
    opened = [opens(client, hit) for hit in answer.hits]
    checks.that(bool(opened) and all(opened), f"{sum(opened)} of {len(opened)} page images open")


def opens(client: SyncClient, hit: Hit) -> bool:
    """Whether the page of the hit is a valid WebP image."""
    if hit.page_uri is None:
        return False
    blob = client.fetch(hit.page_uri)
    with Image.open(io.BytesIO(blob.content)) as image:
        image.load()
        return blob.mime == "image/webp" and image.format == "WEBP" and min(image.size) > 100


def ingest_again(
    installation: SmokeInstallation, client: SyncClient, checks: Checks, folder: Path
) -> None:
    before = embedded(client)
    report = ingested(installation, folder)
    unchanged = report["folders"][0]["unchanged"]
    quiet = not report["jobs"] and unchanged == len(list(folder.iterdir()))
    checks.that(quiet, f"a second run finds {unchanged} files unchanged and queues no job")
    with_uri = ("--uri", "file:///lighthouse/lens.md")
    done = installation.latent(
        "ingest", folder / "lens.md", "-c", CONTAINER, *with_uri, "--wait", seconds=COMMAND_SECONDS
    )
    same = done.returncode == 0 and embedded(client) == before
    checks.that(same, f"sending a file again embeds nothing ({before:.0f} texts embedded so far)")


def embedded(client: SyncClient) -> float:
    """Number of texts sent to the embedder since the start, from the server's metrics."""
    return sum(float(value) for value in EMBEDDED.findall(client.metrics()))


def _why(done: subprocess.CompletedProcess[str]) -> str:
    output = (done.stderr or done.stdout).strip()
    return f": {output}" if done.returncode and output else ""


if __name__ == "__main__":
    sys.exit(main())
