"""``POST /v1/containers/add``: accept one source; and listings, which keep a folder in step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import APIRouter, Response

from latent_core.domain.chunk import Modality
from latent_core.domain.errors import Forbidden, Invalid, Issue, IssueCode, NotFound
from latent_core.domain.job import JobKind
from latent_core.domain.text import trouble
from latent_core.generations.accept import IngestPayload, accept
from latent_core.generations.delete import delete_documents, delete_records
from latent_core.registry import audit, containers, documents, uploads
from latent_core.registry.connection import Connection
from latent_core.registry.documents import Listed, Source
from latent_gateway.answers import json_answer
from latent_gateway.api.bodies import (
    MAX_URI_BYTES,
    AddBody,
    Added,
    ListedFile,
    Listing,
    ListingBody,
)
from latent_gateway.api.uploads import guess_mime, safe_filename
from latent_gateway.auth import access
from latent_gateway.auth.access import Writable
from latent_gateway.context import Caller, RequestId, Shared

router = APIRouter(tags=["ingest"])

MOST_DELETIONS: Final = 5000
"""A listing; each has its rows, ords and postings to bury."""
DELETIONS_AT_ONCE: Final = 500
CORPUS_NAMES: Final = (".jsonl", ".ndjson")
CORPUS_MIME: Final = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Bytes:
    """Where the bytes of a source are."""

    filename: str
    mime: str
    sha256: str | None = None
    path: str | None = None
    default_uri: str = ""


@router.post("/v1/containers/add", response_model=Added, status_code=202)
async def add(body: AddBody, shared: Shared, caller: Caller, request_id: RequestId) -> Response:
    """Accept an upload or a file below an ingest root. When this is answered, nothing of it is lost."""
    reference = _reference(body)
    if body.modality == "image":
        raise Forbidden(
            "images are not ingested yet; text, Markdown, PDF and JSONL are", modality="image"
        )
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, body.container_id)
        _check_takes_text(container)
        # The container first, then the upload's row: everybody's order of locks.
        if await containers.hold(conn, container.id) is None:
            raise access.unknown(container.id)
        source = await _bytes(conn, container, reference, shared.settings.ingest_roots)
        name = safe_filename(body.filename) if body.filename else source.filename
        uri = _canonical(body.source_uri or source.default_uri or file_uri(name))
        payload = IngestPayload(
            uri=uri,
            filename=name,
            mime=source.mime,
            sha256=source.sha256,
            path=source.path,
            modality=body.modality,
            accepted_at=datetime.now(UTC),
            modified_at=body.modified_at,
            mtime_ns=body.mtime_ns,
            meta=body.meta,
        )
        accepted = await accept(
            conn,
            Source(container.id, uri, source.mime),
            payload,
            kind=_kind(name, source.mime),
            principal=caller.name,
        )
        await audit.note(
            conn,
            principal=caller.name,
            action="document.add",
            container_id=container.id,
            object_=uri,
            request_id=request_id,
        )
    shared.stack.wake()
    answer = Added(job_id=accepted.job_id, doc_id=accepted.doc_id, source_uri=uri)
    return json_answer(answer, request_id, status=202)


def _kind(name: str, mime: str) -> JobKind:
    """A corpus by its name, or because its sender says so."""
    corpus = name.lower().endswith(CORPUS_NAMES) or mime == CORPUS_MIME
    return JobKind.CORPUS if corpus else JobKind.INGEST


def file_uri(name: str) -> str:
    """Canonical uri of one upload (DESIGN §4)."""
    return f"file:///{name}"


def _reference(body: AddBody) -> str:
    given = [value for value in (body.uri, body.file_ref) if value]
    if len(given) != 1:
        raise Invalid(
            "name one source: either file_ref (an upload's id, or a path below an ingest root) or uri"
        )
    if body.uri is None:
        return given[0]
    scheme = _scheme(body.uri)
    if scheme in ("http", "https"):
        raise Forbidden(
            "web pages are not ingested yet; save the page and upload the file", uri=body.uri
        )
    raise Invalid(
        f"uri must be http or https, not '{scheme or body.uri[:40]}'; for a file use file_ref",
        uri=body.uri,
    )


def _check_takes_text(container: Writable) -> None:
    """Every source that is ingested today is text."""
    if Modality.TEXT not in container.manifest.modalities:
        raise Forbidden(
            f"container '{container.id}' takes no text: its manifest's modalities lack 'text'",
            modality="text",
        )


def _scheme(uri: str) -> str:
    """In small letters, empty when there is none."""
    try:
        return urlsplit(uri).scheme.lower()
    except ValueError as exc:
        raise Invalid(f"'{uri[:80]}' is not a uri: {exc}") from exc


def _canonical(uri: str) -> str:
    """A source uri as it is stored; ``Invalid`` when it could be mistaken for a path of the server."""
    if trouble(uri) is not None or not _scheme(uri):
        raise Invalid(f"source_uri '{uri[:80]}' is not a uri such as file:///notes/a.md")
    if len(uri.encode()) > MAX_URI_BYTES:
        raise Invalid(f"source_uri '{uri[:80]}…' has more than {MAX_URI_BYTES} bytes")
    return uri


async def _bytes(
    conn: Connection, container: Writable, reference: str, roots: tuple[Path, ...]
) -> Bytes:
    try:
        upload_id = UUID(reference)
    except ValueError:
        return await asyncio.to_thread(_below_roots, reference, roots)
    upload = await uploads.get(conn, container.id, upload_id)
    if upload is None:
        raise NotFound(
            f"file_ref '{reference}' is no upload of container '{container.id}'; upload the file first"
        )
    return Bytes(upload.filename, upload.mime, sha256=upload.sha256)


def _below_roots(reference: str, roots: tuple[Path, ...]) -> Bytes:
    """A regular file below one of the roots, links resolved; the same answer for what is elsewhere and what is not there."""
    for root in roots:
        path = _file_below(root, reference)
        if path is not None:
            relative = path.relative_to(root).as_posix()
            return Bytes(
                path.name,
                guess_mime(path.name, None),
                path=str(path),
                default_uri=file_uri(f"{root.name}/{relative}"),
            )
    hint = (
        "no ingest roots are set (LLC_INGEST_ROOTS)"
        if not roots
        else "it is no file below LLC_INGEST_ROOTS"
    )
    raise NotFound(f"file_ref '{reference[:200]}' is not an upload, and {hint}")


def _file_below(root: Path, reference: str) -> Path | None:
    """None for what is no file there, cannot be looked at, or cannot be a name at all."""
    try:
        path = (root / reference).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long, forbidden; NUL; links in a circle
        return None


@router.post("/v1/containers/{container_id}/listing", response_model=Listing)
async def listing(
    container_id: str, body: ListingBody, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """Compare a folder's files with what is stored below its root; delete what vanished."""
    prefix = file_uri(f"{body.root}/")
    files = {f"{prefix}{f.path}": f for f in body.files}
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, container_id)
        stored = await documents.listing(conn, container.id, prefix)
    need, unsure, unchanged = _compare(files, stored)
    vanished = sorted(uri for uri in stored if uri not in files) if body.delete_vanished else []
    batches = deletions(vanished)
    jobs: list[int] = []
    for uris in batches:
        jobs += await _delete(shared, caller, container, [stored[u] for u in uris], request_id)
    deleted = [uri for uris in batches for uri in uris]
    left = len(vanished) - len(deleted)
    answer = Listing(
        need=need,
        hash=unsure,
        unchanged=unchanged,
        deleted=deleted,
        delete_jobs=jobs,
        partial=left > 0,
        issues=[_more_vanished(left)] if left else [],
    )
    return json_answer(answer, request_id)


