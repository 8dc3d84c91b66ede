"""The search page: a form whose values are in the address, facets and hits below it.

A page has all in one. Scripts request the hits and the facets apart: hits come for every letter, and counting costs as
much as finding them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from latent_core.domain.errors import LatentError
from latent_core.domain.manifest.model import SearchMode
from latent_core.models.embedding.port import UnreachableAware
from latent_core.search.readable import Readable
from latent_core.wire.search import Hit, SearchResponse
from latent_gateway.api.search import find
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import HEADERS, page, wants_part
from latent_gateway.console.searching.citation import Citation, SearchCalls, calls, citation
from latent_gateway.console.searching.facets import counted_fields, groups
from latent_gateway.console.searching.form import CHOICES, PATH, SearchForm
from latent_gateway.console.searching.saved import saved_links
from latent_gateway.console.searching.why import WhyPicture, picture
from latent_gateway.context import Gateway, Shared

router = pages()

WITHOUT_EMBEDDING: Final = SearchMode.LEXICAL.value
UNTYPED: Final = frozenset({SearchMode.RERANK.value, SearchMode.CROSSMODAL.value})
"""Modes that take too long for every letter."""


@dataclass(frozen=True, slots=True)
class ShownHit:
    hit: Hit
    number: int
    address: str
    """Of its place in the document."""
    panel: str
    """Of the panel that shows it."""
    why: WhyPicture
    citation: Citation


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """What the template needs of an answer."""

    response: SearchResponse
    strong: Sequence[ShownHit]
    weak: Sequence[ShownHit]
    """Folded below the others."""
    following: str | None
    """Address of the next hits."""
    milliseconds: float
    calls: SearchCalls
    typed: str
    """What the search leaves out while the query is typed."""


@router.get(PATH)
async def search(request: Request, shared: Shared, session: SignedIn) -> Response:
    """Search with the address alone: it can be saved, shared and read without scripts."""
    form = SearchForm.of(request.query_params)
    async with shared.stack.db.reading() as conn:
        readable = await access.all_searchable(conn, session.principal)
    searched = _searched(form, readable)
    part = wants_part(request)
    answer, trouble, status = None, None, 200
    if not form.nothing and (form.containers or readable):
        facets = () if part else counted_fields(searched)
        try:
            answer = await _answer(form, searched, facets, request, shared, session)
        except LatentError as error:
            trouble, status = error.issue(), error.status
    return page(
        "searching/answer.html" if part else "searching/search.html",
        session,
        status=status,
        form=form,
        containers=readable,
        modes=CHOICES,
        groups=groups(form, readable, answer.response.facets if answer else {}),
        counted=answer is not None,
        trouble=trouble,
        answer=answer,
        search_query=urlencode(form.parameters()),
        saved=() if part else await saved_links(shared, session),
    )


@router.get(f"{PATH}/facets")
async def facets(request: Request, shared: Shared, session: SignedIn) -> Response:
    """The facets alone, for scripts; the whole page for people."""
    form = SearchForm.of(request.query_params)
    if not wants_part(request):
        return RedirectResponse(f"{PATH}?{urlencode(form.parameters())}", 303, HEADERS)
    async with shared.stack.db.reading() as conn:
        readable = await access.all_searchable(conn, session.principal)
    searched = _searched(form, readable)
    found: SearchResponse | None = None
    if not form.nothing and (form.containers or readable):
        mode, _ = _mode(form, searched, shared)
        body = form.request(facets=counted_fields(searched), mode=mode).model_copy(
            update={"top_k": 1, "cursor": None}
        )
        found = await find(body, shared, session.principal, session.request_id, session.links)
    return page(
        "searching/narrow.html",
        session,
        groups=groups(form, readable, found.facets if found else {}),
        counted=found is not None,
    )


def _searched(form: SearchForm, readable: Sequence[Readable]) -> list[Readable]:
    return [c for c in readable if not form.containers or c.id in form.containers]


async def _answer(
    form: SearchForm,
    searched: Sequence[Readable],
    facets: tuple[str, ...],
    request: Request,
    shared: Gateway,
    session: ConsoleSession,
) -> ShownAnswer:
    mode, typed = _mode(form, searched, shared)
    body = form.request(facets=facets, mode=mode)
    found = await find(body, shared, session.principal, session.request_id, session.links)
    base_url = (shared.settings.public_url or str(request.base_url)).rstrip("/")
    shown = _shown(form, found, searched, base_url)
    strong = [one for one in shown if not one.hit.weak]
    following = None
    if found.next_cursor is not None:
        following = f"{PATH}?{urlencode(form.parameters(cursor=found.next_cursor))}"
    return ShownAnswer(
        response=found,
        strong=strong,
        weak=[one for one in shown if one.hit.weak],
        following=following,
        # Embedding runs in parallel with the other stages, so it is not added to them.
        milliseconds=sum(ms for stage, ms in found.timings.items() if stage != "embed"),
        calls=calls(form.kept(), base_url),
        typed=typed,
    )


def _mode(form: SearchForm, searched: Sequence[Readable], shared: Gateway) -> tuple[str, str]:
    """The mode to search by, and what it leaves out. A model behind a network is not called for every letter: that would
    cost money, and the rate of other searches."""
    if not form.typing or form.mode == WITHOUT_EMBEDDING:
        return form.mode, ""
    if form.mode in UNTYPED or any(_is_remote(c, shared) for c in searched):
        return (
            WITHOUT_EMBEDDING,
            "Words only while you type. Press Enter to search by meaning, too.",
        )
    return form.mode, ""


def _is_remote(container: Readable, shared: Gateway) -> bool:
    try:
        embedder = shared.stack.embedders.for_space(container.space)
    except LatentError:  # the search itself says what is missing
        return False
    return isinstance(embedder, UnreachableAware)


def _shown(
    form: SearchForm, found: SearchResponse, searched: Sequence[Readable], base_url: str
) -> list[ShownHit]:
    languages = {c.id: c.languages for c in searched}
    return [
        _shown_hit(n, hit, form, languages.get(hit.container_id, ()), found, base_url)
        for n, hit in enumerate(found.hits, start=1)
    ]


def _shown_hit(
    number: int,
    hit: Hit,
    form: SearchForm,
    languages: Sequence[str],
    found: SearchResponse,
    base_url: str,
) -> ShownHit:
    at = {"page": hit.provenance.page} if hit.provenance.page else {}
    address = f"/console/documents/{hit.doc_id}?{urlencode({'chunk': hit.chunk_id, **at})}"
    panel = {"c": hit.container_id, "chunk": hit.chunk_id, **at, "q": form.query}
    return ShownHit(
        hit=hit,
        number=number,
        address=address,
        panel=f"{PATH}/panel?{urlencode(panel)}",
        # Counting words takes longer than all else of the page: not for every letter.
        why=picture(hit, "" if form.typing else form.query, languages, found.diagnostics),
        citation=citation(hit, f"{base_url}{address}"),
    )
