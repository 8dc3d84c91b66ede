"""``POST /v1/containers/{id}/listing``: a folder announces its files and learns which are wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from fastapi import APIRouter, Response

from latent_core.domain.errors import Invalid, Issue, IssueCode
from latent_core.domain.ids import document_id
from latent_core.domain.recipe import recipe
from latent_core.ingest.delete import delete_documents, delete_records
from latent_core.registry import audit, listings
from latent_core.registry.listings import LastJob, Listed, Span
from latent_core.wire.listing import ListedFile, ListingAnswer, ListingBody, RefusedFile
from latent_gateway.answers import json_answer
from latent_gateway.api.ingest import file_uri
from latent_gateway.auth import access
from latent_gateway.auth.access import Writable
from latent_gateway.context import Caller, RequestId, Shared

router = APIRouter(tags=["ingest"])

MOST_DELETIONS: Final = 5000
"""A listing; each has its rows, ords and postings to bury."""
DELETIONS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Gone:
    """A document that the folder holds no more."""

    doc_id: UUID
    uri: str


@router.post("/v1/containers/{container_id}/listing", response_model=ListingAnswer)
async def listing(
    container_id: str, body: ListingBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Compare a folder's files with what is stored below its root; delete what vanished."""
    span = span_of(body)
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id)
        files: dict[UUID, ListedFile] = {
            document_id(container.id, f"{span.prefix}{f.path}"): f for f in body.files
        }
        known = await listings.known(conn, list(files))
        looked = body.delete_vanished or body.count_vanished
        limit = MOST_DELETIONS + 1 if looked else 0
        found = await listings.vanished(conn, container.id, span, list(files), limit)
    wanted = compare(files, known, recipe(container.manifest))
    if wanted.touched:
        async with shared.stack.db.transaction() as conn:
            await listings.touch(conn, wanted.touched, {d: known[d].sha256 for d in wanted.touched})
    gone = [Gone(doc_id, uri) for doc_id, uri in found]
    jobs: list[int] = []
    batches = list(deletions(gone)) if body.delete_vanished else []
    for batch in batches:
        jobs += await _delete(shared, caller, container, batch, request_id)
    partial = body.delete_vanished and len(gone) > MOST_DELETIONS
    answer = ListingAnswer(
        need=wanted.need,
        hash=wanted.unsure,
        refused=wanted.refused,
        unchanged=wanted.unchanged,
        open_jobs=wanted.open_jobs,
        vanished=min(len(gone), MOST_DELETIONS),
        deleted=[one.uri for batch in batches for one in batch],
        delete_jobs=jobs,
        partial=partial,
        issues=[_more_vanished()] if partial else [],
    )
    return json_answer(answer, request_id)


def span_of(body: ListingBody) -> Span:
    """The part of the root that the listing speaks of; ``Invalid`` when a file lies outside of it."""
    prefix = file_uri(f"{body.root}/")
    span = Span(
        prefix,
        None if body.after is None else f"{prefix}{body.after}",
        None if body.through is None else f"{prefix}{body.through}",
    )
    for file in body.files:
        if not span.holds(f"{prefix}{file.path}"):
            raise Invalid(
                f"'{file.path[:200]}' lies outside of the part that is listed, which is what comes after "
                "'after' and not after 'through', byte by byte"
            )
    return span


def deletions(gone: Sequence[Gone]) -> Iterator[Sequence[Gone]]:
    """What one listing deletes, a transaction each; the rest waits for the next listing."""
    for start in range(0, min(len(gone), MOST_DELETIONS), DELETIONS_AT_ONCE):
        yield gone[start : min(start + DELETIONS_AT_ONCE, MOST_DELETIONS)]


def _more_vanished() -> Issue:
    return Issue(
        code=IssueCode.POLICY,
        message=f"a listing deletes at most {MOST_DELETIONS} documents; more have vanished: send it again",
    )


@dataclass(slots=True)
class Wanted:
    need: list[str] = field(default_factory=list)
    """Paths to send."""
    unsure: list[str] = field(default_factory=list)
    """Paths whose hash decides."""
    refused: list[RefusedFile] = field(default_factory=list)
    """What was sent as it is now and cannot be ingested."""
    unchanged: int = 0
    touched: dict[UUID, int] = field(default_factory=dict)
    """Documents whose bytes are the same though their time is not, with the new time: the first gate knows it
    from then on."""
    open_jobs: list[int] = field(default_factory=list)
    """Of those unchanged files whose job is still to come."""


def compare(files: dict[UUID, ListedFile], known: dict[UUID, Listed], recipe_now: str) -> Wanted:
    """Two gates, size and time, then the hash; passed over for what would be made otherwise now.

    What was last asked for counts before what is live: a file whose job is open is not sent twice, one
    that was refused is not sent again until something has changed.
    """
    wanted = Wanted()
    for doc_id, file in files.items():
        stored = known.get(doc_id)
        job = stored.job if stored else None
        if stored is None:
            wanted.need.append(file.path)
        elif job is not None and (job.open or job.refused):
            _by_job(wanted, file, job, recipe_now)
        else:
            _by_document(wanted, doc_id, file, stored, recipe_now)
    return wanted


def _by_job(wanted: Wanted, file: ListedFile, job: LastJob, recipe_now: str) -> None:
    same_meta = job.given_meta == file.meta_sha256
    same_bytes = job.mtime_ns == file.mtime_ns or (
        file.sha256 is not None and file.sha256 == job.sha256
    )
    if not same_meta or (job.refused and job.recipe != recipe_now):
        wanted.need.append(file.path)
    elif not same_bytes:
        unsure = file.sha256 is None and job.sha256 is not None
        (wanted.unsure if unsure else wanted.need).append(file.path)
    elif job.refused:
        wanted.refused.append(RefusedFile(path=file.path, reason=job.refused, job_id=job.job_id))
    else:
        wanted.unchanged += 1
        wanted.open_jobs.append(job.job_id)


def _by_document(
    wanted: Wanted, doc_id: UUID, file: ListedFile, stored: Listed, recipe_now: str
) -> None:
    same_making = stored.recipe == recipe_now and stored.given_meta == file.meta_sha256
    same_bytes = stored.bytes == file.bytes and stored.has_original
    if not stored.live or not same_making or not same_bytes:
        wanted.need.append(file.path)
    elif stored.mtime_ns == file.mtime_ns:
        wanted.unchanged += 1
    elif file.sha256 is None:
        wanted.unsure.append(file.path)
    elif file.sha256 == stored.sha256:
        wanted.unchanged += 1
        wanted.touched[doc_id] = file.mtime_ns
    else:
        wanted.need.append(file.path)


async def _delete(
    shared: Shared, caller: Caller, container: Writable, gone: Sequence[Gone], request_id: str
) -> list[int]:
    """Delete in one transaction; answers its job."""
    async with shared.stack.db.transaction() as conn:
        await access.held(conn, container)
        deleted = await delete_documents(
            conn,
            container.id,
            [document.doc_id for document in gone],
            principal=caller.name,
            lease_seconds=shared.settings.lease_seconds,
        )
        await audit.note_each(
            conn,
            principal=caller.name,
            action="document.delete",
            container_id=container.id,
            objects=[document.uri for document in gone],
            request_id=request_id,
        )
    if deleted is None:
        return []
    await delete_records(
        shared.stack.db,
        container.id,
        deleted.corpora,
        principal=caller.name,
        lease_seconds=shared.settings.lease_seconds,
        of=deleted.job_id,
    )
    shared.stack.wake()
    return [deleted.job_id]
