"""Tab Quality of a container: its golden queries, measuring, and one query beside its hits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

from fastapi import Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from latent_core.domain import cursors
from latent_core.domain.errors import Invalid, Issue, LatentError, NotFound
from latent_core.domain.golden import MAX_ID_CHARS, MAX_QUERY_CHARS, GoldenQuery
from latent_core.domain.job import JobKind, JobView
from latent_core.queue import admin
from latent_core.search.readable import Readable
from latent_core.wire.containers import ContainerState
from latent_core.wire.evaluation import EvalRequest, EvalRun, QueryVerdict
from latent_core.wire.golden import GoldenQueryView, NewGoldenQuery
from latent_core.wire.search import Hit, SearchRequest
from latent_gateway.api import evaluation, golden as api
from latent_gateway.api.jobs import FINAL, visible_job
from latent_gateway.api.search import find
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn, session_of
from latent_gateway.console.frame.live import LiveFragment, live
from latent_gateway.console.frame.rights import ContainerRights, rights_of
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import HEADERS, done, draw, page, wants_part
from latent_gateway.console.quality.charts import curves
from latent_gateway.context import Gateway, Shared

router = pages()

SHOWN: Final = 50
HITS: Final = 10
RUNS: Final = 200
RUNS_SHOWN: Final = 5
MAX_FORM_CHARS: Final = 200_000

BASE: Final = "/console/containers/{container_id}/quality"
QueryText = Annotated[str, Query(max_length=MAX_QUERY_CHARS)]
JobNumber = Annotated[int | None, Query(ge=1, lt=2**63)]


async def container_of(
    shared: Gateway, session: ConsoleSession, container_id: str
) -> tuple[Readable, ContainerRights]:
    """The container, for all who may read it, and what this person may do there."""
    async with shared.stack.db.reading() as conn:
        container = await access.readable_one(conn, session.principal, container_id)
    return container, rights_of(session.principal, container)


def may_measure(container: Readable, rights: ContainerRights) -> bool:
    """Whether this person may change golden queries and measure."""
    return rights.own and container.state is not ContainerState.ARCHIVED


def base_of(container_id: str) -> str:
    return f"/console/containers/{container_id}/quality"


@router.get(BASE)
async def quality_page(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    cursor: Annotated[str, Query(max_length=128)] = "",
    setup: Annotated[str, Query(max_length=1024)] = "",
    job: JobNumber = None,
) -> Response:
    """Golden queries with their last verdict, the curves of the newest setup, and the newest runs."""
    container, rights = await container_of(shared, session, container_id)
    after = cursors.decode_int(cursor or None, 0)
    listed = await api.listed(shared, session.principal, container.id, after=after, limit=SHOWN)
    runs = await evaluation.runs_of(shared, session.principal, container.id, limit=RUNS)
    setups = list(dict.fromkeys(run.setup for run in runs))
    chosen = setup if setup in setups else (setups[0] if setups else "")
    of_setup = [run for run in runs if run.setup == chosen]
    verdicts = await _last_verdicts(shared, session, container.id, of_setup)
    measuring = await _job(shared, session, container.id, job)
    return page(
        "quality/quality.html",
        session,
        container=container,
        rights=rights,
        tab="quality",
        base=base_of(container.id),
        may=may_measure(container, rights),
        golden=listed,
        further=cursor != "",
        verdicts=verdicts,
        setups=setups,
        setup=chosen,
        runs=of_setup[:RUNS_SHOWN],
        more_runs=len(of_setup) > RUNS_SHOWN,
        curves=curves(of_setup) if of_setup else (),
        job=measuring,
        run=next((run for run in runs if measuring and run.job_id == measuring.job_id), None),
        live=measuring is not None and measuring.state not in FINAL,
    )


async def _last_verdicts(
    shared: Gateway, session: ConsoleSession, container_id: str, runs: list[EvalRun]
) -> dict[tuple[str, str], QueryVerdict]:
    """Of the newest run with golden queries, by id and text."""
    newest = next((run for run in runs if run.golden), None)
    if newest is None:
        return {}
    (found,) = await evaluation.detailed_runs(shared, session.principal, container_id, [newest.id])
    return {(one.id, one.query): one for one in found.verdicts or ()}


async def _job(
    shared: Gateway, session: ConsoleSession, container_id: str, job: int | None
) -> JobView | None:
    """The named evaluation, or else the one that is queued or running."""
    async with shared.stack.db.reading() as conn:
        if job is None:
            return await admin.open_job(conn, container_id, JobKind.EVAL)
        try:
            found = await visible_job(conn, session.principal, job)
        except NotFound:  # it ended long ago, and the address was kept
            return None
    return found if found.container_id == container_id and found.kind is JobKind.EVAL else None


@router.get(f"{BASE}/measuring/{{job_id}}")
async def measuring(
    container_id: str, job_id: int, request: Request, shared: Shared, session: SignedIn
) -> Response:
    """The state of an evaluation after each change, until it has ended."""
    container, _ = await container_of(shared, session, container_id)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        found = await _job(shared, again, container.id, job_id)
        html = draw(
            "quality/measuring.html", session=again, job=found, run=None, base=base_of(container.id)
        )
        return LiveFragment(html, ended=found is None or found.state in FINAL)

    return live(shared, session, look)


@router.post(f"{BASE}/measure")
async def measure(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    baseline: Annotated[str, Form(max_length=8)] = "",
) -> Response:
    """Begin an evaluation with the container's golden queries."""
    accepted = await evaluation.evaluated(
        shared,
        session.principal,
        container_id,
        EvalRequest(save=bool(baseline)),
        session.request_id,
    )
    return RedirectResponse(f"{base_of(container_id)}?job={accepted.job_id}", 303, HEADERS)


