"""``POST /v1/containers/add``: accept one source."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import UUID

from fastapi import APIRouter, Response

from latent_core.db import audit, uploads
from latent_core.db.connection import Connection
from latent_core.db.documents.documents import SourceInfo
from latent_core.domain.chunk import Modality
from latent_core.domain.document import accepted_meta, given_digest
from latent_core.domain.errors import Forbidden, Invalid, NotFound
from latent_core.domain.job import JobKind, JobState
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.note import is_note
from latent_core.domain.text import trouble
from latent_core.domain.versions import recipe
from latent_core.domain.web_address import WebAddress, check_port
from latent_core.ingest.accept import CORPUS_MIME, IngestPayload, PayloadAuthorship, accept
from latent_core.settings import Settings
from latent_core.wire.base import MAX_URI_BYTES
from latent_core.wire.documents import AddAnswer, AddBody
from latent_gateway.api.notes import accept_text, author_of, check_replaceable
from latent_gateway.api.sse import ended
from latent_gateway.api.uploads import guess_mime, safe_filename
from latent_gateway.auth import access
from latent_gateway.auth.access import Writable
from latent_gateway.auth.principal import Principal
from latent_gateway.context import BlobLinks, Caller, Gateway, RequestId, Shared, SignedLinks
from latent_gateway.envelope import json_answer


def check_fetchable(address: WebAddress, manifest: Manifest, settings: Settings) -> None:
    """Raises ``Forbidden`` with the setting that forbids the fetch."""
    check_port(address, settings.fetch_allow)
    if manifest.web.javascript and settings.browser_path is None:
        raise Forbidden(
            f"container '{manifest.id}' wants its pages rendered by a browser (web.javascript), and none is configured: "
            "set LLC_BROWSER_PATH to a Chromium, or web.javascript to false",
            uri=str(address),
        )


def page_name(address: WebAddress) -> str:
    """The name of a page without a title: the end of its path, else its host."""
    try:
        return safe_filename(unquote(address.last_segment))
    except Invalid:
        return f"{address.host}.html"


router = APIRouter(tags=["ingest"])

CORPUS_NAMES: Final = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class SourceBytes:
    """The location of a source's bytes."""

    filename: str
    mime: str
    sha256: str | None = None
    path: str | None = None
    url: str | None = None
    default_uri: str = ""


@router.post("/v1/containers/add", response_model=AddAnswer, status_code=202)
async def add(
    body: AddBody, shared: Shared, caller: Caller, request_id: RequestId, links: SignedLinks
) -> Response:
    """Accept a note, an upload, a file below an ingest root, or a web page. After the answer, it is stored durably."""
    return json_answer(
        await accepted(body, shared, caller, request_id, links), request_id, status=202
    )


async def accepted(
    body: AddBody, shared: Gateway, caller: Principal, request_id: str, links: BlobLinks
) -> AddAnswer:
    """The stored document and its job; after ``wait_seconds`` at most, with whether it is searchable."""
    if body.text is not None or body.messages is not None:
        answer = await accept_text(body, shared, caller, request_id, links)
    else:
        _check_no_note_fields(body)
        answer = await accept_source(body, shared, caller, request_id)
    if not body.wait_seconds:
        return answer
    job = await ended(shared.stack, answer.job_id, body.wait_seconds)
    done = job is not None and job.state is JobState.DONE
    issues = [job.cause] if job is not None and job.cause is not None and not done else []
    return answer.model_copy(update={"searchable": done, "issues": [*answer.issues, *issues]})


def _check_no_note_fields(body: AddBody) -> None:
    named = [
        f for f in ("title", "name", "if_version", "supersedes") if getattr(body, f) is not None
    ]
    if named:
        raise Invalid(f"{named[0]} is only for notes: give text, or leave {named[0]} out")


async def accept_source(
    body: AddBody, shared: Gateway, caller: Principal, request_id: str
) -> AddAnswer:
    """The document and its ingest job, once both are stored."""
    reference = _reference(body)
    async with shared.stack.db.transaction() as conn:
        container = await access.writable(conn, caller, body.container_id)
        await shared.quotas.check_queue(conn, caller)
        await shared.stack.capacity.check(conn)
        # Lock order: the container first, then the upload's row.
        await access.held(conn, container)
        if isinstance(reference, WebAddress):
            source = _page(container, reference, shared.settings)
        else:
            source = await _bytes(conn, container, reference, shared.settings.ingest_roots)
        name = safe_filename(body.filename) if body.filename else source.filename
        if not _is_image(body.modality, source.mime):
            _check_takes_text(container)
        uri = _canonical(body.source_uri or source.default_uri or file_uri(name))
        payload = IngestPayload(
            uri=uri,
            filename=name,
            mime=source.mime,
            sha256=source.sha256,
            path=source.path,
            url=source.url,
            modality=body.modality,
            accepted_at=datetime.now(UTC),
            modified_at=body.modified_at,
            mtime_ns=body.mtime_ns,
            meta=accepted_meta(container.manifest, uri, body.meta),
            given_meta=given_digest(body.meta),
            recipe=recipe(container.manifest),
            rebuild=body.rebuild,
            sealed_password=_sealed(body, shared),
            authorship=PayloadAuthorship.of(
                author_of(caller, uri, session=body.session), body.expires_at
            ),
        )
        await check_replaceable(conn, caller, container, uri)
        author = author_of(caller, uri, session=body.session)
        accepted = await accept(
            conn,
            SourceInfo(container.id, uri, source.mime, author=author, expires_at=body.expires_at),
            payload,
            kind=_kind(name, source.mime),
            principal=caller.name,
        )
        await audit.note(
            conn,
            principal=caller.name,
            token_id=caller.token_id,
            action="document.add",
            container_id=container.id,
            object_=uri,
            request_id=request_id,
        )
    shared.stack.wake()
    return AddAnswer(job_id=accepted.job_id, doc_id=accepted.doc_id, source_uri=uri)


