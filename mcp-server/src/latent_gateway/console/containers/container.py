"""The page of a container: its contents, a form to add files, its roles and its manifest."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query, Response

from latent_core.db import containers, sources
from latent_core.db.connection import Connection
from latent_core.db.documents import document_listing
from latent_core.db.documents.document_listing import DocumentFilter
from latent_core.domain.document_order import DocumentOrder, ListPosition, position
from latent_core.domain.errors import Conflict, Forbidden
from latent_core.domain.text import Text
from latent_gateway.auth import access
from latent_gateway.console.containers.overview import health, jobs_of
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.rights import rights_of
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import page
from latent_gateway.context import Shared

router = pages()

DOCUMENTS: Final = 50


@router.get("/console/containers/{container_id}")
async def container_page(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    prefix: Annotated[Text, Query(max_length=4096)] = "",
    cursor: Annotated[str, Query(max_length=128)] = "",
) -> Response:
    """Documents, ordered by id."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, session.principal, container_id)
        sizes, last = await containers.sizes(conn, container.id)
        found = await document_listing.listed(
            conn,
            container.id,
            DocumentFilter(uri_prefix=prefix or None),
            after=position(cursor or None, DocumentOrder.ID),
            limit=DOCUMENTS + 1,
        )
        state = health(await jobs_of(conn, [container.id]), container.id, sizes)
        closed = await why_closed(conn, session, container.id)
        # They show paths of computers: for writers only, as in the API.
        folders = [] if closed else await sources.with_documents(conn, container.id)
    more = None
    if len(found) > DOCUMENTS:
        more = ListPosition.of(found[DOCUMENTS - 1], DocumentOrder.ID).cursor()
    return page(
        "containers/container.html",
        session,
        container=container,
        rights=rights_of(session.principal, container),
        tab="documents",
        sizes=sizes,
        last=last,
        health=state,
        documents=found[:DOCUMENTS],
        following=more,
        prefix=prefix,
        closed=closed,
        folders=folders,
    )


async def why_closed(conn: Connection, session: ConsoleSession, container_id: str) -> str | None:
    """Why this user may not add to the container; None if they may."""
    try:
        await access.writable(conn, session.principal, container_id)
    except (Conflict, Forbidden) as error:
        return error.message
    return None
