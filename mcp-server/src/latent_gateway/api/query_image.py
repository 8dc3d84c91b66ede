"""The image of a query: its pixels for embedders that read images, and its text, which becomes part of the query.

``image_ref`` is the id of an upload to one of the searched containers, the id of a document, or
``page://<doc_id>/<n>``. Stored documents have their text. A worker reads an upload by OCR once, if a searched
container's embedder does not read images.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final
from uuid import UUID

from latent_core.db import uploads
from latent_core.db.documents import chunk_texts, image_texts, pages
from latent_core.db.uploads import Upload
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import Invalid, Issue, IssueCode, LatentError, NotFound
from latent_core.domain.ids import Sha256
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import reads_images
from latent_core.ingest.processing import MAX_CHARS, request_reading
from latent_core.models.embedding.picture import media_type
from latent_core.search.embed import EmbeddedQueryImage, QueryImage
from latent_core.search.readable import Readable
from latent_core.wire.search import SearchRequest
from latent_gateway.api.pages import page_of, readable_document
from latent_gateway.api.sse import ended
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Gateway

_PAGE: Final = re.compile(r"page://([^/]{1,64})/([0-9]{1,9})")
_DOCUMENT: Final = "document://"
MAX_BYTES: Final = 20 * 1024 * 1024
"""Of an uploaded image that embedders receive."""
_QUOTES: Final = str.maketrans(dict.fromkeys('"\u201c\u201d\u201e\u00ab\u00bb', " "))
"""Text in quotes is an exact phrase; the text of an image must not contain any."""


@dataclass(frozen=True, slots=True)
class _ImageReference:
    """What ``image_ref`` names: its text if it is stored, and its pixels if they were drawn or uploaded."""

    text: str | None
    sha256: str | None
    bucket: str = ""
    upload: Upload | None = None


async def query_image(
    shared: Gateway, caller: Principal, request: SearchRequest, searched: Mapping[str, Readable]
) -> QueryImage:
    """What ``image_ref`` names. ``NotFound`` both for missing images and for those that the caller may not read."""
    begun = perf_counter()
    ref = request.image_ref or ""
    found = await _found(shared, caller, ref, searched)
    spaces = [container.space for container in searched.values()]
    looking = [reads_images(space.embedder, space.version) for space in spaces]
    picture, issue = await _picture(shared, found, request.query) if any(looking) else (None, None)
    text = found.text or ""
    if found.upload is not None and not (picture is not None and all(looking)):
        text, unread = await _of_upload(shared, caller, found.upload)
        issue = unread or issue
    shown = _bounded(text)
    if not shown and issue is None and not (picture is not None and all(looking)):
        issue = Issue(
            code=IssueCode.NO_HITS,
            message="the image of image_ref has no text: describe in the query what it shows",
            details={"image_ref": ref},
        )
    return QueryImage(shown, issue, picture, round((perf_counter() - begun) * 1000, 3))


async def _found(
    shared: Gateway, caller: Principal, ref: str, searched: Mapping[str, Readable]
) -> _ImageReference:
    page = _PAGE.fullmatch(ref)
    if page is not None:
        row = (await page_of(shared, caller, _id(page[1], ref), int(page[2]))).row
        return _ImageReference(str(row["text"]), row["image_sha256"], row["bucket"] or "")
    named = _id(ref.removeprefix(_DOCUMENT), ref)
    async with shared.stack.db.reading() as conn:
        upload = await uploads.among(conn, list(searched), named)
    if upload is not None:
        return _ImageReference(None, upload.sha256, upload.bucket, upload)
    return await _of_document(shared, caller, named)


async def _picture(
    shared: Gateway, found: _ImageReference, words: str
) -> tuple[EmbeddedQueryImage | None, Issue | None]:
    """The bytes for embedders. An upload is passed on unchanged: nothing is decoded here."""
    if found.sha256 is None:
        return None, None
    upload = found.upload
    if upload is not None and upload.bytes > MAX_BYTES:
        return None, _issue(
            IssueCode.INVALID,
            f"'{upload.filename}' is larger than {MAX_BYTES} bytes, the limit of query images: scale it down",
        )
    try:
        image = await shared.stack.blobs.of(found.bucket).get(Sha256(found.sha256))
        media_type(image)
    except LatentError as error:  # another format, a missing blob, or the store does not answer
        return None, _issue(error.code, error.message)
    return EmbeddedQueryImage(image, found.sha256, words), None


def _id(written: str, ref: str) -> UUID:
    try:
        return UUID(written)
    except ValueError as exc:
        raise Invalid(
            f"image_ref '{ref[:100]}' is invalid: give the id of an upload to one of the searched containers, the id of "
            "a document, or page://<doc_id>/<page>"
        ) from exc


async def _of_document(shared: Gateway, caller: Principal, doc_id: UUID) -> _ImageReference:
    async with shared.stack.db.transaction() as conn:
        try:
            document = await readable_document(conn, caller, doc_id)
        except NotFound as exc:
            raise NotFound(
                f"image_ref '{doc_id}' is neither an upload to the searched containers nor a document that you may read",
                image_ref=str(doc_id),
            ) from exc
        text = "\n".join(await chunk_texts.beginning(conn, doc_id, MAX_CHARS))
        if document.source_type != SourceType.IMAGE:
            return _ImageReference(text, None)  # no single image shows the whole document
        row = await pages.one(conn, doc_id, 1)
        if row is None:
            return _ImageReference(text, None)
        return _ImageReference(text, row["image_sha256"], row["bucket"] or "")


async def _of_upload(
    shared: Gateway, caller: Principal, upload: Upload
) -> tuple[str, Issue | None]:
    """The text of an upload: from an earlier read, or from a job that reads it now within the search's time limit."""
    async with shared.stack.db.transaction() as conn:
        text = await image_texts.latest(conn, upload.sha256)
        if text is not None:
            return text, None
        await shared.quotas.check_queue(conn, caller)
        job_id = await request_reading(conn, upload, principal=caller.name)
    shared.stack.wake()
    job = await ended(shared.stack, job_id, shared.settings.search_seconds)
    async with shared.stack.db.reading() as conn:
        text = await image_texts.latest(conn, upload.sha256)
    if text is not None:
        return text, None
    if job is None:
        return "", _issue(
            IssueCode.TIMEOUT,
            f"job {job_id} is still reading the image: search again with the same image_ref",
            job_id=str(job_id),
        )
    if job.state is JobState.FAILED and job.cause is not None:
        return "", _issue(job.cause.code, job.cause.message, job_id=str(job_id))
    return "", _issue(
        IssueCode.INGEST_FAIL,
        f"the image was not read, because job {job_id} was {job.state.value}: search again",
        job_id=str(job_id),
    )


def _issue(code: IssueCode, message: str, **details: Any) -> Issue:
    return Issue(code=code, message=message, details=details)


def _bounded(text: str) -> str:
    """The beginning, cut at a word, without quotes."""
    plain = text.translate(_QUOTES).strip()
    if len(plain) <= MAX_CHARS:
        return plain
    return (plain[: MAX_CHARS + 1].rsplit(None, 1) or [""])[0][:MAX_CHARS]
