"""Console output of ``latent ingest``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from rich.console import Console

from latent_cli.ingestion import IngestReport
from latent_cli.jobs_output import named, show_failed
from latent_cli.output import amount, safe
from latent_cli.unread_output import unread_notes
from latent_client import FolderReport
from latent_core.domain.job import JobState


def show_report(console: Console, report: IngestReport) -> None:
    for folder in report.folders:
        for skipped in folder.skipped:
            console.print(safe(f"skipped: {skipped.path}: {skipped.reason}"))
        for note in unread_notes(folder.unread, folder.checkouts):
            console.print(safe(f"note: {note}"))
        if folder.notice:
            console.print(safe(f"note: {folder.notice}"))
        console.print(safe(f"{folder.root}: {', '.join(_summary_parts(folder))}"))
    if report.waited:
        show_failed(console, report.jobs)
        for line in by_type(report):
            console.print(safe(line))
    elif report.job_ids:
        console.print(f"queued: {named(report.job_ids)}; `latent jobs list` shows their progress")


def _summary_parts(folder: FolderReport) -> Iterator[str]:
    yield amount(folder.files, "file")
    yield f"{len(folder.added)} sent"
    under_way = f" ({len(folder.open_jobs)} in progress)" if folder.open_jobs else ""
    yield f"{folder.unchanged} unchanged{under_way}"
    if folder.deleted:
        yield f"{len(folder.deleted)} deleted (their files vanished)"
    if folder.kept:
        yield f"nothing deleted because {folder.kept}"
    if folder.skipped:
        yield f"{len(folder.skipped)} skipped"
    if folder.ignored:
        yield f"{folder.ignored} ignored by the defaults, .gitignore or .latentignore (--json names them)"


def by_type(report: IngestReport) -> list[str]:
    """One line per source type with the number of documents per outcome."""
    counted: dict[str, Counter[str]] = {}
    for job in report.jobs:
        # The type that the parser detected, else the ending of the file name.
        known = report.source_types.get(job.doc_id) if job.doc_id else None
        kind = known or PurePosixPath(job.source_uri or "").suffix.lstrip(".").lower() or "other"
        counted.setdefault(kind, Counter())[job.state.value] += 1
    order = [state.value for state in JobState]
    return [
        f"{kind}: " + ", ".join(f"{outcomes[state]} {state}" for state in order if outcomes[state])
        for kind, outcomes in sorted(counted.items())
    ]
