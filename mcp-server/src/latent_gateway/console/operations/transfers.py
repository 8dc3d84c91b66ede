"""Export a container as one file, and import such a file."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Form, Path, Query, Request, Response
from fastapi.responses import RedirectResponse

from latent_core.db.transfer import archives
from latent_core.domain.errors import TooLarge
from latent_core.domain.job import ArchiveKind
from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.transfer.requests import ImportPolicy
from latent_core.wire.transfers import ArchiveAnswer, ExportBody, ImportAnswer
from latent_gateway.api import transfers as api
from latent_gateway.auth import access
from latent_gateway.auth.quotas import check_capacity
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn, session_of
from latent_gateway.console.frame.form_files import (
    chosen_files,
    received_form,
    request_of,
)
from latent_gateway.console.frame.live import LiveFragment, live
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import HEADERS, done, draw
from latent_gateway.console.operations.backups import archive_jobs
from latent_gateway.console.operations.sections import operations_page
from latent_gateway.context import Gateway, Shared

router = pages()

PAGE: Final = "/console/operations/transfers"
EXPORTS_READ: Final = 200


@router.get(PAGE)
async def transfers_page(shared: Shared, session: SignedIn) -> Response:
    """Forms for both, and the newest jobs."""
    return operations_page(
        "transfers.html",
        session,
        "transfers",
        **await _state(shared, session),
        policies=[policy.value for policy in ImportPolicy],
        max_bytes=shared.settings.max_import_bytes,
    )


@router.get(f"{PAGE}/live")
async def transfers_live(request: Request, shared: Shared, session: SignedIn) -> Response:
    """The jobs after each change."""
    await _state(shared, session)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        shown = await _state(shared, again)
        html = draw("operations/transferlist.html", session=again, **shown)
        return LiveFragment(html, ended=False)

    return live(shared, session, look)


async def _state(shared: Gateway, session: ConsoleSession) -> dict[str, Any]:
    async with shared.stack.db.reading() as conn:
        owned = [one.id for one in await access.all_owned(conn, session.principal)]
        exports = await archives.listed(
            conn, ArchiveKind.EXPORT, owned, EXPORTS_READ, before=archives.LAST
        )
    return {
        "containers": owned,
        "exports": frozenset(one.id for one in exports),
        "own": frozenset(owned),
        "jobs": await archive_jobs(shared, owned),
    }


@router.post(f"{PAGE}/export")
async def export(
    shared: Shared,
    session: SignedIn,
    container: Annotated[str, Form(min_length=1, max_length=64)],
    vectors: Annotated[bool, Form()] = False,
    blobs: Annotated[bool, Form()] = False,
) -> Response:
    """The file at once if it exists already, else the job that writes it."""
    body = ExportBody(container_id=container, vectors=vectors, blobs=blobs)
    answer = await api.exported(shared, session.principal, body, session.links, session.request_id)
    if answer.url is not None:
        return RedirectResponse(answer.url, 303, HEADERS)
    return done(
        PAGE, f"{container} is being exported by job {answer.job_id}; its line offers the file."
    )


@router.get(f"{PAGE}/{{archive_id}}/file")
async def download(
    archive_id: Annotated[int, Path(ge=1, lt=2**63)], shared: Shared, session: SignedIn
) -> Response:
    """To the signed link of an export."""
    answer = await api.show_export(
        archive_id, shared, session.principal, session.request_id, session.links
    )
    url = ArchiveAnswer.model_validate_json(bytes(answer.body)).url
    return RedirectResponse(url, 303, HEADERS)


@router.post(f"{PAGE}/import")
async def import_file(
    request: Request,
    shared: Shared,
    session: SignedIn,
    target: Annotated[Text, Query(max_length=64)] = "",
    merge: bool = False,
    policy: ImportPolicy | None = None,
) -> Response:
    """The file of the form, by the API's own function: limits, checks and audit are its. The other fields are in the
    address, because the body is the file's."""
    access.require(session.principal, Scope.ADMIN)
    limit = shared.settings.max_import_bytes
    await check_capacity(shared.stack.tmp, shared.settings.min_free_bytes, 0)
    refusal = TooLarge(f"the file is over the limit of {limit} bytes (LLC_MAX_IMPORT_BYTES)")
    tmp = shared.stack.tmp
    async with received_form(request, tmp, limit, refusal, max_files=1) as form:
        (file,) = chosen_files(form, "file")
        answer = await api.import_archive(
            request_of(request, file),
            file.filename or "",
            shared,
            session.principal,
            session.request_id,
            target or None,
            merge,
            policy if merge else None,
        )
    found = ImportAnswer.model_validate_json(bytes(answer.body))
    return done(
        f"/console/jobs/{found.job_id}",
        f"The file was received; it is being imported as {found.container_id}.",
    )
