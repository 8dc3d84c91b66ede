"""``POST /v1/containers/add``: accept one source; and listings, which keep a folder in step."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

from fastapi import APIRouter, Response

from latent_core.domain.errors import Forbidden, Invalid, NotFound
from latent_core.domain.job import JobKind
from latent_core.generations.accept import IngestPayload, accept
from latent_core.generations.delete import delete_documents
from latent_core.registry import audit, documents, uploads
from latent_core.registry.connection import Connection
from latent_core.registry.documents import Listed, Source
from latent_gateway.answers import json_answer
from latent_gateway.api.bodies import AddBody, Added, ListedFile, Listing, ListingBody
from latent_gateway.api.uploads import guess_mime, safe_filename
from latent_gateway.auth import access
from latent_gateway.auth.access import Writable
from latent_gateway.context import Caller, RequestId, Shared

router = APIRouter(tags=["ingest"])


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
        source = await _bytes(conn, container, reference, shared.settings.ingest_roots)
    name = safe_filename(body.filename) if body.filename else source.filename
    uri = _canonical(body.source_uri) if body.source_uri else source.default_uri or file_uri(name)
    kind = JobKind.CORPUS if name.lower().endswith((".jsonl", ".ndjson")) else JobKind.INGEST
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
    async with shared.stack.db.transaction() as conn:
        accepted = await accept(
            conn, Source(container.id, uri, source.mime), payload, kind=kind, principal=caller.name
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
    scheme = urlsplit(body.uri).scheme.lower()
    if scheme in ("http", "https"):
        raise Forbidden(
            "web pages are not ingested yet; save the page and upload the file", uri=body.uri
        )
    raise Invalid(
        f"uri must be http or https, not '{scheme or body.uri[:40]}'; for a file use file_ref",
        uri=body.uri,
    )


def _canonical(uri: str) -> str:
    """A source uri as it is stored; ``Invalid`` when it could be mistaken for a path of the server."""
    if any(ord(c) < 32 or 0xD800 <= ord(c) <= 0xDFFF for c in uri) or not urlsplit(uri).scheme:
        raise Invalid(f"source_uri '{uri[:80]}' is not a uri such as file:///notes/a.md")
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
    if "\x00" not in reference:
        for root in roots:
            path = (root / reference).resolve()
            if path.is_relative_to(root) and path.is_file():
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
    jobs = await _delete(shared, caller, container, [stored[uri] for uri in vanished], request_id)
    answer = Listing(
        need=need, hash=unsure, unchanged=unchanged, deleted=vanished, delete_jobs=jobs
    )
    return json_answer(answer, request_id)


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
    shared: Shared, caller: Caller, container: Writable, gone: list[Listed], request_id: str
) -> list[int]:
    if not gone:
        return []
    async with shared.stack.db.transaction() as conn:
        job_id = await delete_documents(
            conn,
            container.id,
            [d.doc_id for d in gone],
            principal=caller.name,
            lease_seconds=shared.settings.lease_seconds,
        )
        for document in gone:
            await audit.note(
                conn,
                principal=caller.name,
                action="document.delete",
                container_id=container.id,
                object_=document.uri,
                request_id=request_id,
            )
    shared.stack.wake()
    return [job_id] if job_id is not None else []
