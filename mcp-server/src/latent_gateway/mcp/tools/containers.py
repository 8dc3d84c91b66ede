"""``containers_list`` and ``containers_describe``."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from latent_core.domain import cursors
from latent_core.domain.errors import Invalid
from latent_core.domain.filters.model import Column
from latent_core.domain.manifest.model import OFFERED_MODES
from latent_core.domain.text import Text
from latent_core.search.readable import Readable
from latent_core.wire.containers import DescribedContainer
from latent_core.wire.search import Detail
from latent_gateway.api.containers import description
from latent_gateway.auth import access
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.results import DEFAULT_CHARS, ToolResult, size
from latent_gateway.mcp.tools.port import Arguments, Cursor, MaxChars, Tool

ENVELOPE_BYTES: Final = 300
OF_INTEREST: Final = ("retrieval", "metadata", "ingest")
"""Keys of a manifest that matter for searching, if the whole manifest does not fit."""

ContainerId = Annotated[Text, Field(max_length=64, description="Id of containers_list.")]


class ListArguments(Arguments):
    max_chars: MaxChars = DEFAULT_CHARS
    cursor: Cursor = None


class ListedContainer(ToolResult):
    id: str
    name: str
    theme: str = ""
    modalities: list[str]
    dims: int | None
    state: str


class ToolContainerList(ToolResult):
    containers: list[ListedContainer]
    next_cursor: str | None = None
    advice: str | None = None


async def list_(call: ToolCall, arguments: ListArguments) -> ToolContainerList:
    async with call.shared.stack.db.reading() as conn:
        readable = await access.all_readable(conn, call.caller)
    after = "" if arguments.cursor is None else _after(arguments.cursor)
    left = arguments.max_chars - ENVELOPE_BYTES
    shown: list[ListedContainer] = []
    for container in sorted(readable, key=lambda c: c.id):
        if container.id <= after:
            continue
        one = _listed(container)
        left -= size(one.compact()) + 1
        if left < 0 and shown:
            return ToolContainerList(containers=shown, next_cursor=cursors.encode(shown[-1].id))
        shown.append(one)
    advice = (
        None
        if shown or after
        else "there is no container yet: create one with `latent container create`"
    )
    return ToolContainerList(containers=shown, advice=advice)


def _after(cursor: str) -> str:
    after = cursors.decode(cursor)
    if not after or len(after) > 64:
        raise Invalid(
            "invalid cursor: it does not come from this API. Start again without a cursor"
        )
    return after


def _listed(container: Readable) -> ListedContainer:
    manifest = container.manifest
    return ListedContainer(
        id=container.id,
        name=manifest.name[:200],
        theme=manifest.theme[:200],
        modalities=[m.value for m in manifest.modalities],
        dims=container.space.dims,
        state=container.state.value,
    )


class DescribeArguments(Arguments):
    container_id: ContainerId
    detail: Annotated[Detail, Field(description="brief (default) or full: with its manifest.")] = (
        "brief"
    )
    max_chars: MaxChars = DEFAULT_CHARS


class ToolContainerDescription(ToolResult):
    container_id: str
    name: str
    theme: str = ""
    state: str
    sizes: dict[str, int]
    last_ingest_at: str | None = None
    embedder: dict[str, Any]
    modes: list[str]
    """Accepted by ``containers_search``."""
    filters: list[str]
    """Names that its ``filters`` accept besides meta fields."""
    manifest: dict[str, Any]
    truncated: bool = False
    """Parts of the manifest were omitted: use a larger max_chars, or detail full."""


async def describe(call: ToolCall, arguments: DescribeArguments) -> ToolContainerDescription:
    found = await description(call.shared, call.caller, arguments.container_id)
    return described(found, arguments.detail, arguments.max_chars)


def described(
    found: DescribedContainer, detail: Detail, max_chars: int
) -> ToolContainerDescription:
    manifest = _set_values(found.manifest)
    shown_manifest = (
        manifest if detail == "full" else {k: manifest[k] for k in OF_INTEREST if k in manifest}
    )
    answer = ToolContainerDescription(
        container_id=manifest["id"],
        name=manifest["name"][:200],
        theme=manifest["theme"][:200],
        state=found.state.value,
        sizes=found.sizes.model_dump(),
        last_ingest_at=found.last_ingest_at.isoformat() if found.last_ingest_at else None,
        embedder=found.embedder,
        modes=[mode.value for mode in OFFERED_MODES],
        filters=[*Column],
        manifest=shown_manifest,
    )
    while shown_manifest and size(answer.compact()) > max_chars:
        largest = max(shown_manifest, key=lambda key: size(shown_manifest[key]))
        shown_manifest = {key: value for key, value in shown_manifest.items() if key != largest}
        answer = answer.model_copy(update={"manifest": shown_manifest, "truncated": True})
    return answer


def _set_values(value: Any) -> Any:
    """Without the fields that are null: they are not set."""
    if isinstance(value, dict):
        return {key: _set_values(inner) for key, inner in value.items() if inner is not None}
    return [_set_values(inner) for inner in value] if isinstance(value, list) else value


LIST: Final = Tool(
    name="containers.list",
    title="List containers",
    description="List the containers (collections of the user's documents) with their ids. Start here.",
    scope=Scope.READ,
    arguments=ListArguments,
    answer=ToolContainerList,
    run=list_,
)
DESCRIBE: Final = Tool(
    name="containers.describe",
    title="Describe a container",
    description=(
        "What a container holds and how to search it: sizes, dates, titles, meta keys, filters, modes."
    ),
    scope=Scope.READ,
    arguments=DescribeArguments,
    answer=ToolContainerDescription,
    run=describe,
)
