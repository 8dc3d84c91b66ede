"""Tab Queries of a container, for its owners: what is searched for, and the switch of the log."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Form, Query, Response
from fastapi.responses import RedirectResponse

from latent_core.domain.errors import Invalid
from latent_core.domain.golden import MAX_QUERY_CHARS
from latent_core.domain.manifest.model import MAX_LOG_DAYS
from latent_core.wire.containers import ManifestBody
from latent_core.wire.golden import NewGoldenQuery
from latent_core.wire.queries import QueryKind
from latent_core.wire.search import SearchRequest
from latent_gateway.api import containers, golden, queries as api
from latent_gateway.api.search import find
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import HEADERS, done, page
from latent_gateway.console.quality.golden import base_of, container_of, may_measure
from latent_gateway.context import Shared

router = pages()

BASE: Final = "/console/containers/{container_id}/queries"
KINDS: Final = (
    (QueryKind.FREQUENT, "Most asked"),
    (QueryKind.WITHOUT_HITS, "Without hits"),
    (QueryKind.WEAK, "Weak"),
)
PERIODS: Final = (1, 7, 30, 90, 365)
DEFAULT_DAYS: Final = 30


@router.get(BASE)
async def queries_page(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    kind: QueryKind = QueryKind.FREQUENT,
    days: Annotated[int, Query(ge=1, le=MAX_LOG_DAYS)] = DEFAULT_DAYS,
) -> Response:
    """The log of queries, or what it would hold."""
    container, rights = await container_of(shared, session, container_id)
    found = await api.logged(shared, session.principal, container.id, kind, days=days)
    return page(
        "quality/queries.html",
        session,
        container=container,
        rights=rights,
        tab="queries",
        base=f"/console/containers/{container.id}/queries",
        quality=base_of(container.id),
        may=may_measure(container, rights),
        log=found,
        kinds=KINDS,
        kind=kind,
        periods=PERIODS,
        days=days,
        default_days=DEFAULT_DAYS,
        max_days=MAX_LOG_DAYS,
    )


@router.post(f"{BASE}/switch")
async def switch(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    keep_days: Annotated[str, Form(max_length=8)] = "",
) -> Response:
    """Switch the log on with a number of days, or off without one: a change of the manifest."""
    days = keep_days.strip()
    if days and not (days.isdecimal() and 1 <= int(days) <= MAX_LOG_DAYS):
        raise Invalid(f"keep queries for 1 to {MAX_LOG_DAYS} days")
    async with shared.stack.db.reading() as conn:
        container = await access.owned(conn, session.principal, container_id)
    written = container.manifest.model_dump(mode="json")
    written["query_log"] = {"keep_days": int(days) if days else None}
    await containers.change(
        container_id,
        ManifestBody(manifest=written),
        shared,
        session.principal,
        session.request_id,
        container.etag,
    )
    address = f"/console/containers/{container_id}/queries"
    if days:
        return done(address, f"Queries are logged now and kept for {days} days.")
    return done(address, "Queries are no longer logged; what was logged is removed.")


@router.post(f"{BASE}/clear")
async def clear(container_id: str, shared: Shared, session: SignedIn) -> Response:
    """Delete the log."""
    await api.cleared(shared, session.principal, container_id, session.request_id)
    return done(f"/console/containers/{container_id}/queries", "The log is empty.")


@router.post(f"{BASE}/golden")
async def make_golden(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    query: Annotated[str, Form(min_length=1, max_length=MAX_QUERY_CHARS)],
) -> Response:
    """Make a golden query that expects the best hit of now, and show it beside its hits. Without a hit, the page asks
    what is right."""
    found = await find(
        SearchRequest(containers=[container_id], query=query, top_k=1, detail="brief"),
        shared,
        session.principal,
        session.request_id,
        session.links,
        logged=False,
    )
    address = f"{base_of(container_id)}/query"
    if not found.hits:
        return RedirectResponse(f"{address}?{urlencode({'q': query})}", 303, HEADERS)
    body = NewGoldenQuery(query=query, expect_docs=[found.hits[0].source_uri], merge=True)
    answer = await golden.added(shared, session.principal, container_id, body, session.request_id)
    return done(
        f"{address}?{urlencode({'id': answer.query.id})}",
        "A golden query was made. It expects the best hit of now: mark others, or take this one back.",
    )
