"""``GET /v1/documents/{doc_id}/original``: a link to the bytes that a document was made from."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Response

from latent_core.db.connection import Connection
from latent_core.db.documents import originals
from latent_core.db.documents.originals import OriginalFile
from latent_core.domain.document import DocumentView
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import Sha256
from latent_core.wire.documents import OriginalAnswer
from latent_gateway.api.pages import readable_document
from latent_gateway.auth.principal import Principal
from latent_gateway.context import (
    TTL_SECONDS,
    BlobLinks,
    Caller,
    Gateway,
    RequestId,
    Shared,
    SignedLinks,
)
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["documents"])


@router.get("/v1/documents/{doc_id}/original", response_model=OriginalAnswer)
async def show_original(
    doc_id: UUID, shared: Shared, caller: Caller, request_id: RequestId, links: SignedLinks
) -> Response:
    """A link to the original: the uploaded file, the fetched page, or the text of a note or conversation.

    The link is valid for five minutes and needs no token. A record of a corpus has no original of its own.
    """
    return json_answer(await original_of(shared, caller, doc_id, links), request_id)


async def original_of(
    shared: Gateway, caller: Principal, doc_id: UUID, links: BlobLinks
) -> OriginalAnswer:
    """The original with a new link; ``NotFound`` if there is none, or none that the principal may read."""
    async with shared.stack.db.reading() as conn:
        document, stored = await readable_original(conn, caller, doc_id)
    size = await shared.stack.blobs.of(stored.bucket).size(Sha256(stored.sha256))
    if size is None:
        raise NotFound(
            f"the original of document '{doc_id}' is not stored here: add the document again",
            doc_id=str(doc_id),
        )
    return OriginalAnswer(
        doc_id=doc_id,
        source_uri=document.source_uri,
        filename=stored.filename,
        mime=stored.mime,
        bytes=size,
        sha256=stored.sha256,
        url=download_link(links, stored),
        seconds=TTL_SECONDS,
    )


def download_link(links: BlobLinks, stored: OriginalFile) -> str:
    return links.link(stored.bucket, stored.sha256, stored.mime, "attachment", stored.filename)


async def readable_original(
    conn: Connection, caller: Principal, doc_id: UUID
) -> tuple[DocumentView, OriginalFile]:
    document = await readable_document(conn, caller, doc_id)
    stored = await originals.of_document(conn, doc_id)
    if stored is None:
        raise NotFound(_why_none(document), doc_id=str(doc_id))
    return document, stored


def _why_none(document: DocumentView) -> str:
    if document.parent_id is not None:
        return (
            f"document '{document.doc_id}' is a record of a JSONL file and has no original of its own: "
            f"download the file, document '{document.parent_id}'"
        )
    if document.failure is not None:
        return f"document '{document.doc_id}' has no original, because it failed: {document.failure.cause}"
    return f"document '{document.doc_id}' is {document.state.value} and has no original yet"
