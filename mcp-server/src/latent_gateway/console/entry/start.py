"""The first steps on one page: create a container, add files, search, connect an agent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Form, Query, Request, Response

from latent_core.db import containers
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.manifest.templates import KINDS, template
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.search.readable import Readable
from latent_core.wire.containers import ContainerSizes
from latent_gateway.api.containers import created
from latent_gateway.auth import access
from latent_gateway.console.agents.agents import may_create
from latent_gateway.console.agents.connecting import (
    OTHER,
    PLACEHOLDER,
    chosen_client,
    mcp_address,
    panels,
)
from latent_gateway.console.containers.new_container import TITLES
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn, session_of
from latent_gateway.console.frame.live import LiveFragment, live
from latent_gateway.console.frame.rights import rights_of
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import done, draw, page
from latent_gateway.context import Gateway, RequestId, Shared

router = pages()

START: Final = "/console/start"
MAX_ID_CHARS: Final = 63
NOT_OF_AN_ID: Final = re.compile(r"[^a-z0-9]+")
DEFAULT_ID: Final = "my-container"
Chosen = Annotated[Text, Query(max_length=64)]


@dataclass(frozen=True, slots=True)
class FirstContainer:
    """What is typed in the first step."""

    name: str = ""
    kind: str = KINDS[0]
    error: str = ""


@router.get(START)
async def start_page(
    request: Request, shared: Shared, session: SignedIn, container: Chosen = ""
) -> Response:
    """All steps; those after the first need a container."""
    return await _page(request, shared, session, container)


@router.post(START)
async def create_first(
    request: Request,
    shared: Shared,
    session: SignedIn,
    request_id: RequestId,
    name: Annotated[str, Form(max_length=200)] = "",
    kind: Annotated[str, Form(max_length=40)] = KINDS[0],
) -> Response:
    """A container of a template; its id is made of its name."""
    given = FirstContainer(name.strip(), kind if kind in KINDS else KINDS[0])
    try:
        if not given.name:
            raise Invalid("Give the container a name.")
        manifest = template(given.kind).filled(
            {
                "id": id_of(given.name),
                "name": given.name,
                "acl": {"roles": {"owner": [session.principal.name]}},
            }
        )
        _, space = await created(manifest, shared, session.principal, request_id)
    except (Invalid, Conflict) as error:
        given = FirstContainer(given.name, given.kind, error.message)
        return await _page(request, shared, session, "", given, 422)
    shared.warmer.soon(space)
    return done(f"{START}?container={manifest.id}", f"'{given.name}' was created.")


@router.get(f"{START}/live")
async def start_live(
    request: Request, shared: Shared, session: SignedIn, container: Chosen
) -> Response:
    """What the container holds, after each change."""
    await _container(shared, session, container)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        found, sizes = await _container(shared, again, container)
        return LiveFragment(draw("entry/held.html", container=found, sizes=sizes), ended=False)

    return live(shared, session, look)


def id_of(name: str) -> str:
    """``My notes`` becomes ``my-notes``."""
    short = NOT_OF_AN_ID.sub("-", name.lower()).strip("-")[:MAX_ID_CHARS].rstrip("-")
    return short or DEFAULT_ID


async def _container(
    shared: Gateway, session: ConsoleSession, container_id: str
) -> tuple[Readable, ContainerSizes]:
    async with shared.stack.db.reading() as conn:
        found = await access.readable_one(conn, session.principal, container_id)
        sizes, _ = await containers.sizes(conn, found.id)
    return found, sizes


async def _page(
    request: Request,
    shared: Gateway,
    session: ConsoleSession,
    container_id: str,
    first: FirstContainer | None = None,
    status: int = 200,
) -> Response:
    access.require(session.principal, Scope.READ)
    container, sizes = None, None
    if container_id:
        try:
            container, sizes = await _container(shared, session, container_id)
        except NotFound:  # deleted meanwhile: begin again
            container_id = ""
    address = mcp_address(request, shared)
    allowed = may_create(session.principal)
    return page(
        "entry/start.html",
        session,
        status=status,
        container=container,
        sizes=sizes,
        rights=rights_of(session.principal, container) if container is not None else None,
        first=first or FirstContainer(),
        kinds=[(kind, TITLES[kind], template(kind).about) for kind in KINDS],
        may_found=Scope.CREATE in session.principal.scopes,
        may_create=allowed,
        panels=panels(address, PLACEHOLDER, container_id if allowed and container_id else None),
        chosen=chosen_client(""),
        other=OTHER,
        placeholder=PLACEHOLDER,
        max_bytes=shared.settings.max_upload_bytes,
    )
