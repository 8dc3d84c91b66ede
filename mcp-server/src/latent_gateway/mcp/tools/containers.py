"""``containers_list`` and ``containers_describe``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import Field

from latent_core.db.connection import Connection
from latent_core.db.documents.contents import MAX_META_KEYS, ContainerContents, contents
from latent_core.domain import cursors
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import Forbidden, Invalid, NotFound
from latent_core.domain.filters.model import Column
from latent_core.domain.manifest.model import OFFERED_MODES, Manifest, SearchMode, reads_images
from latent_core.domain.text import Text
from latent_core.search.readable import Readable
from latent_core.wire.containers import DescribedContainer
from latent_core.wire.search import Detail
from latent_gateway.api.containers import description
from latent_gateway.auth import access
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.compact import cut
from latent_gateway.mcp.results import DEFAULT_CHARS, ToolResult, size
from latent_gateway.mcp.tools.port import (
    UNTRUSTED,
    Arguments,
    Cursor,
    MaxChars,
    Tool,
    UntrustedContent,
)

ENVELOPE_BYTES: Final = 300
MAX_WORDS_BYTES: Final = 120
"""Of a title or a meta key in a description."""

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


class ContainerWords(UntrustedContent):
    """Of the newest documents."""

    titles: list[str] = []
    meta_keys: list[str] = []
    """``filters`` accepts them as ``meta.<key>``."""


class ToolContainerDescription(ToolResult):
    container_id: str
    name: str
    theme: str = ""
    state: str
    sizes: dict[str, int]
    source_types: dict[str, int] = {}
    """Numbers of documents."""
    oldest: str | None = None
    """Of its documents: when the source was modified, else first fetched."""
    newest: str | None = None
    last_ingest_at: str | None = None
    modes: list[str]
    """Those that ``containers_search`` can use here."""
    filters: list[str]
    """Fields that its ``filters`` accept here."""
    notice: str
    untrusted_content: ContainerWords
    embedder: dict[str, Any] = {}
    manifest: dict[str, Any] = {}
    truncated: bool = False
    """Something was omitted: use a larger max_chars, or detail full."""


async def describe(call: ToolCall, arguments: DescribeArguments) -> ToolContainerDescription:
    return await described(call, arguments.container_id, arguments.detail, arguments.max_chars)


async def described(
    call: ToolCall, container_id: str, detail: Detail, max_chars: int
) -> ToolContainerDescription:
    """The container within ``max_chars``; with its manifest if ``detail`` is full."""
    found = await description(call.shared, call.caller, container_id)
    async with call.shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, call.caller, container_id)
        stored = await contents(conn, container_id)
        manifest = {} if detail == "brief" else await _manifest(conn, call, found)
    answer = ToolContainerDescription(
        container_id=container.id,
        name=container.manifest.name[:200],
        theme=container.manifest.theme[:200],
        state=found.state.value,
        sizes=found.sizes.model_dump(),
        source_types=stored.source_types,
        oldest=_day(stored.oldest),
        newest=_day(stored.newest),
        last_ingest_at=found.last_ingest_at.isoformat() if found.last_ingest_at else None,
        modes=_modes(call, container, found, stored),
        filters=_filters(container.manifest, found, stored),
        notice=UNTRUSTED,
        untrusted_content=ContainerWords(
            titles=[cut(title, MAX_WORDS_BYTES) for title in stored.titles],
            meta_keys=[key for key in stored.meta_keys if size(key) <= MAX_WORDS_BYTES],
        ),
        embedder=_set_values(found.embedder) if detail == "full" else {},
        manifest=manifest,
    )
    return _fitted(answer, max_chars)


async def _manifest(conn: Connection, call: ToolCall, found: DescribedContainer) -> dict[str, Any]:
    """Without the roles, unless the caller may change them."""
    manifest: dict[str, Any] = _set_values(found.manifest)
    try:
        await access.owned(conn, call.caller, manifest["id"])
    except (Forbidden, NotFound):
        manifest.pop("acl", None)
    return manifest


def _modes(
    call: ToolCall, container: Readable, found: DescribedContainer, stored: ContainerContents
) -> list[str]:
    """The modes whose services and contents are there."""
    stack, embedder = call.shared.stack, container.space.embedder
    missing = set()
    if stack.embedders.lacking(embedder, container.space.version) is not None:
        missing.add(SearchMode.SEMANTIC)
    if not stack.rerankers.offered(container.manifest.retrieval.rerank.provider):
        missing.add(SearchMode.RERANK)
    pictures = found.sizes.pages or SourceType.IMAGE in stored.source_types
    if not pictures and not reads_images(embedder, container.space.version):
        missing.add(SearchMode.CROSSMODAL)
    return [mode.value for mode in OFFERED_MODES if mode not in missing]


def _filters(manifest: Manifest, found: DescribedContainer, stored: ContainerContents) -> list[str]:
    """The columns that chunks here have, and the declared meta fields."""
    missing = set() if found.sizes.pages else {Column.PAGE}
    if not {SourceType.YAML, SourceType.JSON} & set(stored.source_types):
        missing.add(Column.KEY_PATH)
    declared = [f"meta.{name}" for name in manifest.metadata.custom_schema]
    return [*(column for column in Column if column not in missing), *declared[:MAX_META_KEYS]]


def _day(moment: datetime | None) -> str | None:
    return moment.date().isoformat() if moment else None


def _fitted(answer: ToolContainerDescription, max_chars: int) -> ToolContainerDescription:
    """Without the largest parts of the manifest, then without titles and keys, as far as needed."""
    manifest = answer.manifest
    while manifest and size(answer.compact()) > max_chars:
        largest = max(manifest, key=lambda key: size(manifest[key]))
        manifest = {key: value for key, value in manifest.items() if key != largest}
        answer = answer.model_copy(update={"manifest": manifest, "truncated": True})
    words = answer.untrusted_content
    while (words.titles or words.meta_keys) and size(answer.compact()) > max_chars:
        words = ContainerWords(titles=words.titles[:-1], meta_keys=words.meta_keys[:-5])
        answer = answer.model_copy(update={"untrusted_content": words, "truncated": True})
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
