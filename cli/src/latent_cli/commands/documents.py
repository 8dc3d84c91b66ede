"""``latent documents``"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from latent_cli.jobs_output import finish_jobs
from latent_cli.options import InContainer, Json, Wait, Yes, command_app
from latent_cli.output import amount, answers, brief, emit, moment, notes, safe, size, table
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_core.domain.chunk import SourceType
from latent_core.domain.document import DocumentState, DocumentView
from latent_core.domain.document_order import DocumentOrder
from latent_core.domain.errors import Invalid
from latent_core.domain.ids import document_id
from latent_core.wire.documents import DeletionAnswer, OriginalAnswer
from latent_core.wire.jobs import JobAccepted

app = command_app()


@app.callback()
def documents() -> None:
    """List, download, delete and restore documents of a container."""


@app.command("list")
def list_documents(
    container: InContainer,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", help="Only source URIs with this prefix: file:///<root>/"),
    ] = None,
    state: Annotated[
        DocumentState | None, typer.Option("--state", help="Only documents in this state.")
    ] = None,
    source_type: Annotated[
        list[SourceType] | None, typer.Option("--type", help="Only these source types; repeatable.")
    ] = None,
    order: Annotated[
        DocumentOrder, typer.Option("--sort", help="Order of the list.")
    ] = DocumentOrder.ID,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Maximum number of documents.")
    ] = 1000,
    as_json: Json = False,
) -> None:
    """List the documents of a container with state and sizes."""
    found = ask(
        lambda client: _some(
            client.documents(
                container,
                uri_prefix=prefix,
                state=state,
                source_types=source_type or (),
                order=order,
            ),
            limit,
        )
    )
    if as_json:
        emit({"documents": found})
        return
    columns = ("SOURCE", "TYPE", "STATE", ">CHUNKS", ">PAGES", ">SIZE", "FETCHED", "ID", "CAUSE")
    answers().print(table(columns, (_row(document) for document in found)))
    failed = sum(document.failure is not None for document in found)
    if failed:
        message = f"{amount(failed, 'document')} failed: --json shows what to do"
        notes().print(message)


@app.command()
def download(
    name: Annotated[str, typer.Argument(metavar="DOC", help="Id, source URI or listed path.")],
    container: Annotated[
        str | None,
        typer.Option("--container", "-c", help="The container; not needed with an id."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="File to write, replaced if it exists; default: its own name."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Download the original of a document: the file, the fetched page, or the text of a note."""
    doc_id = any_identity(container, name)
    link, file = ask(lambda client: _download(client, doc_id, to))
    if as_json:
        emit({"file": str(file), "original": link})
        return
    answers().print(safe(f"{file}: {size(link.bytes)}, {link.mime}"))
    answers().print(f"sha256 {link.sha256}")


@app.command()
def summary(
    container: InContainer,
    name: Annotated[str, typer.Argument(metavar="DOC", help="Id, source URI or listed path.")],
    to: Annotated[
        Path | None, typer.Option("--to", help="File or folder to write <id>.summary.md to.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the summary that a language model wrote of a document, with its front matter."""
    doc_id = identity(container, name)
    found = ask(lambda client: client.summary(container, doc_id))
    if as_json:
        emit({"summary": found})
    elif found.file is None:
        raise Invalid(f"the summary is {found.state}: {found.cause}")
    elif to is None:
        answers().print(safe(found.file, lines=True), end="", soft_wrap=True)
    else:
        file = to / found.filename if to.is_dir() else to
        file.write_text(found.file, encoding="utf-8")
        answers().print(safe(str(file)))


@app.command()
def delete(
    container: InContainer,
    names: Annotated[
        list[str], typer.Argument(metavar="DOCUMENT", help="Ids, source URIs or listed paths.")
    ],
    yes: Yes = False,
    now: Annotated[
        bool, typer.Option("--now", help="Delete for good, with a proof of deletion.")
    ] = False,
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Delete documents from a container.

    They become invisible at once; a job removes them from all stores. Without --now, their bytes are kept for 30
    days, in which `latent documents restore` brings them back. Corpora cannot be restored.
    """
    if not yes:
        raise Invalid(
            f"this deletes {amount(len(names), 'document')} of '{container}'; add --yes to confirm"
        )
    ids = [identity(container, name) for name in names]
    queued = ask(lambda client: _delete(client, container, ids, now=now))
    finish_jobs([job.job_id for job in queued], wait=wait, as_json=as_json)


@app.command()
def trash(container: InContainer, as_json: Json = False) -> None:
    """List deleted documents that can be restored, newest deletion first."""
    found = ask(lambda client: client.trash(container))
    if as_json:
        emit({"documents": found})
        return
    columns = ("SOURCE", "TITLE", "DELETED", "RESTORABLE UNTIL", "ID")
    rows = (
        (
            one.source_uri.removeprefix("file:///"),
            one.title,
            moment(one.deleted_at),
            moment(one.restorable_until),
            one.doc_id,
        )
        for one in found
    )
    answers().print(table(columns, rows))


@app.command()
def restore(
    container: InContainer,
    names: Annotated[
        list[str], typer.Argument(metavar="DOCUMENT", help="Ids, source URIs or listed paths.")
    ],
    wait: Wait = False,
    as_json: Json = False,
) -> None:
    """Restore deleted documents."""
    ids = [identity(container, name) for name in names]
    queued = ask(lambda client: _restore(client, container, ids))
    finish_jobs([job.job_id for job in queued], wait=wait, as_json=as_json)


def identity(container: str, name: str) -> UUID:
    """The id of a document given by id, source URI or path below ``file:///``."""
    try:
        return UUID(name)
    except ValueError:
        return document_id(container, name if "://" in name else f"file:///{name}")


def any_identity(container: str | None, name: str) -> UUID:
    """Like ``identity``; an id needs no container."""
    if container is not None:
        return identity(container, name)
    try:
        return UUID(name)
    except ValueError:
        raise Invalid(f"'{name}' is not an id: name its container with -c") from None


async def _download(
    client: AsyncClient, doc_id: UUID, to: Path | None
) -> tuple[OriginalAnswer, Path]:
    link = await client.original(doc_id)
    file = to or Path(_own_name(link))
    if to is None and await asyncio.to_thread(file.exists):
        raise Invalid(f"{file} exists: name the file to write with --to")
    await client.download_original(link, file)
    return link, file


def _own_name(link: OriginalAnswer) -> str:
    """The last part of its name, so that a document cannot choose a folder."""
    name = re.split(r"[/\\]", link.filename)[-1].replace("\0", "")
    return name if name.strip(". ") else str(link.doc_id)


async def _some(documents: AsyncIterator[DocumentView], limit: int) -> list[DocumentView]:
    found: list[DocumentView] = []
    async for document in documents:
        found.append(document)
        if len(found) == limit:
            break
    return found


async def _delete(
    client: AsyncClient, container: str, ids: Sequence[UUID], *, now: bool
) -> list[DeletionAnswer]:
    return [await client.delete_document(container, doc_id, now=now) for doc_id in ids]


async def _restore(client: AsyncClient, container: str, ids: Sequence[UUID]) -> list[JobAccepted]:
    return [await client.restore_document(container, doc_id) for doc_id in ids]


def _row(document: DocumentView) -> tuple[object, ...]:
    return (
        document.source_uri.removeprefix("file:///"),
        document.source_type,
        document.state.value,
        document.chunks,
        document.pages,
        size(document.bytes),
        moment(document.fetched_at),
        document.doc_id,
        brief(document.failure.cause) if document.failure else "",
    )
