"""Calls for the processing state of PDFs and for processing selected ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Final
from uuid import UUID

from latent_client.streams import follow_documents
from latent_client.transport import ClientCalls
from latent_core.domain.errors import Unavailable
from latent_core.domain.pdf_status import PdfState, PdfStatus, PdfTotals
from latent_core.wire.pages import PdfStatusPage, ProcessAnswer

PATH: Final = "/v1/admin/process-selected"


class ProcessingCalls(ClientCalls):
    """Calls for the owners of a container."""

    async def pdf_status(
        self, container_id: str | None = None, *, states: Collection[PdfState] = ()
    ) -> AsyncIterator[PdfStatus]:
        """PDFs of one container, or of all containers that the caller owns, by default in all states."""
        status = sorted(state.value for state in states) or None
        path = "/v1/admin/pdf-status"
        async for page in self._pages(
            PdfStatusPage, path, container_id=container_id, status=status
        ):
            for document in page.documents:
                yield document

    async def pdf_totals(self, container_id: str | None = None) -> PdfTotals:
        """Counts of the same PDFs."""
        query: dict[str, str | int | list[str] | None] = {"container_id": container_id, "limit": 1}
        page = await self._transport.ask(PdfStatusPage, "GET", "/v1/admin/pdf-status", query=query)
        if page.totals is None:
            raise Unavailable(
                "the gateway sent no totals; use client and gateway of the same release"
            )
        return page.totals

    async def process_selected(self, container_id: str, doc_ids: Collection[UUID]) -> ProcessAnswer:
        """Process PDFs completely, text and page images. Returns the jobs."""
        body = _body(container_id, doc_ids, stream=False)
        return await self._transport.ask(ProcessAnswer, "POST", PATH, json=body, repeatable=True)

    async def follow_selected(
        self, container_id: str, doc_ids: Collection[UUID]
    ) -> AsyncIterator[PdfStatus]:
        """Process PDFs and yield the state of each one when it changes, until all jobs have ended.

        If the connection breaks, call it again: it joins the running jobs.
        """
        body = _body(container_id, doc_ids, stream=True)
        unfinished = (
            "the stream ended before all documents were processed; call again to follow them"
        )
        async for status in follow_documents(self._transport, PATH, body, PdfStatus, unfinished):
            yield status


def _body(container_id: str, doc_ids: Collection[UUID], *, stream: bool) -> dict[str, object]:
    return {
        "container_id": container_id,
        "doc_ids": [str(doc_id) for doc_id in doc_ids],
        "stream": stream,
    }