@dataclass(slots=True)
class QueryForm:
    """The fields of one golden query, as typed."""

    id: str = ""
    query: str = ""
    docs: str = ""
    keywords: str = ""
    strings: str = ""
    min_score: str = ""
    etag: str = ""
    """Of the stored query; empty for a new one."""
    error: str = ""
    marked: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, stored: GoldenQueryView) -> QueryForm:
        return cls(
            id=stored.id,
            query=stored.query,
            docs="\n".join(stored.expect_docs),
            keywords="\n".join(stored.expect_keywords),
            strings="\n".join(stored.expect),
            min_score="" if stored.min_score is None else f"{stored.min_score:g}",
            etag=stored.etag,
            marked=set(stored.expect_docs),
        )

    def checked(self) -> GoldenQuery:
        """``Invalid`` says what is wrong."""
        return checked(
            {
                "id": self.id.strip(),
                "query": self.query.strip(),
                "expect_docs": _lines(self.docs),
                "expect_keywords": _lines(self.keywords),
                "expect": _lines(self.strings),
                "min_score": self.min_score.strip() or None,
            }
        )


LABELS: Final = {
    "id": "Name",
    "query": "Query",
    "expect_docs": "Right documents",
    "expect_keywords": "Words in the texts",
    "expect": "Words in titles or texts",
    "min_score": "Lowest nDCG@10",
}


def checked(values: dict[str, Any]) -> GoldenQuery:
    """``Invalid`` names the field as the page does."""
    try:
        return GoldenQuery.model_validate(values)
    except ValidationError as exc:
        error = exc.errors()[0]
        name = LABELS.get(str(error["loc"][0]), "") if error["loc"] else ""
        if not error["loc"]:
            raise Invalid(
                "a golden query must expect something: mark a hit as right, or give a document or words"
            ) from exc
        raise Invalid(f"{name}: {error['msg'].removeprefix('Value error, ')}") from exc


def _lines(text: str) -> list[str]:
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))


@router.get(f"{BASE}/query")
async def query_page(
    container_id: str,
    request: Request,
    shared: Shared,
    session: SignedIn,
    query_id: Annotated[str, Query(alias="id", max_length=MAX_ID_CHARS)] = "",
    q: QueryText = "",
) -> Response:
    """One golden query beside its hits; with ``q`` the hits of a query that is none yet."""
    form = QueryForm(query=q)
    if query_id:
        form = QueryForm.of(await api.query_of(shared, session.principal, container_id, query_id))
    return await _bench(request, shared, session, container_id, form)


async def _bench(
    request: Request,
    shared: Gateway,
    session: ConsoleSession,
    container_id: str,
    form: QueryForm,
    status: int = 200,
) -> Response:
    container, rights = await container_of(shared, session, container_id)
    hits, trouble = await _hits(shared, session, container, form.query)
    names = [{str(hit.doc_id), hit.source_uri, hit.external_id or ""} for hit in hits]
    found = set().union(*names) if names else set()
    return page(
        "quality/bench.html" if wants_part(request) else "quality/query.html",
        session,
        status=status,
        container=container,
        rights=rights,
        tab="quality",
        base=base_of(container.id),
        may=may_measure(container, rights),
        form=form,
        hits=[(hit, bool(own & form.marked)) for hit, own in zip(hits, names, strict=True)],
        absent=sorted(form.marked - found),
        trouble=trouble,
    )


