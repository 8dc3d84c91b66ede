"""The reference of the HTTP API for signed-in people: the served schema, and a form to try each operation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, cast

from fastapi import Query, Request, Response

from latent_core.domain.errors import NotFound
from latent_core.domain.text import Text
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import page, wants_part
from latent_gateway.console.reference.operations import Operation, read
from latent_gateway.openapi import PATH

router = pages()


@dataclass(frozen=True, slots=True)
class OperationGroup:
    """The operations of one resource."""

    name: str
    operations: tuple[Operation, ...]


@router.get("/console/api")
async def operation_list(
    request: Request, session: SignedIn, q: Annotated[Text, Query(max_length=200)] = ""
) -> Response:
    """All operations, or those whose method, path or summary contains every word of ``q``."""
    known = await _known(request)
    words = q.lower().split()
    found = [one for one in known.values() if all(word in _text(one) for word in words)]
    return page(
        "reference/list.html" if wants_part(request) else "reference/reference.html",
        session,
        groups=_grouped(found),
        q=q,
        total=len(known),
        schema=PATH,
    )


@router.get("/console/api/{operation_id}")
async def operation_page(operation_id: str, request: Request, session: SignedIn) -> Response:
    operation = (await _known(request)).get(operation_id)
    if operation is None:
        raise NotFound(f"the API has no operation '{operation_id[:120]}'")
    base = request.app.state.gateway.settings.public_url or str(request.base_url)
    return page("reference/operation.html", session, operation=operation, base=base.rstrip("/"))


async def _known(request: Request) -> dict[str, Operation]:
    """The schema takes a second to build, so both are done once, in a thread."""
    kept = getattr(request.app.state, "api_operations", None)
    if kept is None:
        kept = await asyncio.to_thread(lambda: read(request.app.openapi()))
        request.app.state.api_operations = kept
    return cast(dict[str, Operation], kept)


def _text(operation: Operation) -> str:
    return f"{operation.method} {operation.path} {operation.summary} {operation.tag}".lower()


def _grouped(found: Sequence[Operation]) -> list[OperationGroup]:
    ordered = sorted(found, key=lambda one: one.tag)
    return [OperationGroup(tag, tuple(group)) for tag, group in groupby(ordered, lambda o: o.tag)]
