"""``latent sources``"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from latent_cli.options import InContainer, Json, Yes, command_app
from latent_cli.output import amount, answers, emit, moment, safe, table
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_client.source_registry import SourceRegistry
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.source import prefix_of
from latent_core.wire.sources import ForgetSourceAnswer, ListedSource

app = command_app()


class SourcePlace(StrEnum):
    """Where the folder of a source is, seen from this computer."""

    HERE = "here"
    MISSING = "missing"
    """It was synced from this computer, and its folder does not exist now."""
    ELSEWHERE = "elsewhere"
    """Another computer syncs it, or another data directory of this one."""


class PlacedSource(ListedSource):
    """A line of ``latent sources list``."""

    uri_prefix: str
    place: SourcePlace


@app.callback()
def sources() -> None:
    """List the folders that are synced into a container, and forget one."""


@app.command("list")
def list_sources(container: InContainer, as_json: Json = False) -> None:
    """List the synced folders of a container: name, where the folder is, documents and last complete sync."""
    found = ask(lambda client: _placed(client, container))
    if as_json:
        emit({"sources": found})
        return
    columns = ("NAME", "URIS", "PLACE", "FOLDER", ">DOCUMENTS", "LAST SYNC")
    answers().print(table(columns, (_row(one) for one in found)))


@app.command()
def forget(
    container: InContainer,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name from `latent sources list`, or the id.")
    ],
    delete_documents: Annotated[
        bool, typer.Option("--delete-documents", help="Delete its documents too.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Forget a synced folder. Its documents stay searchable, unless --delete-documents.

    Nothing is changed in the folder itself. If it is synced again, it continues the documents that are the same.
    """
    if delete_documents and not yes:
        raise Invalid(
            f"this deletes all documents of '{name}' in '{container}'; add --yes to confirm"
        )
    answer = ask(lambda client: _forget(client, container, name, delete_documents))
    if as_json:
        emit(answer)
        return
    if answer.partial:
        raise Conflict(
            f"{amount(answer.deleted, 'document')} of '{name}' deleted, but others were added meanwhile, so it is not "
            "forgotten. Stop its sync and run the command again."
        )
    prefix = prefix_of(answer.source.root)
    if delete_documents:
        done = f"{amount(answer.deleted, 'document')} below {prefix} deleted"
    else:
        done = f"{amount(answer.documents, 'document')} below {prefix} stay searchable"
    answers().print(safe(f"{answer.source.root} is forgotten; {done}"))


async def _placed(client: AsyncClient, container: str) -> list[PlacedSource]:
    here = SourceRegistry(client.data_dir).here()
    return [
        PlacedSource(**one.model_dump(), uri_prefix=prefix_of(one.root), place=_place(one, here))
        for one in await client.sources(container)
    ]


def _place(source: ListedSource, here: Mapping[UUID, Path]) -> SourcePlace:
    folder = here.get(source.source_id)
    if folder is None:
        return SourcePlace.ELSEWHERE
    return SourcePlace.HERE if folder.is_dir() else SourcePlace.MISSING


async def _forget(
    client: AsyncClient, container: str, name: str, delete_documents: bool
) -> ForgetSourceAnswer:
    source = _named(container, name, await client.sources(container))
    answer = await client.forget_source(
        container, source.source_id, delete_documents=delete_documents
    )
    if not answer.partial:
        SourceRegistry(client.data_dir).remove(source.source_id)
    return answer


def _named(container: str, name: str, found: Sequence[ListedSource]) -> ListedSource:
    root = name.removeprefix("file:///").rstrip("/")
    for one in found:
        if root in {one.root, str(one.source_id)}:
            return one
    raise NotFound(
        f"'{container}' has no synced folder '{name}'; `latent sources list -c {container}` lists them"
    )


def _row(source: PlacedSource) -> tuple[object, ...]:
    is_elsewhere = source.place is SourcePlace.ELSEWHERE
    return (
        source.root,
        source.uri_prefix,
        source.place.value,
        f"{source.folder} on {source.host}" if is_elsewhere else source.folder,
        source.documents,
        moment(source.synced_at) or "never",
    )
