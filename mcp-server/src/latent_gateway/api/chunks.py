"""Stored chunks: a filtered list, one whole chunk, and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final
from uuid import UUID

import orjson
from fastapi import APIRouter, Depends, Query, Response

from latent_core.db.documents import chunk_listing
from latent_core.db.documents.chunk_listing import (
    CHARACTER_STEPS,
    TOKEN_STEPS,
    ChunkListing,
    ChunkRow,
    ChunkSelection,
    Sizes,
)
from latent_core.domain import cursors
from latent_core.domain.chunk import BlockType, SourceType
from latent_core.domain.errors import Invalid, Issue, IssueCode, NotFound
from latent_core.domain.generated import GeneratedKind
from latent_core.domain.text import Text, unsound
from latent_core.wire.chunks import (
    ChunkAnswer,
    ChunkPage,
    ChunkSizes,
    ChunkView,
    Distribution,
    SizeClass,
    SizesAnswer,
)
from latent_core.wire.search import PlaceView
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer
from latent_gateway.query_parameters import PrefixedParameters

router = APIRouter(tags=["chunks"])

SECONDS: Final = 2.0
"""A list that takes longer ends early, with a cursor."""
MAX_FIELDS: Final = 20
MetaFields = Annotated[list[tuple[str, str]], Depends(PrefixedParameters("meta."))]


@router.get("/v1/containers/{container_id}/chunks", response_model=ChunkPage)
async def list_chunks(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    fields: MetaFields,
    doc_id: UUID | None = None,
    source_uri: Annotated[Text | None, Query(max_length=4096)] = None,
    source_type: SourceType | None = None,
    block_type: BlockType | None = None,
    heading_path: Annotated[Text | None, Query(min_length=1, max_length=4096)] = None,
    parent_section: Annotated[Text | None, Query(min_length=1, max_length=4096)] = None,
    table_id: Annotated[Text | None, Query(min_length=1, max_length=256)] = None,
    page: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    duplicates: bool | None = None,
    generated: bool | None = None,
    contains: Annotated[str | None, Query(min_length=1, max_length=1024)] = None,
    meta: Annotated[str | None, Query(max_length=4096)] = None,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 50,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """Visible chunks in storage order, with raw text, embedded text, place and lineage.

    ``source_uri`` is a prefix. ``heading_path`` is the whole path, such as ``Guide > Install``. ``meta`` is a JSON object that the chunk's meta must contain;
    ``meta.<field>=<value>`` compares one field.
    """
    selection = ChunkSelection(
        doc_id=doc_id,
        uri_prefix=source_uri,
        source_type=None if source_type is None else source_type.value,
        block_type=None if block_type is None else block_type.value,
        heading_path=heading_path,
        parent_section=parent_section,
        table_id=table_id,
        page=page,
        duplicates=duplicates,
        generated=generated,
        contains=contains,
        meta=_meta(meta),
        fields=_fields(fields),
    )
    after = cursors.decode_int(cursor, -1)
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, caller, container_id)
        found = await chunk_listing.find(
            conn, container.id, selection, after=after, limit=limit, seconds=SECONDS
        )
    return json_answer(_page(found), request_id)


def _page(found: ChunkListing) -> ChunkPage:
    cursor = None if found.more_after is None else cursors.encode(found.more_after)
    chunks = [view(row) for row in found.rows]
    if found.in_time:
        return ChunkPage(chunks=chunks, next_cursor=cursor)
    summary = (
        f"the list stopped after {SECONDS:g} s and may be incomplete: continue with next_cursor"
    )
    issue = Issue(code=IssueCode.TIMEOUT, message=summary)
    return ChunkPage(chunks=chunks, next_cursor=cursor, partial=True, issues=[issue])


def _meta(given: str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    try:
        meta = orjson.loads(given)
    except orjson.JSONDecodeError as exc:
        raise Invalid(f"meta: is no JSON: {exc}") from exc
    if not isinstance(meta, dict):
        raise Invalid('meta: must be a JSON object, such as {"author": "Ada"}')
    wrong = unsound(meta)
    if wrong is not None:
        raise Invalid(f"meta: '{wrong[0]}' {wrong[1]}")
    return meta


def _fields(given: list[tuple[str, str]]) -> dict[str, str]:
    """The ``meta.<field>=<value>`` parameters of the query."""
    fields = dict(given)
    if len(given) > MAX_FIELDS or len(fields) < len(given):
        raise Invalid(f"meta.<field>: name each field once, and at most {MAX_FIELDS} of them")
    wrong = unsound(fields)
    if wrong is not None:
        raise Invalid(f"meta.{wrong[0]}: {wrong[1]}")
    return fields


@router.get("/v1/containers/{container_id}/chunks/stats", response_model=SizesAnswer)
async def sizes(
    container_id: str,
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    doc_id: UUID | None = None,
) -> Response:
    """Sizes of the visible chunks in tokens and characters, by source type."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, caller, container_id)
        found = await chunk_listing.sizes(conn, container.id, doc_id)
    total = next((_sizes(one) for one in found if one.source_type is None), None)
    kinds = {one.source_type: _sizes(one) for one in found if one.source_type is not None}
    return json_answer(SizesAnswer(total=total, by_source_type=kinds), request_id)


