"""The asynchronous client of the HTTP API: one method per route (docs/api.md).

A method returns the object that its route answers with, such as a job, or else the whole answer. It raises
the classes of ``latent_core.domain.errors`` with the server's message.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from pydantic import ValidationError

from latent_client.access import AccessCalls
from latent_client.evaluation import EvaluationCalls
from latent_client.files import read_blocks
from latent_client.folder import IndexReport, SyncConsent, ensure_index_up_to_date
from latent_client.jobs import JobCalls
from latent_client.operations import OperationCalls
from latent_client.processing import ProcessingCalls
from latent_client.questions import QuestionCalls
from latent_client.resumable import PART_BYTES, ResumableUploadCalls, size_of
from latent_client.retry import OnRetry
from latent_client.searches import SearchCalls
from latent_client.selections import SelectionCalls
from latent_client.sources import SourceCalls
from latent_client.transfers import TransferCalls
from latent_client.transport import DEFAULT_URL, Blob, GatewayClient, part
from latent_client.understanding import UnderstandingCalls
from latent_client.waiting import HOUR
from latent_core.domain.chunk import SourceType
from latent_core.domain.document import DocumentState, DocumentView
from latent_core.domain.document_order import DocumentOrder
from latent_core.domain.errors import Unavailable
from latent_core.domain.findings import DoctorReport
from latent_core.domain.golden import GoldenSet
from latent_core.domain.manifest.model import Manifest
from latent_core.wire.chunks import ChunkAnswer, ChunkPage, ChunkView, SizesAnswer
from latent_core.wire.container_sizes import StoreSizes, StoreSizesAnswer
from latent_core.wire.containers import (
    ContainerCreated,
    ContainerList,
    ContainerSummary,
    ContainerUpdated,
    DescribedContainer,
)
from latent_core.wire.doctor import DoctorAnswer, ReadinessAnswer, ToolList, ToolView
from latent_core.wire.documents import (
    AddAnswer,
    DeletedPage,
    DeletedView,
    DeletionAnswer,
    DocumentAnswer,
    DocumentPage,
    ListedFile,
    ListingAnswer,
    OriginalAnswer,
    OutlineAnswer,
    UploadAnswer,
    UploadView,
)
from latent_core.wire.jobs import JobAccepted
from latent_core.wire.manifest_plan import ManifestPlan, ManifestPlanAnswer
from latent_core.wire.pages import (
    PageAnswer,
    PageBoxesAnswer,
    PagePdfAnswer,
    PagesPage,
    PageView,
)
from latent_core.wire.refresh import PlanAnswer, RefreshAnswer, RefreshRequest, RollbackAnswer

DOCTOR_SECONDS: Final = 6 * HOUR
"""The answer arrives when the comparison ends. A client that gives up earlier cannot start another one meanwhile."""
PAGE_PDF_SECONDS: Final = 10.0
PAGE_BOXES_SECONDS: Final = 5.0
UNKNOWN_MIME: Final = "application/octet-stream"
"""The server then detects the type by the file name."""


class AsyncClient(
    AccessCalls,
    EvaluationCalls,
    JobCalls,
    OperationCalls,
    ProcessingCalls,
    QuestionCalls,
    UnderstandingCalls,
    ResumableUploadCalls,
    SearchCalls,
    SelectionCalls,
    SourceCalls,
    TransferCalls,
    GatewayClient,
):
    """A gateway at ``url``. Use it as an async context manager, or ``close`` it."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        timeout_seconds: float = 60.0,
        on_retry: OnRetry | None = None,
        batch: str | None = None,
        data_dir: Path | None = None,
    ) -> None:
        """As of every client; ``data_dir`` holds the list of synced folders, default ``LLC_DATA_DIR``."""
        super().__init__(
            url, token, timeout_seconds=timeout_seconds, on_retry=on_retry, batch=batch
        )
        self._data_dir = data_dir

    @property
    def data_dir(self) -> Path:
        if self._data_dir is None:
            # The client knows no Settings; the CLI gives it their data directory.
            given = os.environ.get("LLC_DATA_DIR") or "~/.latent"  # noqa: TID251
            self._data_dir = Path(given).expanduser()
        return self._data_dir

    # containers

    async def containers(self) -> list[ContainerSummary]:
        answer = await self._transport.ask(ContainerList, "GET", "/v1/containers/list")
        return answer.containers

    async def describe(self, container_id: str) -> DescribedContainer:
        query = {"container_id": container_id}
        return await self._transport.ask(
            DescribedContainer, "GET", "/v1/containers/describe", query=query
        )

    async def create(
        self, manifest: Manifest, *, golden: GoldenSet | None = None
    ) -> ContainerCreated:
        """Raises ``Conflict`` if the container exists, also if an earlier call created it and its answer was lost.
        ``golden`` becomes the container's golden queries."""
        body: dict[str, Any] = {"manifest": _written_keys(manifest)}
        if golden is not None:
            body["golden"] = golden.written()
        return await self._transport.ask(ContainerCreated, "POST", "/v1/containers", json=body)

    async def update(self, manifest: Manifest, *, if_match: str) -> ContainerUpdated:
        """Replace the manifest of ``manifest.id``. Raises ``PreconditionFailed`` if its etag differs from ``if_match``."""
        return await self._transport.ask(
            ContainerUpdated,
            "PUT",
            f"/v1/containers/{part(manifest.id)}",
            json={"manifest": _written_keys(manifest)},
            headers={"If-Match": f'"{if_match}"'},
        )

    async def plan(self, manifest: Manifest) -> ManifestPlan:
        """What ``update`` with this manifest would change, and what it takes until stored documents follow."""
        path = f"/v1/containers/{part(manifest.id)}/plan"
        body = {"manifest": _written_keys(manifest)}
        answer = await self._transport.ask(
            ManifestPlanAnswer, "POST", path, json=body, repeatable=True
        )
        return answer.plan

    async def store_sizes(self, container_id: str, *, days: int = 90) -> list[StoreSizes]:
        """What the container takes in each store, one measurement per day, oldest first."""
        path = f"/v1/containers/{part(container_id)}/sizes"
        answer = await self._transport.ask(StoreSizesAnswer, "GET", path, query={"days": days})
        return answer.sizes

    async def delete(self, container_id: str) -> JobAccepted:
        return await self._transport.ask(
            JobAccepted, "DELETE", f"/v1/containers/{part(container_id)}"
        )

    # content

    async def upload(
        self,
        container_id: str,
        file: Path,
        *,
        filename: str | None = None,
        mime: str = UNKNOWN_MIME,
    ) -> UploadView:
        """Send the bytes of ``file`` to the gateway: over 8 MB in parts, which survives a lost connection."""
        if await size_of(file) > PART_BYTES:
            named = mime if mime != UNKNOWN_MIME else None
            return await self.upload_in_parts(container_id, file, filename=filename, mime=named)
        answer = await self._transport.ask(
            UploadAnswer,
            "POST",
            f"/v1/containers/{part(container_id)}/uploads",
            query={"filename": filename or file.name},
            headers={"Content-Type": mime},
            body=lambda: read_blocks(file),
            repeatable=True,  # an upload that nothing refers to is removed
        )
        return answer.upload

    async def add(
        self,
        container_id: str,
        *,
        file_ref: str | None = None,
        uri: str | None = None,
        text: str | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        title: str | None = None,
        name: str | None = None,
        session: str | None = None,
        expires_at: datetime | None = None,
        if_version: int | None = None,
        supersedes: UUID | None = None,
        wait_seconds: float = 0,
        modality: str = "auto",
        source_uri: str | None = None,
        filename: str | None = None,
        modified_at: datetime | None = None,
        mtime_ns: int | None = None,
        meta: dict[str, Any] | None = None,
        rebuild: bool = False,
        password: str | None = None,
    ) -> AddAnswer:
        """Ingest an upload (``file_ref``), a web address (``uri``) a note (``text``) or a conversation
        (``messages``), which ``name`` identifies. With
        ``rebuild``, also if it is unchanged. ``password`` opens an encrypted PDF or Office file; it is not kept."""
        body = {
            "container_id": container_id,
            "file_ref": file_ref,
            "uri": uri,
            "text": text,
            "messages": None if messages is None else [dict(message) for message in messages],
            "title": title,
            "name": name,
            "session": session,
            "expires_at": expires_at.isoformat() if expires_at else None,
            "if_version": if_version,
            "supersedes": str(supersedes) if supersedes else None,
            "wait_seconds": wait_seconds or None,
            "modality": modality,
            "source_uri": source_uri,
            "filename": filename,
            "modified_at": modified_at.isoformat() if modified_at else None,
            "mtime_ns": mtime_ns,
            "meta": meta,
            "rebuild": rebuild or None,
            "password": password,
        }
        given = {name: value for name, value in body.items() if value is not None}
        return await self._transport.ask(
            AddAnswer,
            "POST",
            "/v1/containers/add",
            json=given,
            # A note of which another version is current by now would be refused the second time.
            repeatable=if_version is None,
        )

    async def listing(
        self,
        container_id: str,
        root: str,
        files: Sequence[ListedFile],
        *,
        after: str | None = None,
        through: str | None = None,
        delete_vanished: bool = False,
        count_vanished: bool = False,
        source: UUID | None = None,
        allow_deletions: bool = False,
    ) -> ListingAnswer:
        """Announce the files of a folder. With ``delete_vanished``, all others below ``root`` are deleted: more than
        20 that are more than 30 % of all only with ``allow_deletions``. ``source`` is the one that has ``root``.

        ``after`` (exclusive) and ``through`` (inclusive) limit the call to paths between them, ordered by
        code point. If the answer is ``partial``, send the same call again.
        """
        body: dict[str, Any] = {
            "root": root,
            "files": [file.model_dump(exclude_none=True) for file in files],
            "delete_vanished": delete_vanished,
            "count_vanished": count_vanished,
        }
        body |= {"allow_deletions": True} if allow_deletions else {}
        body |= {} if source is None else {"source": str(source)}
        body |= {} if after is None else {"after": after}
        body |= {} if through is None else {"through": through}
        path = f"/v1/containers/{part(container_id)}/listing"
        return await self._transport.ask(ListingAnswer, "POST", path, json=body, repeatable=True)

    async def documents(
        self,
        container_id: str,
        *,
        uri_prefix: str | None = None,
        path_like: str | None = None,
        source_types: Sequence[SourceType] = (),
        state: DocumentState | None = None,
        written_by: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        order: DocumentOrder = DocumentOrder.ID,
    ) -> AsyncIterator[DocumentView]:
        """Documents in that order; ``path_like`` is a glob or a part of the path, ``since`` and ``until`` are about
        when the content was added."""
        path = f"/v1/containers/{part(container_id)}/documents"
        query = {
            "uri_prefix": uri_prefix,
            "path": path_like,
            "source_type": [one.value for one in source_types],
            "state": state,
            "written_by": written_by,
            "since": since.isoformat() if since else None,
            "until": until.isoformat() if until else None,
            "order": order,
        }
        async for page in self._pages(DocumentPage, path, **query):
            for document in page.documents:
                yield document

    async def document(self, container_id: str, doc_id: UUID) -> DocumentView:
        path = f"/v1/containers/{part(container_id)}/documents/{doc_id}"
        return (await self._transport.ask(DocumentAnswer, "GET", path)).document

    async def outline(self, container_id: str, doc_id: UUID) -> OutlineAnswer:
        """The headings of a document, with the lines and pages of their sections."""
        path = f"/v1/containers/{part(container_id)}/documents/{doc_id}/outline"
        return await self._transport.ask(OutlineAnswer, "GET", path)

    async def delete_document(
        self, container_id: str, doc_id: UUID, *, now: bool = False
    ) -> DeletionAnswer:
        """Delete a document. Unless ``now``, it can be restored for 30 days."""
        path = f"/v1/containers/{part(container_id)}/documents/{doc_id}"
        query = {"now": "true"} if now else {}
        return await self._transport.ask(DeletionAnswer, "DELETE", path, query=query)

    async def trash(self, container_id: str, *, limit: int = 100) -> list[DeletedView]:
        """Deleted documents that can be restored, newest deletion first."""
        path = f"/v1/containers/{part(container_id)}/trash"
        answer = await self._transport.ask(DeletedPage, "GET", path, query={"limit": limit})
        return answer.documents

    async def restore_document(self, container_id: str, doc_id: UUID) -> JobAccepted:
        """Restore a deleted document; it is visible when the job is done."""
        path = f"/v1/containers/{part(container_id)}/documents/{doc_id}/restore"
        return await self._transport.ask(JobAccepted, "POST", path)

    async def chunks(
        self,
        container_id: str,
        *,
        doc_id: UUID | None = None,
        source_uri: str | None = None,
        source_type: str | None = None,
        block_type: str | None = None,
        heading_path: str | None = None,
        parent_section: str | None = None,
        table_id: str | None = None,
        page: int | None = None,
        contains: str | None = None,
        duplicates: bool | None = None,
        generated: bool | None = None,
        meta: Mapping[str, str] | None = None,
    ) -> AsyncIterator[ChunkView]:
        """Stored chunks that match all arguments. ``source_uri`` is a prefix; ``meta`` compares fields for equality.

        ``heading_path`` is a whole path such as ``Guide > Install``.
        """
        path = f"/v1/containers/{part(container_id)}/chunks"
        params = {
            "doc_id": str(doc_id) if doc_id else None,
            "source_uri": source_uri,
            "source_type": source_type,
            "block_type": block_type,
            "heading_path": heading_path,
            "parent_section": parent_section,
            "table_id": table_id,
            "page": str(page) if page is not None else None,
            "contains": contains,
            "duplicates": str(duplicates).lower() if duplicates is not None else None,
            "generated": str(generated).lower() if generated is not None else None,
            **{f"meta.{name}": value for name, value in (meta or {}).items()},
        }
        async for found in self._pages(ChunkPage, path, **params):
            for chunk in found.chunks:
                yield chunk

    async def chunk(self, container_id: str, chunk_id: UUID) -> ChunkView:
        path = f"/v1/containers/{part(container_id)}/chunks/{chunk_id}"
        return (await self._transport.ask(ChunkAnswer, "GET", path)).chunk

    async def chunk_sizes(self, container_id: str, *, doc_id: UUID | None = None) -> SizesAnswer:
        path = f"/v1/containers/{part(container_id)}/chunks/stats"
        query = {"doc_id": str(doc_id) if doc_id else None}
        return await self._transport.ask(SizesAnswer, "GET", path, query=query)

    async def page(self, doc_id: UUID, number: int) -> PageView:
        """Page ``number`` of a document, counted from 1."""
        path = f"/v1/documents/{doc_id}/pages/{number}"
        return (await self._transport.ask(PageAnswer, "GET", path)).page

    async def pages(self, doc_id: UUID) -> AsyncIterator[PagesPage]:
        """All pages of a document in batches, with links to their images."""
        async for page in self._pages(PagesPage, f"/v1/documents/{doc_id}/pages"):
            yield page

    async def page_pdf(
        self, doc_id: UUID, number: int, *, wait_seconds: float = PAGE_PDF_SECONDS
    ) -> PagePdfAnswer:
        """A link to page ``number`` of a PDF as a separate file. If it takes longer: ``pending`` and the job."""
        query = {"wait_ms": round(wait_seconds * 1000)}
        path = f"/v1/documents/{doc_id}/pages/{number}/pdf"
        return await self._transport.ask(PagePdfAnswer, "GET", path, query=query)

    async def page_boxes(
        self,
        doc_id: UUID,
        number: int,
        *,
        chunk_id: UUID | None = None,
        query: str = "",
        wait_seconds: float = PAGE_BOXES_SECONDS,
    ) -> PageBoxesAnswer:
        """Boxes around a chunk's passage on the image of page ``number``, and around the words of ``query`` in it. If
        it takes longer: ``pending`` and the job that reads the page."""
        values = {
            "chunk": str(chunk_id) if chunk_id else None,
            "q": query or None,
            "wait_ms": round(wait_seconds * 1000),
        }
        path = f"/v1/documents/{doc_id}/pages/{number}/boxes"
        return await self._transport.ask(PageBoxesAnswer, "GET", path, query=values)

    async def original(self, doc_id: UUID) -> OriginalAnswer:
        """A link to the bytes that a document was made from; ``download_original`` writes them to a file."""
        return await self._transport.ask(OriginalAnswer, "GET", f"/v1/documents/{doc_id}/original")

    async def fetch(self, link: str) -> Blob:
        """The bytes behind a signed link, such as a hit's ``page_uri``."""
        response = await self._transport.fetch(link)
        return Blob(mime=response.headers.get("content-type", ""), content=response.content)

    # folders

    async def ensure_index_up_to_date(
        self,
        container_id: str,
        folder: Path,
        root_name: str | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        consent: SyncConsent = SyncConsent(),
        timeout_seconds: float = HOUR,
    ) -> IndexReport:
        """Sync ``folder`` to the documents of a root and wait until they are searchable."""
        return await ensure_index_up_to_date(
            self,
            container_id,
            folder,
            root_name,
            meta=meta,
            consent=consent,
            timeout_seconds=timeout_seconds,
        )

    # refresh

    async def refresh(
        self, container_id: str, request: RefreshRequest, *, dry_run: bool = False
    ) -> RefreshAnswer | PlanAnswer:
        """Start a refresh. Raises ``Conflict`` if one is running. ``dry_run`` only estimates the cost."""
        body = request.model_dump(mode="json", exclude_none=True)
        return await self._transport.ask(
            PlanAnswer if dry_run else RefreshAnswer,
            "POST",
            "/v1/admin/refresh",
            json={"container_id": container_id, "dry_run": dry_run, **body},
        )

    async def rollback(self, container_id: str) -> RollbackAnswer:
        """Switch back to the previous vector space at once. Raises ``Conflict`` if there is none."""
        return await self._transport.ask(
            RollbackAnswer, "POST", "/v1/admin/rollback", json={"container_id": container_id}
        )

    # operations

    async def doctor(
        self, container_id: str | None = None, *, repair: bool = False, deep: bool = False
    ) -> DoctorReport:
        """Every difference between the stores. ``deep`` reads all bytes; the call waits until that is finished."""
        body: dict[str, Any] = {"container_id": container_id} if container_id else {}
        body |= {"repair": True} if repair else {}
        body |= {"deep": True} if deep else {}
        answer = await self._transport.ask(
            DoctorAnswer,
            "POST",
            "/v1/admin/doctor",
            json=body,
            repeatable=True,
            read_seconds=DOCTOR_SECONDS,
        )
        try:
            return DoctorReport.model_validate(answer.report)
        except ValidationError as exc:
            raise Unavailable(f"the report of doctor cannot be parsed: {exc}") from exc

    async def healthy(self) -> bool:
        """Whether the gateway answers."""
        return (await self._transport.call("GET", "/healthz")).is_success

    async def readiness(self) -> ReadinessAnswer:
        """State of the backing services, also if one of them is down."""
        response = await self._transport.call("GET", "/readyz", accept=frozenset({503}))
        return ReadinessAnswer.model_validate_json(response.content)

    async def tools(self) -> list[ToolView]:
        """The tools that this token may call over MCP."""
        return (await self._transport.ask(ToolList, "GET", "/mcp/tools")).tools

    async def metrics(self) -> str:
        """Prometheus text."""
        return (await self._transport.call("GET", "/metrics")).text


def _written_keys(manifest: Manifest) -> dict[str, Any]:
    """Only the keys that the author wrote: the server adds the defaults."""
    return manifest.model_dump(mode="json", exclude_unset=True)
