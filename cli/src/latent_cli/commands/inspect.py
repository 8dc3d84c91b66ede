"""``latent inspect``"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

import typer

from latent_cli.chunks_output import show_chunk, show_list, show_sizes
from latent_cli.commands.documents import identity
from latent_cli.options import InContainer, Json, command_app
from latent_cli.output import answers, emit, notes
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_core.domain.chunk import BlockType, SourceType
from latent_core.domain.errors import Invalid, NotFound
from latent_core.wire.chunks import ChunkView

app = command_app()


@app.command()
def inspect(
    container: InContainer,
    chunk: Annotated[
        UUID | None, typer.Option("--chunk", help="Show one whole chunk with its lineage.")
    ] = None,
    sizes: Annotated[bool, typer.Option("--sizes", help="Show the sizes of chunks.")] = False,
    document: Annotated[
        str | None,
        typer.Option("--document", "-d", help="Only this document: id, source URI or path."),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="Only sources whose URI or path has this prefix.")
    ] = None,
    source_type: Annotated[
        SourceType | None, typer.Option("--type", help="Only this source type.")
    ] = None,
    block_type: Annotated[
        BlockType | None, typer.Option("--block-type", help="Only this kind of block.")
    ] = None,
    heading_path: Annotated[
        str | None,
        typer.Option(
            "--heading-path", help="Only this section: its headings, as 'Guide > Install'."
        ),
    ] = None,
    parent_section: Annotated[
        str | None, typer.Option("--parent-section", help="Only sections directly below this one.")
    ] = None,
    table_id: Annotated[str | None, typer.Option("--table-id", help="Only this table.")] = None,
    page: Annotated[int | None, typer.Option("--page", min=1, help="Only this page.")] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option(
            "--meta", metavar="FIELD=VALUE", help="Only chunks with this meta value; repeatable."
        ),
    ] = None,
    contains: Annotated[
        str | None, typer.Option("--contains", help="Only chunks with this text; ignores case.")
    ] = None,
    duplicates: Annotated[
        bool | None,
        typer.Option("--duplicates/--originals", help="Only near-duplicates, or only originals."),
    ] = None,
    generated: Annotated[
        bool | None,
        typer.Option(
            "--generated/--not-generated",
            help="Only what a language model wrote about the documents, or only what they say themselves.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of chunks.")] = 50,
    as_json: Json = False,
) -> None:
    """Show stored chunks and their sizes."""
    selection: dict[str, Any] = {
        "source_uri": _prefix(source),
        "source_type": None if source_type is None else source_type.value,
        "block_type": None if block_type is None else block_type.value,
        "heading_path": heading_path,
        "parent_section": parent_section,
        "table_id": table_id,
        "page": page,
        "contains": contains,
        "duplicates": duplicates,
        "generated": generated,
        "meta": _fields(meta or []) or None,
    }
    _check_alone(selection, document, chunk, sizes=sizes)
    doc_id = None if document is None else _known(container, document)
    if sizes:
        found = ask(lambda client: client.chunk_sizes(container, doc_id=doc_id))
        emit(found) if as_json else show_sizes(answers(), found)
        return
    if chunk is not None:
        one = ask(lambda client: client.chunk(container, chunk))
        emit({"chunk": one}) if as_json else show_chunk(answers(), one)
        return

    async def some(client: AsyncClient) -> list[ChunkView]:
        listed: list[ChunkView] = []
        async for entry in client.chunks(container, doc_id=doc_id, **selection):
            listed.append(entry)
            if len(listed) == limit:
                break
        return listed

    chunks = ask(some)
    if as_json:
        emit({"chunks": chunks})
        return
    show_list(answers(), chunks)
    if len(chunks) == limit:
        notes().print(f"only the first {limit}; use --limit for more, --chunk ID for a whole chunk")


def _check_alone(
    selection: Mapping[str, Any], document: str | None, chunk: UUID | None, *, sizes: bool
) -> None:
    """``Invalid`` for options that --chunk or --sizes would ignore."""
    named = [name.replace("_", "-") for name, value in selection.items() if value is not None]
    if chunk is not None and (named or document is not None or sizes):
        raise Invalid("--chunk shows one chunk; it takes no other selection")
    if sizes and named:
        raise Invalid(f"--sizes takes --document only, not a selection by {', '.join(named)}")


def _known(container: str, document: str) -> UUID:
    """The id of a document that exists."""
    doc_id = identity(container, document)
    try:
        return ask(lambda client: client.document(container, doc_id)).doc_id
    except NotFound as exc:
        if "container_id" in exc.details:
            raise
        raise NotFound(
            f"container '{container}' has no document '{document}'; list them with "
            f"`latent documents list -c {container}`"
        ) from exc


def _prefix(source: str | None) -> str | None:
    return source if source is None or "://" in source else f"file:///{source}"


def _fields(given: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for pair in given:
        name, separator, value = pair.partition("=")
        if not name or not separator:
            raise Invalid(f"--meta '{pair}' must be FIELD=VALUE")
        fields[name] = value
    return fields
