"""Backups: create, download, verify, restore and delete; as the API does it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from latent_core.domain.errors import Invalid
from latent_core.domain.job import JobKind, JobView
from latent_core.domain.text import Text
from latent_core.queue import admin
from latent_core.wire.jobs import JobAccepted
from latent_core.wire.transfers import (
    ArchiveAnswer,
    BackupBody,
    BackupList,
    ImportAnswer,
)
from latent_gateway.api import backups as api
from latent_gateway.api.backups import BackupId, RestoreBody
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn, session_of
from latent_gateway.console.frame.live import LiveFragment, live
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import HEADERS, done, draw
from latent_gateway.console.operations.sections import operations_page
from latent_gateway.context import Gateway, Shared

router = pages()

BACKUPS: Final = 30
JOBS_SHOWN: Final = 10
JOBS_READ: Final = 200
PAGE: Final = "/console/operations/backups"
ARCHIVE_KINDS: Final = frozenset({JobKind.EXPORT, JobKind.IMPORT})

Container = Annotated[Text, Query(max_length=64)]
Cursor = Annotated[str, Query(max_length=128)]


@router.get(PAGE)
async def backups_page(
    shared: Shared, session: SignedIn, container: Container = "", cursor: Cursor = ""
) -> Response:
    """Newest first, with the jobs that make, verify or restore one now."""
    shown = await _list(shared, session, container, cursor)
    return operations_page("backups.html", session, "backups", **shown)


@router.get(f"{PAGE}/live")
async def backups_live(
    request: Request,
    shared: Shared,
    session: SignedIn,
    container: Container = "",
    cursor: Cursor = "",
) -> Response:
    """The list after each change."""
    await _list(shared, session, container, cursor)

    async def look() -> LiveFragment:
        again = await session_of(request, shared)
        shown = await _list(shared, again, container, cursor)
        return LiveFragment(draw("operations/backuplist.html", session=again, **shown), ended=False)

    return live(shared, session, look)


async def _list(
    shared: Gateway, session: ConsoleSession, container: str, cursor: str
) -> dict[str, Any]:
    answer = await api.list_backups(
        shared, session.principal, session.request_id, container or None, BACKUPS, cursor or None
    )
    found = BackupList.model_validate_json(bytes(answer.body))
    async with shared.stack.db.reading() as conn:
        owned = [one.id for one in await access.all_owned(conn, session.principal)]
    return {
        "backups": found.backups,
        "following": found.next_cursor,
        "containers": owned,
        "container": container,
        "jobs": await archive_jobs(shared, [container] if container else owned),
        "own": frozenset(owned),
    }


async def archive_jobs(shared: Gateway, container_ids: list[str]) -> list[JobView]:
    """The newest exports, backups and imports of these containers."""
    async with shared.stack.db.reading() as conn:
        found = await admin.list_jobs(conn, container_ids=container_ids, limit=JOBS_READ)
    return [job for job in found.jobs if job.kind in ARCHIVE_KINDS][:JOBS_SHOWN]


@router.post(PAGE)
async def create(
    shared: Shared, session: SignedIn, container: Annotated[str, Form(min_length=1, max_length=64)]
) -> Response:
    body = BackupBody(container_id=container)
    answer = await api.make(body, shared, session.principal, session.request_id)
    job = JobAccepted.model_validate_json(bytes(answer.body))
    return done(PAGE, f"The backup of {container} is being written by job {job.job_id}.")


@router.get(f"{PAGE}/{{backup_id}}/file")
async def download(backup_id: BackupId, shared: Shared, session: SignedIn) -> Response:
    """To the signed link of the file."""
    answer = await api.show(backup_id, shared, session.principal, session.request_id, session.links)
    url = ArchiveAnswer.model_validate_json(bytes(answer.body)).url
    return RedirectResponse(url, 303, HEADERS)


@router.post(f"{PAGE}/{{backup_id}}/verify")
async def verify(backup_id: BackupId, shared: Shared, session: SignedIn) -> Response:
    answer = await api.verify(backup_id, shared, session.principal, session.request_id)
    job = JobAccepted.model_validate_json(bytes(answer.body))
    return done(PAGE, f"Backup {backup_id} is read to its end by job {job.job_id}.")


@router.post(f"{PAGE}/{{backup_id}}/restore")
async def restore(
    backup_id: BackupId,
    shared: Shared,
    session: SignedIn,
    target: Annotated[str, Form(min_length=1, max_length=63)],
    merge: Annotated[bool, Form()] = False,
) -> Response:
    """As a new container, or into one that exists."""
    body = RestoreBody(container_id=target, merge=merge)
    answer = await api.restore(backup_id, body, shared, session.principal, session.request_id)
    found = ImportAnswer.model_validate_json(bytes(answer.body))
    return done(
        f"/console/jobs/{found.job_id}", f"Backup {backup_id} is being restored into {target}."
    )


@router.post(f"{PAGE}/{{backup_id}}/delete")
async def delete(
    backup_id: BackupId,
    shared: Shared,
    session: SignedIn,
    typed: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    if typed.strip() != str(backup_id):
        raise Invalid(f"the backup was not deleted: type {backup_id} to confirm")
    await api.remove(backup_id, shared, session.principal, session.request_id)
    return done(PAGE, f"Backup {backup_id} was deleted.")
