"""The search page: a form that is an address, and the answer below it."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import Request, Response

from latent_core.domain.errors import Issue, LatentError
from latent_core.domain.query import SearchResponse
from latent_core.search.readable import Readable
from latent_gateway.api.search import find, of_all
from latent_gateway.auth import access
from latent_gateway.console.asked import CHOICES, TYPES, Asked
from latent_gateway.console.routing import pages
from latent_gateway.console.view import page, wants_part
from latent_gateway.console.visitor import Visiting, Visitor
from latent_gateway.context import Gateway, Shared

router = pages()


@router.get("/console/search")
async def search(request: Request, shared: Shared, visitor: Visiting) -> Response:
    """By an address that holds the whole question: it can be kept, sent on and read without a script."""
    asked = Asked.of(request.query_params)
    async with shared.stack.db.reading() as conn:
        readable = await access.all_searchable(conn, visitor.principal)
    answer, trouble, status = None, None, 200
    if not asked.nothing and (asked.containers or readable):
        try:
            answer = await _answer(asked, shared, visitor, readable)
        except LatentError as error:
            trouble, status = error.issue(), error.status
    return page(
        "answer.html" if wants_part(request) else "search.html",
        visitor,
        status=status,
        asked=asked,
        containers=readable,
        modes=CHOICES,
        types=TYPES,
        trouble=trouble,
        **_shown(asked, answer),
    )


async def _answer(
    asked: Asked, shared: Gateway, visitor: Visitor, readable: list[Readable]
) -> SearchResponse:
    body = asked.request([c.id for c in readable])
    answer = await find(body, shared, visitor.principal, visitor.request_id, visitor.links)
    return answer if asked.containers else of_all(answer, len(readable))


def _shown(asked: Asked, answer: SearchResponse | None) -> dict[str, object]:
    """What the template is given of an answer."""
    notes: list[Issue] = answer.issues if answer is not None else []
    following = None
    if answer is not None and answer.next_cursor is not None:
        following = f"/console/search?{urlencode(asked.parameters(cursor=answer.next_cursor))}"
    # Embedding runs beside the other stages: counted with them it would count twice.
    spent = sum(ms for stage, ms in answer.timings.items() if stage != "embed") if answer else 0.0
    return {"answer": answer, "notes": notes, "following": following, "milliseconds": spent}
