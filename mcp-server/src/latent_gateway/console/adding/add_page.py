"""The tab Add: files and folders, a text, the address of a web page. All of it works without scripts."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import Form, Query, Request, Response
from starlette.types import Message, Receive

from latent_core.db.connection import Connection
from latent_core.domain.errors import Invalid, LatentError, NotFound
from latent_core.domain.job import JobView
from latent_core.domain.note import MAX_NAME_CHARS, MAX_TEXT_CHARS
from latent_core.search.readable import Readable
from latent_core.wire.documents import AddBody, UploadAnswer
from latent_gateway.api import uploads
from latent_gateway.api.ingest import accept_source
from latent_gateway.api.jobs import FINAL, visible_job
from latent_gateway.api.notes import accept_text
from latent_gateway.auth import access
from latent_gateway.console.adding.uploads import MAX_FILES
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn, session_of
from latent_gateway.console.frame.form_files import file_request
from latent_gateway.console.frame.live import LiveFragment, live
from latent_gateway.console.frame.rights import rights_of
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import done, draw, page
from latent_gateway.context import Gateway, Shared

router = pages()

ADD: Final = "/console/containers/{container_id}/add"
KINDS: Final = (("note", "A note"), ("document", "A text document"))
JobNumber = Annotated[int | None, Query(ge=1, lt=2**63)]
Typed = Annotated[str, Form(max_length=MAX_TEXT_CHARS)]
Title = Annotated[str, Form(max_length=MAX_NAME_CHARS)]
Address = Annotated[str, Form(max_length=4096)]
WRONG_INPUT: Final = 422
"""The form is shown again, with what was typed."""
UNNAMED: Final = re.compile(r"[^\w .-]+")


@router.get(ADD)
async def add_page(
    container_id: str, shared: Shared, session: SignedIn, job: JobNumber = None
) -> Response:
    """The forms, and what became of the text or page that was just added (``job``)."""
    return await _page(container_id, shared, session, job=job)


@router.get(f"{ADD}/live")
async def add_live(
    container_id: str,
    request: Request,
    shared: Shared,
    session: SignedIn,
    job: Annotated[int, Query(ge=1, lt=2**63)],
) -> Response:
    """The job after each change, until it has ended."""
    async with shared.stack.db.reading() as conn:
        await _job(conn, session, container_id, job)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        async with shared.stack.db.reading() as conn:
            found = await _job(conn, again, container_id, job)
        html = draw("adding/outcome.html", session=again, job=found)
        return LiveFragment(html, ended=found.state in FINAL)

    return live(shared, session, look)


@router.post(f"{ADD}/text")
async def add_text(
    container_id: str,
    request: Request,
    shared: Shared,
    session: SignedIn,
    text: Typed = "",
    title: Title = "",
    kind: Annotated[str, Form(max_length=16)] = "note",
) -> Response:
    """A pasted text, as a note or as a document of its own."""
    try:
        if not text.strip():
            raise Invalid("There is no text yet: paste or type one.")
        if kind == "document":
            job_id = await _document(container_id, text, title, request, shared, session)
        else:
            body = AddBody(container_id=container_id, text=text, title=title.strip() or None)
            who, links = session.principal, session.links
            job_id = (await accept_text(body, shared, who, session.request_id, links)).job_id
    except LatentError as error:
        typed = {"text": text, "title": title, "kind": kind}
        return await _page(container_id, shared, session, typed=typed, text_error=error)
    return done(f"/console/containers/{container_id}/add?job={job_id}", "The text was added.")


@router.post(f"{ADD}/address")
async def add_address(
    container_id: str, shared: Shared, session: SignedIn, uri: Address = ""
) -> Response:
    """A web page, which a worker fetches."""
    try:
        if not uri.strip():
            raise Invalid("There is no address yet: paste one that begins with https://")
        body = AddBody(container_id=container_id, uri=uri.strip())
        added = await accept_source(body, shared, session.principal, session.request_id)
    except LatentError as error:
        return await _page(container_id, shared, session, typed={"uri": uri}, uri_error=error)
    place = f"/console/containers/{container_id}/add?job={added.job_id}"
    return done(place, "The page was added and is being fetched.")


async def _document(
    container_id: str,
    text: str,
    title: str,
    request: Request,
    shared: Gateway,
    session: ConsoleSession,
) -> int:
    """Stored as a Markdown file, through the API's own functions, so that their limits and audit apply."""
    data = text.replace("\r\n", "\n").encode()
    name = f"{_file_name(title or text)}.md"
    sent = file_request(request, "text/markdown", len(data), _once(data))
    answer = await uploads.upload(
        container_id, sent, name, shared, session.principal, session.request_id
    )
    stored = UploadAnswer.model_validate_json(bytes(answer.body)).upload
    body = AddBody(
        container_id=container_id, file_ref=stored.file_ref, modified_at=datetime.now(UTC)
    )
    added = await accept_source(body, shared, session.principal, session.request_id)
    return added.job_id


def _once(data: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": data, "more_body": False}

    return receive


def _file_name(text: str) -> str:
    """From the title, else from the first line; never empty."""
    first = text.strip().splitlines()[0] if text.strip() else ""
    name = " ".join(UNNAMED.sub(" ", first).split())[:80].strip(" .")
    return name or "Text"


async def _page(
    container_id: str,
    shared: Gateway,
    session: ConsoleSession,
    *,
    job: int | None = None,
    typed: dict[str, str] | None = None,
    text_error: LatentError | None = None,
    uri_error: LatentError | None = None,
) -> Response:
    async with shared.stack.db.reading() as conn:
        container = await _writable(conn, session, container_id)
        found = None if job is None else await _job(conn, session, container_id, job)
    error = text_error or uri_error
    shown: dict[str, Any] = {"text": "", "title": "", "kind": "note", "uri": "", **(typed or {})}
    return page(
        "adding/add.html",
        session,
        status=200 if error is None else max(error.status, WRONG_INPUT),
        container=container,
        rights=rights_of(session.principal, container),
        tab="add",
        typed=shown,
        text_error=text_error.message if text_error else "",
        uri_error=uri_error.message if uri_error else "",
        kinds=KINDS,
        job=found,
        open=found is not None and found.state not in FINAL,
        max_bytes=shared.settings.max_upload_bytes,
        max_files=MAX_FILES,
        max_text=MAX_TEXT_CHARS,
    )


async def _job(
    conn: Connection, session: ConsoleSession, container_id: str, job_id: int
) -> JobView:
    found = await visible_job(conn, session.principal, job_id)
    if found.container_id != container_id:
        raise NotFound(f"container '{container_id}' has no job {job_id}")
    return found


async def _writable(conn: Connection, session: ConsoleSession, container_id: str) -> Readable:
    await access.writable(conn, session.principal, container_id)
    return await access.readable_one(conn, session.principal, container_id)