def _sealed(body: AddBody, shared: Gateway) -> str | None:
    if body.password is None:
        return None
    return shared.stack.password_seal.seal(body.password.get_secret_value())


def _kind(name: str, mime: str) -> JobKind:
    """Whether a source is a corpus: by its name, or because the sender says so."""
    corpus = name.lower().endswith(CORPUS_NAMES) or mime == CORPUS_MIME
    return JobKind.CORPUS if corpus else JobKind.INGEST


def file_uri(name: str) -> str:
    """Canonical uri of an upload (DESIGN §4)."""
    return f"file:///{name}"


def _reference(body: AddBody) -> str | WebAddress:
    given = [value for value in (body.uri, body.file_ref) if value]
    if len(given) != 1:
        raise Invalid(
            "give one source: text, file_ref (an upload's id, or a path below an ingest root) or uri"
        )
    if body.uri is None:
        return given[0]
    scheme = _scheme(body.uri)
    if scheme in ("http", "https"):
        if body.source_uri is not None:
            raise Invalid("source_uri is only for files: the uri of a web page is its address")
        return WebAddress.parse(body.uri)
    raise Invalid(
        f"uri must be http or https, not '{scheme or body.uri[:40]}'; for a file use file_ref",
        uri=body.uri,
    )


def _is_image(modality: str, mime: str) -> bool:
    """Whether the sender declares an image; the worker checks the bytes. SVG counts as source code."""
    return modality == "image" or (mime.startswith("image/") and mime != "image/svg+xml")


def _check_takes_text(container: Writable) -> None:
    """Images need no check: every container accepts them, for their pixels or for their text."""
    if Modality.TEXT not in container.manifest.modalities:
        raise Forbidden(
            f"container '{container.id}' accepts no text: 'text' is missing in its manifest's modalities",
            modality="text",
        )


def _scheme(uri: str) -> str:
    """The scheme in lower case; empty if there is none."""
    try:
        return urlsplit(uri).scheme.lower()
    except ValueError as exc:
        raise Invalid(f"'{uri[:80]}' is not a uri: {exc}") from exc


def _canonical(uri: str) -> str:
    """A source uri in its stored form; ``Invalid`` if it looks like a path on the server."""
    if is_note(uri):
        raise Invalid(f"source_uri '{uri[:80]}' is reserved for notes: give text instead of a file")
    if trouble(uri) is not None or not _scheme(uri):
        raise Invalid(f"source_uri '{uri[:80]}' is not a uri such as file:///notes/a.md")
    if len(uri.encode()) > MAX_URI_BYTES:
        raise Invalid(f"source_uri '{uri[:80]}…' has more than {MAX_URI_BYTES} bytes")
    return uri


def _page(container: Writable, address: WebAddress, settings: Settings) -> SourceBytes:
    """A web page, whose bytes the job fetches."""
    check_fetchable(address, container.manifest, settings)
    name = page_name(address)
    return SourceBytes(name, guess_mime(name, None), url=str(address), default_uri=str(address))


async def _bytes(
    conn: Connection, container: Writable, reference: str, roots: tuple[Path, ...]
) -> SourceBytes:
    try:
        upload_id = UUID(reference)
    except ValueError:
        return await asyncio.to_thread(_below_roots, reference, roots)
    upload = await uploads.get(conn, container.id, upload_id)
    if upload is None:
        raise NotFound(
            f"file_ref '{reference}' is not an upload of container '{container.id}'; upload the file first"
        )
    return SourceBytes(upload.filename, upload.mime, sha256=upload.sha256)


def _below_roots(reference: str, roots: tuple[Path, ...]) -> SourceBytes:
    """A regular file below one of the roots, with links resolved. The error is the same for a file elsewhere and
    for a missing file."""
    for root in roots:
        path = _file_below(root, reference)
        if path is not None:
            relative = path.relative_to(root).as_posix()
            return SourceBytes(
                path.name,
                guess_mime(path.name, None),
                path=str(path),
                default_uri=file_uri(f"{root.name}/{relative}"),
            )
    hint = (
        "no ingest roots are set (LLC_INGEST_ROOTS)"
        if not roots
        else "there is no such file below LLC_INGEST_ROOTS"
    )
    raise NotFound(f"file_ref '{reference[:200]}' is not an upload, and {hint}")


def _file_below(root: Path, reference: str) -> Path | None:
    """None if the reference is not a readable file below ``root``."""
    try:
        path = (root / reference).resolve()
        return path if path.is_relative_to(root) and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long or forbidden; NUL; a loop of links
        return None