def _sizes(found: Sizes) -> ChunkSizes:
    return ChunkSizes(
        chunks=found.row["chunks"],
        duplicates=found.row["duplicates"],
        tokens=_distribution(found, "tokens", TOKEN_STEPS, found.tokens),
        characters=_distribution(found, "characters", CHARACTER_STEPS, found.characters),
    )


def _distribution(
    found: Sizes, measure: str, steps: Sequence[int], counts: Sequence[int]
) -> Distribution:
    bounds = zip((0, *steps), (*steps, None), counts, strict=True)
    return Distribution(
        min=found.row[f"{measure}_min"],
        p50=found.row[f"{measure}_p50"],
        p95=found.row[f"{measure}_p95"],
        max=found.row[f"{measure}_max"],
        histogram=[SizeClass(lower_bound=low, below=high, chunks=n) for low, high, n in bounds],
    )


@router.get("/v1/containers/{container_id}/chunks/{chunk_id}", response_model=ChunkAnswer)
async def show(
    container_id: str, chunk_id: UUID, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """One whole chunk."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, caller, container_id)
        row = await chunk_listing.one(conn, container.id, chunk_id)
    if row is None:
        raise NotFound(
            f"container '{container_id}' has no chunk '{chunk_id}'", chunk_id=str(chunk_id)
        )
    return json_answer(ChunkAnswer(chunk=view(row)), request_id)


def view(row: ChunkRow) -> ChunkView:
    return ChunkView(
        chunk_id=row.id,
        doc_id=row.doc_id,
        source_uri=row.uri,
        file_hash=row.sha256,
        chunk_no=row.chunk_no,
        position=row.position,
        modality=row.modality,
        source_type=row.source_type,
        block_type=row.block_type,
        text=row.text,
        embed_text=row.embed_text,
        place=PlaceView(
            page=row.page,
            page_end=row.page_end,
            line_start=row.line_start,
            line_end=row.line_end,
            heading_path=" > ".join(row.heading_path),
            key_path=row.key_path,
            table_id=row.table_id,
            row_group=row.row_group,
        ),
        parent_section=row.parent_section,
        key_path=row.key_path,
        table_id=row.table_id,
        row_group=row.row_group,
        offsets=(row.offset_start, row.offset_end),
        content_hash=row.content_hash,
        token_count=row.token_count,
        windows=row.windows,
        duplicate_of=row.duplicate_of,
        generated=None if row.generated is None else GeneratedKind(row.generated),
        provenance=row.provenance,
        meta=row.meta,
        indexed_at=row.created_at,
    )
