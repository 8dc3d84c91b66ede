"""``POST /v1/containers/{id}/listing``: a client lists the files of a folder and learns which ones to send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from fastapi import APIRouter, Response

from latent_core.db import sources
from latent_core.db.connection import Connection
from latent_core.db.documents import folder_listings
from latent_core.db.documents.folder_listings import LastJob, StoredFile, UriSpan
from latent_core.domain.errors import Conflict, Invalid, Issue, IssueCode
from latent_core.domain.ids import document_id
from latent_core.domain.source import (
    DELETIONS_WITHOUT_CONSENT,
    SHARE_WITHOUT_CONSENT,
    needs_consent,
    prefix_of,
)
from latent_core.domain.token import Scope
from latent_core.domain.versions import ending, recipe
from latent_core.wire.documents import ListedFile, ListingAnswer, ListingBody, RefusedFile
from latent_gateway.auth import access
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.deletions import MAX_DELETIONS, VanishedDocument, delete_batch, deletions
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["ingest"])


@dataclass(frozen=True, slots=True)
class VanishedDocuments:
    """The documents of a listed part whose files are gone."""

    first: Sequence[VanishedDocument] = ()
    """As many as one listing deletes, and one more."""
    number: int = 0
    documents: int = 0
    """All documents below the root, if any vanished."""


@router.post("/v1/containers/{container_id}/listing", response_model=ListingAnswer)
async def listing(
    container_id: str, body: ListingBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Compare the files of a folder with the stored documents below its root, and delete documents whose file is
    gone."""
    span = span_of(body)
    scope = Scope.DELETE if body.delete_vanished else Scope.WRITE
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id, scope=scope)
        files: dict[UUID, ListedFile] = {
            document_id(container.id, f"{span.prefix}{f.path}"): f for f in body.files
        }
        await _check_source(conn, container.id, body)
        known = await folder_listings.known(conn, list(files))
        gone = await _vanished(conn, container.id, span, files, body)
        if body.source is not None and body.through is None:
            await sources.note_synced(conn, container.id, body.source)
    comparison = compare(files, known, recipe(container.manifest))
    if comparison.touched:
        async with shared.stack.db.transaction() as conn:
            await folder_listings.touch(
                conn, comparison.touched, {d: known[d].sha256 for d in comparison.touched}
            )
    jobs: list[int] = []
    withheld = not body.allow_deletions and needs_consent(gone.number, gone.documents)
    deletes = body.delete_vanished and not withheld
    batches = list(deletions(gone.first)) if deletes else []
    for batch in batches:
        jobs += await delete_batch(shared, caller, container, batch, request_id)
    partial = deletes and gone.number > MAX_DELETIONS
    issues = [_more_vanished()] if partial else []
    if body.delete_vanished and withheld:
        issues.append(_withheld(gone))
    answer = ListingAnswer(
        need=comparison.need,
        hash=comparison.unsure,
        refused=comparison.refused,
        unchanged=comparison.unchanged,
        open_jobs=comparison.open_jobs,
        vanished=gone.number,
        documents=gone.documents,
        deleted=[one.uri for batch in batches for one in batch],
        delete_jobs=jobs,
        partial=partial,
        issues=issues,
    )
    return json_answer(answer, request_id)


async def _check_source(conn: Connection, container_id: str, body: ListingBody) -> None:
    """``Conflict`` if the listing is not one of the source that has this root."""
    owner = await sources.of_root(conn, container_id, body.root)
    if owner == body.source or (body.source is None and not body.delete_vanished):
        return
    if body.source is None:
        raise Conflict(
            f"The documents below {prefix_of(body.root)} belong to a synced folder, and this listing does not name its "
            "source. Sync it with a client of this version, or send delete_vanished: false."
        )
    raise Conflict(
        f"{prefix_of(body.root)} no longer belongs to the source {body.source}: another client has taken it over.",
        source_id=str(body.source),
    )


async def _vanished(
    conn: Connection,
    container_id: str,
    span: UriSpan,
    files: dict[UUID, ListedFile],
    body: ListingBody,
) -> VanishedDocuments:
    if not (body.delete_vanished or body.count_vanished):
        return VanishedDocuments()
    ids = list(files)
    found = await folder_listings.vanished(conn, container_id, span, ids, MAX_DELETIONS + 1)
    if not found:
        return VanishedDocuments()
    number = len(found)
    if number > MAX_DELETIONS:
        number = await folder_listings.count_vanished(conn, container_id, span, ids)
    return VanishedDocuments(
        [VanishedDocument(doc_id, uri) for doc_id, uri in found],
        number,
        await folder_listings.count_documents(conn, container_id, span.prefix),
    )


