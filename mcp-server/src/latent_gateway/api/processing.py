"""``GET /v1/admin/pdf-status``: the progress of PDFs; ``POST /v1/admin/process-selected``: process some of them to
the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Final, TypeVar
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from latent_core.db import audit
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.documents import documents, pdf_status
from latent_core.domain import cursors
from latent_core.domain.errors import Forbidden, Invalid, NotFound, Unauthorized
from latent_core.domain.pdf_status import (
    Action,
    PdfState,
    PdfStatus,
    SelectedDocument,
)
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.ingest.processing import process
from latent_core.wire.base import Envelope
from latent_core.wire.pages import PdfStatusPage, ProcessAnswer, ProcessBody
from latent_gateway.api.sse import (
    KEEP_ALIVE,
    LONGEST_STREAM_SECONDS,
    CountedStream,
    Rhythm,
    described,
    written,
)
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Caller, Gateway, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["admin"])

StatusT = TypeVar("StatusT", bound=BaseModel)

EVENTS: Final = described(
    "Server-sent events: `accepted` with the outcome for each document, `document` after each change, `end`"
)


@router.get("/v1/admin/pdf-status", response_model=PdfStatusPage)
async def status_of_pdfs(
    shared: Shared,
    caller: Caller,
    request_id: RequestId,
    container_id: Annotated[Text | None, Query(max_length=64)] = None,
    status: Annotated[list[PdfState] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=cursors.MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=128)] = None,
) -> Response:
    """PDFs of one container, or of all that the caller owns, ordered by id. The first page also has the totals."""
    after = after_id(cursor)
    access.require(caller, Scope.ADMIN)
    async with shared.stack.db.reading() as conn:
        ids = await _container_ids(conn, caller, container_id)
        totals = await pdf_status.totals(conn, ids) if after is None else None
        found = await pdf_status.listed(conn, ids, states=status, after=after, limit=limit + 1)
    more = cursors.encode(found[limit - 1].doc_id) if len(found) > limit else None
    answer = PdfStatusPage(totals=totals, documents=found[:limit], next_cursor=more)
    return json_answer(answer, request_id)


async def _container_ids(
    conn: Connection, caller: Principal, container_id: str | None
) -> list[str]:
    if container_id is None:
        return [container.id for container in await access.all_owned(conn, caller)]
    return [(await access.owned(conn, caller, container_id)).id]


def after_id(cursor: str | None) -> UUID | None:
    """The document after which a listing goes on; None for the first page."""
    if cursor is None:
        return None
    try:
        return UUID(cursors.decode(cursor))
    except ValueError as exc:
        raise Invalid(
            "invalid cursor: it does not come from this API. Start again without a cursor"
        ) from exc


@router.post(
    "/v1/admin/process-selected",
    response_model=ProcessAnswer,
    status_code=202,
    responses=EVENTS,
)
async def process_selected(
    body: ProcessBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Read and draw PDFs to their end: failed jobs run again, missing pages are drawn, finished work stays.

    Idempotent: an open job is joined.
    """
    doc_ids = list(dict.fromkeys(body.doc_ids))

    async def select(
        conn: Connection, container: Container, chosen: Sequence[UUID]
    ) -> list[SelectedDocument]:
        return await process(conn, container.id, chosen, principal=caller.name)

    selected = await begun(
        shared,
        caller,
        body.container_id,
        doc_ids,
        request_id,
        action="document.process",
        select=select,
    )
    answer = ProcessAnswer(
        container_id=body.container_id,
        queued=sum(one.job_id is not None for one in selected),
        documents=selected,
    )
    if not body.stream:
        return json_answer(answer, request_id, status=202)
    shared.streams.take(caller)
    answer.request_id = request_id
    return CountedStream(_followed(shared, caller, answer), shared.streams, caller)


Select = Callable[[Connection, Container, Sequence[UUID]], Awaitable[list[SelectedDocument]]]
"""Enqueues the jobs of documents, in the caller's transaction."""


async def begun(
    shared: Gateway,
    caller: Principal,
    container_id: str,
    doc_ids: Sequence[UUID],
    request_id: str,
    *,
    action: str,
    select: Select,
    check: Callable[[Container], None] = lambda _: None,
) -> list[SelectedDocument]:
    """The outcome for each of the documents, all of the container. ``action``: in the audit trail. ``check`` raises if
    the container does not permit it."""
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id, scope=Scope.ADMIN)
        check(container)
        await shared.quotas.check_queue(conn, caller)
        await shared.stack.capacity.check(conn)
        await access.held(conn, container)
        await check_own(conn, container.id, doc_ids)
        selected = await select(conn, container, doc_ids)
        queued = sum(one.action is Action.QUEUED for one in selected)
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action=action,
            container_id=container.id,
            object_=f"{queued} of {len(doc_ids)}",
            request_id=request_id,
        )
    shared.stack.wake()
    return selected


async def check_own(conn: Connection, container_id: str, doc_ids: Sequence[UUID]) -> None:
    """``NotFound`` for a document that the container does not have."""
    own = await documents.of_container(conn, container_id, doc_ids)
    for doc_id in doc_ids:
        if doc_id not in own:
            raise NotFound(
                f"document '{doc_id}' does not exist, or you may not read it", doc_id=str(doc_id)
            )


async def _followed(
    shared: Gateway, caller: Principal, accepted: ProcessAnswer
) -> AsyncIterator[bytes]:
    ids = [one.doc_id for one in accepted.documents if one.action is not Action.REFUSED]

    async def look(conn: Connection, container: Container) -> Mapping[UUID, PdfStatus]:
        return await pdf_status.of_documents(conn, container.id, ids)

    async for event in followed(shared, caller, accepted, accepted.container_id, look, _goes_on):
        yield event


async def followed(
    shared: Gateway,
    caller: Principal,
    accepted: Envelope,
    container_id: str,
    look: Callable[[Connection, Container], Awaitable[Mapping[UUID, StatusT]]],
    goes_on: Callable[[StatusT], bool],
) -> AsyncIterator[bytes]:
    """The status of each document whenever it changes, until no job works on any of them.

    Also ends when the caller may no longer see them: permissions are checked again on every read.
    """
    yield written("accepted", accepted.model_dump(mode="json"))
    now = asyncio.get_running_loop().time
    until, rhythm = now() + LONGEST_STREAM_SECONDS, Rhythm(now())
    shown: Mapping[UUID, StatusT] = {}
    while now() < until and not shared.stack.closing.is_set():
        try:
            caller = await shared.tokens.renewed(caller)
            async with shared.stack.db.transaction() as conn:
                container = await access.owned(conn, caller, container_id)
                seen = await look(conn, container)
        except (Unauthorized, Forbidden, NotFound):
            return
        fresh = [one for doc_id, one in seen.items() if shown.get(doc_id) != one]
        for one in fresh:
            yield written("document", one.model_dump(mode="json"))
        if not any(map(goes_on, seen.values())):
            yield written("end", {"documents": len(seen)})
            return
        if rhythm.looked(now(), changed=bool(fresh)):
            yield KEEP_ALIVE
        shown = seen
        with suppress(TimeoutError):
            async with asyncio.timeout(rhythm.pause):
                await shared.stack.closing.wait()


def _goes_on(status: PdfStatus) -> bool:
    """Whether a job works on it or will."""
    if status.status is PdfState.PARSED:
        return status.job_id is not None
    return status.status is PdfState.PENDING