async def _hits(
    shared: Gateway, session: ConsoleSession, container: Readable, query: str
) -> tuple[list[Hit], Issue | None]:
    """The first hits, searched as the container searches by default; not for the log of queries."""
    if not query.strip():
        return [], None
    try:
        found = await find(
            SearchRequest(containers=[container.id], query=query, top_k=HITS, detail="brief"),
            shared,
            session.principal,
            session.request_id,
            session.links,
            logged=False,
        )
    except LatentError as error:
        return [], error.issue()
    return found.hits, None


@router.post(f"{BASE}/mark")
async def mark(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    doc: Annotated[str, Form(min_length=1, max_length=4096)],
    query: Annotated[str, Form(max_length=MAX_QUERY_CHARS)] = "",
    query_id: Annotated[str, Form(alias="id", max_length=MAX_ID_CHARS)] = "",
    wrong: Annotated[str, Form(max_length=8)] = "",
) -> Response:
    """Mark a hit as right, or no longer; the first mark makes the golden query."""
    if not query_id:
        new = checked({"query": query.strip(), "expect_docs": [doc]})
        body = NewGoldenQuery(**new.model_dump(), merge=True)
        answer = await api.added(shared, session.principal, container_id, body, session.request_id)
        return _to_query(container_id, answer.query.id)
    stored = await api.query_of(shared, session.principal, container_id, query_id)
    docs = [one for one in stored.expect_docs if one != doc]
    if not wrong:
        docs.append(doc)
    changed = checked({**stored.model_dump(exclude={"etag"}), "expect_docs": docs})
    await api.changed(
        shared,
        session.principal,
        container_id,
        query_id,
        changed,
        stored.etag,
        session.request_id,
    )
    return _to_query(container_id, query_id)


@router.post(f"{BASE}/save")
async def save(
    container_id: str,
    request: Request,
    shared: Shared,
    session: SignedIn,
    query: Annotated[str, Form(max_length=MAX_FORM_CHARS)] = "",
    query_id: Annotated[str, Form(alias="id", max_length=MAX_FORM_CHARS)] = "",
    docs: Annotated[str, Form(max_length=MAX_FORM_CHARS)] = "",
    keywords: Annotated[str, Form(max_length=MAX_FORM_CHARS)] = "",
    strings: Annotated[str, Form(max_length=MAX_FORM_CHARS)] = "",
    min_score: Annotated[str, Form(max_length=32)] = "",
    etag: Annotated[str, Form(max_length=64)] = "",
) -> Response:
    """Store a new golden query, or change one. What is wrong is shown beside what was typed."""
    form = QueryForm(query_id, query, docs, keywords, strings, min_score, etag)
    caller, given_id = session.principal, session.request_id
    try:
        new = form.checked()
        if etag:
            answer = await api.changed(shared, caller, container_id, new.id, new, etag, given_id)
        else:
            body = NewGoldenQuery(**new.model_dump())
            answer = await api.added(shared, caller, container_id, body, given_id)
    except LatentError as error:
        form.error, form.marked = error.message, set(_lines(docs))
        status = 422 if isinstance(error, Invalid) else error.status
        return await _bench(request, shared, session, container_id, form, status)
    address = f"{base_of(container_id)}/query?{urlencode({'id': answer.query.id})}"
    return done(address, "The golden query is saved.")


@router.post(f"{BASE}/remove")
async def remove(
    container_id: str,
    shared: Shared,
    session: SignedIn,
    query_id: Annotated[str, Form(alias="id", min_length=1, max_length=MAX_ID_CHARS)],
) -> Response:
    """Remove a golden query."""
    await api.removed(shared, session.principal, container_id, query_id, None, session.request_id)
    return done(base_of(container_id), f"The golden query {query_id} is removed.")


def _to_query(container_id: str, query_id: str) -> RedirectResponse:
    address = f"{base_of(container_id)}/query?id={quote(query_id, safe='')}"
    return RedirectResponse(address, 303, HEADERS)