def deletions(vanished: Sequence[str]) -> list[Sequence[str]]:
    """What one listing deletes, a transaction each; the rest waits for the next listing."""
    bounded = vanished[:MOST_DELETIONS]
    return [
        bounded[start : start + DELETIONS_AT_ONCE]
        for start in range(0, len(bounded), DELETIONS_AT_ONCE)
    ]


def _more_vanished(left: int) -> Issue:
    return Issue(
        code=IssueCode.POLICY,
        message=f"a listing deletes at most {MOST_DELETIONS} documents; {left} more have vanished: send it again",
        details={"left": left},
    )


def _compare(
    files: dict[str, ListedFile], stored: dict[str, Listed]
) -> tuple[list[str], list[str], int]:
    """Paths to send, paths whose hash decides, and how many need nothing."""
    need: list[str] = []
    unsure: list[str] = []
    unchanged = 0
    for uri, file in files.items():
        known = stored.get(uri)
        if known is None or not known.settled or known.sha256 is None:
            need.append(file.path)
        elif known.bytes == file.bytes and known.mtime_ns == file.mtime_ns:
            unchanged += 1
        elif known.bytes != file.bytes or (file.sha256 is not None and file.sha256 != known.sha256):
            need.append(file.path)
        elif file.sha256 is None:
            unsure.append(file.path)
        else:
            unchanged += 1
    return need, unsure, unchanged


async def _delete(
    shared: Shared, caller: Caller, container: Writable, gone: Sequence[Listed], request_id: str
) -> list[int]:
    """Delete in one transaction; answers its job."""
    async with shared.stack.db.transaction() as conn:
        deleted = await delete_documents(
            conn,
            container.id,
            [d.doc_id for d in gone],
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
    )
    shared.stack.wake()
    return [deleted.job_id]
