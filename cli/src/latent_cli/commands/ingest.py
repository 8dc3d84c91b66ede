"""``latent ingest``"""

from __future__ import annotations

import hashlib
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import typer

from latent_cli.exits import FOUND
from latent_cli.ingest_output import show_report
from latent_cli.ingestion import FolderSource, Ingestion, IngestReport, Source, plan
from latent_cli.jobs_output import WAIT_SECONDS, exit_for, interruptible
from latent_cli.options import InContainer, Json, command_app
from latent_cli.output import answers, emit, safe
from latent_cli.password_file import read_password
from latent_cli.progress import IngestBars
from latent_cli.session import ask
from latent_client import SyncConsent
from latent_client.sidecars import read_meta
from latent_core.domain.errors import Invalid
from latent_core.domain.text import unsound
from latent_core.settings import load_settings

app = command_app()

STDIN: Final = "-"


@app.command()
def ingest(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="Files, folders, http(s) addresses, or - for stdin."),
    ],
    container: InContainer,
    uri: Annotated[
        str | None,
        typer.Option("--uri", help="Source URI of a single file; default file:///<name>."),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option("--root", help="Root name of a folder; default: the folder's name."),
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option("--meta", metavar="KEY=VALUE", help="Meta of every document; repeatable."),
    ] = None,
    meta_file: Annotated[
        Path | None, typer.Option("--meta-file", help="YAML file with meta of every document.")
    ] = None,
    keep_vanished: Annotated[
        bool, typer.Option("--keep-vanished", help="Keep documents whose files are gone.")
    ] = False,
    allow_deletions: Annotated[
        bool,
        typer.Option("--allow-deletions", help="Delete documents of vanished files, however many."),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Continue the documents of the folder that was moved here."
        ),
    ] = False,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            help="File whose first line opens encrypted PDFs and Office files; used once, not kept.",
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Process unchanged files again too.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report the planned changes and their cost.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Sync a folder after each change until interrupted.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the jobs; exit 4 if one fails.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Maximum seconds to wait.")
    ] = WAIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Ingest files and folders into a container.

    A folder is synced to the documents below file:///<its name>/: new and changed files are sent, and documents
    of vanished files are deleted. A second folder of that name is synced to <name>~2. Deleting more than 20 documents
    that are more than 30 % of the folder's needs your consent. A .latentignore file in gitignore syntax excludes files. A sidecar
    a.md.meta.yaml holds meta of a.md.
    """
    if STDIN in paths:
        if len(paths) > 1 or watch or dry_run:
            raise Invalid(
                "- reads one document from stdin; give no other path, --watch or --dry-run"
            )
        with TemporaryDirectory() as folder:
            file = read_stdin(Path(folder))
            given_uri = uri or f"file:///{file.name}"
            ingest(
                [str(file)],
                container,
                given_uri,
                root,
                meta,
                meta_file,
                keep_vanished,
                allow_deletions,
                take_over,
                password_file,
                rebuild,
                dry_run,
                watch,
                wait,
                timeout,
                as_json,
            )
        return
    sources = plan(paths, uri=uri, root=root)
    given = _meta_of(meta or [], meta_file)
    consent = SyncConsent(take_over=take_over, allow_deletions=allow_deletions)
    password = None if password_file is None else read_password(password_file)
    if watch:
        if password is not None:
            raise Invalid("--password-file is for one read: run it without --watch first")
        other_way = rebuild or dry_run or wait
        _watch(container, sources, given, other_way, keep_vanished, consent, as_json)
        return
    if dry_run:
        _rehearse(container, sources, given, rebuild, consent, as_json, password)
        return
    with IngestBars() as bars:
        ingestion = Ingestion(
            container,
            bars,
            delete_vanished=not keep_vanished,
            meta=given,
            rebuild=rebuild,
            consent=attended(consent, bars, as_json=as_json),
            password=password,
        )
        with interruptible(ingestion.remark, bars):
            report: IngestReport = ask(
                lambda client: ingestion.run(client, sources, timeout if wait else None)
            )
    if as_json:
        emit(report)
    else:
        show_report(answers(), report)
    if any(folder.withheld for folder in report.folders):
        raise typer.Exit(FOUND)
    exit_for(report.jobs)


def attended(consent: SyncConsent, bars: IngestBars, *, as_json: bool) -> SyncConsent:
    """With questions, if a person is at the terminal."""
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return consent

    async def confirm(question: str) -> bool:
        bars.end()
        return confirmed(question)

    return replace(consent, confirm=confirm)


def confirmed(question: str) -> bool:
    """In this thread, and nothing else runs meanwhile: a thread that waits for input would outlive Ctrl-C, which the
    event loop only notes, and keep the process until Enter."""
    noted = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return typer.confirm(safe(question), default=False, err=True)
    finally:
        signal.signal(signal.SIGINT, noted)


def read_stdin(folder: Path) -> Path:
    """Standard input as a file below ``folder``, named by its content: the same input twice is one document."""
    content = sys.stdin.buffer.read()
    if not content.strip():
        raise Invalid("standard input is empty")
    file = folder / f"stdin-{hashlib.sha256(content).hexdigest()[:16]}.txt"
    file.write_bytes(content)
    return file


def _rehearse(
    container: str,
    sources: Sequence[Source],
    meta: dict[str, Any],
    rebuild: bool,
    consent: SyncConsent,
    as_json: bool,
    password: str | None,
) -> None:
    # Only a dry run loads the parsers and the embedder.
    from latent_cli.dry_run import DryRunner
    from latent_cli.dry_run_output import show_dry_run
    from latent_cli.figures import DryRun

    with IngestBars() as bars:
        rehearsal = DryRunner(container, load_settings(), bars, consent, password)
        report: DryRun = ask(lambda client: rehearsal.run(client, sources, meta, rebuild=rebuild))
    if as_json:
        emit(report)
    else:
        show_dry_run(answers(), report)


def _watch(
    container: str,
    sources: Sequence[Source],
    meta: dict[str, Any],
    other_way: bool,
    keep_vanished: bool,
    consent: SyncConsent,
    as_json: bool,
) -> None:
    from latent_cli.watch_output import WatchOutput
    from latent_client.folder_watch import WatchTarget

    if other_way:
        raise Invalid(
            "--watch cannot be combined with --rebuild, --dry-run or --wait; run them first"
        )
    match sources:
        case [FolderSource(folder, root)]:
            deletes = not keep_vanished
            watched = WatchTarget(container, folder, root, meta, deletes, consent)
        case _:
            raise Invalid("--watch syncs one folder; give exactly one folder")
    with IngestBars() as bars:
        watching = WatchOutput(answers(), bars, as_json=as_json)
        ask(lambda client: watching.run(client, watched), endless=True)


def _meta_of(pairs: Sequence[str], file: Path | None) -> dict[str, Any]:
    """``--meta key=value`` overrides ``--meta-file``. A repeated key becomes a list.

    Values are text; the server converts them by the container's schema. ``Invalid`` names the flag, or file and line.
    """
    meta = read_meta(file) if file else {}
    given: dict[str, list[str]] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise Invalid(f"--meta '{pair[:80]}' must be key=value, such as --meta city=Berlin")
        given.setdefault(key.strip(), []).append(value)
    meta |= {key: values[0] if len(values) == 1 else values for key, values in given.items()}
    wrong = unsound(meta)
    if wrong is not None:
        key, why = wrong
        raise Invalid(f"--meta {key}: {why}")
    return meta