def span_of(body: ListingBody) -> UriSpan:
    """The part of the root that the listing covers; ``Invalid`` if a file is outside of it."""
    prefix = prefix_of(body.root)
    span = UriSpan(
        prefix,
        None if body.after is None else f"{prefix}{body.after}",
        None if body.through is None else f"{prefix}{body.through}",
    )
    for file in body.files:
        if not span.holds(f"{prefix}{file.path}"):
            raise Invalid(
                f"'{file.path[:200]}' is outside of the listed part: paths after 'after' and up to "
                "'through', compared byte by byte"
            )
    return span


def _withheld(gone: VanishedDocuments) -> Issue:
    return Issue(
        code=IssueCode.POLICY,
        message=(
            f"Nothing was deleted: {gone.number} of {gone.documents} documents would be, which is more than "
            f"{DELETIONS_WITHOUT_CONSENT} and {SHARE_WITHOUT_CONSENT:.0%}. Send allow_deletions: true if their files are gone for good."
        ),
        details={"vanished": gone.number, "documents": gone.documents},
    )


def _more_vanished() -> Issue:
    return Issue(
        code=IssueCode.POLICY,
        message=f"a listing deletes at most {MAX_DELETIONS} documents, and more files are gone: send it again",
    )


@dataclass(slots=True)
class ListingComparison:
    need: list[str] = field(default_factory=list)
    """Paths to send."""
    unsure: list[str] = field(default_factory=list)
    """Paths that need a hash to decide."""
    refused: list[RefusedFile] = field(default_factory=list)
    """Files that were sent with this content and cannot be ingested."""
    unchanged: int = 0
    touched: dict[UUID, int] = field(default_factory=dict)
    """Documents with the same bytes and another modification time, with the new time, so that size and time match
    next time."""
    open_jobs: list[int] = field(default_factory=list)
    """Open jobs of unchanged files."""


def compare(
    files: dict[UUID, ListedFile], known: dict[UUID, StoredFile], recipe_now: str
) -> ListingComparison:
    """Compare the hash if it is given, else size and time. A file whose recipe has changed is always needed.

    The last accepted version counts before the live one: a file with an open job is not sent twice, and a refused
    file is not sent again until it has changed.
    """
    comparison = ListingComparison()
    for doc_id, file in files.items():
        stored = known.get(doc_id)
        job = stored.job if stored else None
        if stored is None:
            comparison.need.append(file.path)
        elif job is not None and (job.open or job.refused):
            _by_job(comparison, file, job, recipe_now)
        else:
            _by_document(comparison, doc_id, file, stored, recipe_now)
    return comparison


def _by_job(comparison: ListingComparison, file: ListedFile, job: LastJob, recipe_now: str) -> None:
    same_meta = job.given_meta == file.meta_sha256
    hashed = file.sha256 is not None and job.sha256 is not None
    same_bytes = file.sha256 == job.sha256 if hashed else file.mtime_ns == job.mtime_ns
    if not same_meta or (job.refused and job.recipe != recipe_now):
        comparison.need.append(file.path)
    elif not same_bytes:
        unsure = file.sha256 is None and job.sha256 is not None
        (comparison.unsure if unsure else comparison.need).append(file.path)
    elif job.refused:
        comparison.refused.append(
            RefusedFile(path=file.path, reason=job.refused, job_id=job.job_id)
        )
    else:
        comparison.unchanged += 1
        comparison.open_jobs.append(job.job_id)


def _by_document(
    comparison: ListingComparison,
    doc_id: UUID,
    file: ListedFile,
    stored: StoredFile,
    recipe_now: str,
) -> None:
    expected = recipe_now + ending(stored.source_type)
    same_making = stored.recipe == expected and stored.given_meta == file.meta_sha256
    same_bytes = stored.bytes == file.bytes and stored.has_original
    if not stored.live or not same_making or not same_bytes:
        comparison.need.append(file.path)
    elif file.sha256 is not None:
        if file.sha256 != stored.sha256:
            comparison.need.append(file.path)
            return
        comparison.unchanged += 1
        if file.mtime_ns != stored.mtime_ns:
            comparison.touched[doc_id] = file.mtime_ns
    elif file.mtime_ns == stored.mtime_ns:
        comparison.unchanged += 1
    else:
        comparison.unsure.append(file.path)
