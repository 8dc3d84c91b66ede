"""The search page: a form that is an address, and the answer below it."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import Request, Response

from latent_core.domain.errors import Issue, LatentError
from latent_core.domain.query import SearchResponse
from latent_core.search.readable import Readable
from latent_gateway.api.search import find, of_all
from latent_gateway.auth import access
from latent_gateway.console.console_session import ConsoleSession, SignedIn
from latent_gateway.console.routing import pages
from latent_gateway.console.search_form import CHOICES, TYPES, SearchForm
from latent_gateway.console.view import page, wants_part
from latent_gateway.context import Gateway, Shared

router = pages()


@router.get("/console/search")
async def search(request: Request, shared: Shared, session: SignedIn) -> Response:
    """By an address that holds the whole question: it can be kept, sent on and read without a script."""
    form = SearchForm.of(request.query_params)
    async with shared.stack.db.reading() as conn:
        readable = await access.all_searchable(conn, session.principal)
    answer, trouble, status = None, None, 200
    if not form.nothing and (form.containers or readable):
        try:
            answer = await _answer(form, shared, session, readable)
        except LatentError as error:
            trouble, status = error.issue(), error.status
    return page(
        "answer.html" if wants_part(request) else "search.html",
        session,
        status=status,
        form=form,
        containers=readable,
        modes=CHOICES,
        types=TYPES,
        trouble=trouble,
        **_shown(form, answer),
    )


async def _answer(
    form: SearchForm, shared: Gateway, session: ConsoleSession, readable: list[Readable]
) -> SearchResponse:
    body = form.request([c.id for c in readable])
    answer = await find(body, shared, session.principal, session.request_id, session.links)
    return answer if form.containers else of_all(answer, len(readable))


def _shown(form: SearchForm, answer: SearchResponse | None) -> dict[str, object]:
    """What the template is given of an answer."""
    notes: list[Issue] = answer.issues if answer is not None else []
    following = None
    if answer is not None and answer.next_cursor is not None:
        following = f"/console/search?{urlencode(form.parameters(cursor=answer.next_cursor))}"
    # Embedding runs beside the other stages: counted with them it would count twice.
    spent = sum(ms for stage, ms in answer.timings.items() if stage != "embed") if answer else 0.0
    return {"answer": answer, "notes": notes, "following": following, "milliseconds": spent}
