"""Calls for what language models make of documents: status, and page extraction of selected ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final
from uuid import UUID

from latent_client.streams import follow_documents
from latent_client.transport import ClientCalls, part
from latent_core.domain.errors import Unavailable
from latent_core.domain.generated import GeneratedGroup
from latent_core.domain.ids import JobId
from latent_core.domain.understanding import DocumentUnderstanding, UnderstandingTotals
from latent_core.wire.jobs import JobAccepted
from latent_core.wire.understanding import (
    MAX_SUMMARISED,
    DocumentSummaryAnswer,
    DropGeneratedBody,
    ExtractAnswer,
    ExtractionAnswer,
    ExtractionView,
    FoundPage,
    FoundPages,
    SummariseAnswer,
    SummariseBody,
    SummaryJob,
    SummaryView,
    UnderstandingPage,
)

STATUS: Final = "/v1/admin/understanding"
EXTRACT: Final = "/v1/admin/extract"
SUMMARISE: Final = "/v1/admin/summarise"
DROP: Final = "/v1/admin/drop-generated"


class UnderstandingCalls(ClientCalls):
    """Calls for the owners of a container; pages are for its readers."""

    async def find_pages(
        self,
        container_id: str,
        *,
        text: str | None = None,
        page: int | None = None,
        doc_ids: Collection[UUID] = (),
    ) -> AsyncIterator[FoundPage]:
        """Pages that contain ``text``, in the source or in their extraction; or pages of that number."""
        ids = [str(doc_id) for doc_id in doc_ids] or None
        path = f"/v1/containers/{part(container_id)}/pages"
        number = None if page is None else str(page)
        async for found in self._pages(FoundPages, path, text=text, page=number, doc_id=ids):
            for one in found.pages:
                yield one

    async def page_extraction(self, doc_id: UUID, number: int) -> ExtractionView:
        """What a language model said about a page, or why its answer was refused."""
        path = f"/v1/documents/{doc_id}/pages/{number}/extraction"
        return (await self._transport.ask(ExtractionAnswer, "GET", path)).page

    async def understanding(self, container_id: str) -> AsyncIterator[DocumentUnderstanding]:
        """How far the summary and the extracted pages of each document are."""
        async for page in self._pages(UnderstandingPage, STATUS, container_id=container_id):
            for document in page.documents:
                yield document

    async def understanding_totals(self, container_id: str) -> UnderstandingTotals:
        """The same of the whole container, with the tokens and the cost of all calls."""
        query: dict[str, str | int | list[str] | None] = {"container_id": container_id, "limit": 1}
        page = await self._transport.ask(UnderstandingPage, "GET", STATUS, query=query)
        if page.totals is None:
            raise Unavailable(
                "the gateway sent no totals; use client and gateway of the same release"
            )
        return page.totals

    async def extract(
        self,
        container_id: str,
        doc_ids: Collection[UUID],
        *,
        pages: Sequence[int] | None = None,
        force: bool = False,
    ) -> ExtractAnswer:
        """Have pages described by the container's language model. Returns the jobs."""
        body = _body(container_id, doc_ids, pages, force=force, stream=False)
        return await self._transport.ask(ExtractAnswer, "POST", EXTRACT, json=body, repeatable=True)

    async def summarise(
        self, container_id: str, doc_ids: Collection[UUID] | None = None, *, force: bool = False
    ) -> AsyncIterator[SummaryJob]:
        """Have these documents summarised, or all that have no summary. Yields the jobs."""
        chosen = None if doc_ids is None else list(doc_ids)
        parts = (
            [None]
            if chosen is None
            else [chosen[n : n + MAX_SUMMARISED] for n in range(0, len(chosen), MAX_SUMMARISED)]
        )
        for ids in parts:
            after: UUID | None = None
            while True:
                body = SummariseBody(
                    container_id=container_id, doc_ids=ids, after=after, force=force
                ).model_dump(mode="json")
                answer = await self._transport.ask(
                    SummariseAnswer, "POST", SUMMARISE, json=body, repeatable=True
                )
                for job in answer.jobs:
                    yield job
                after = answer.next
                if after is None:
                    break

    async def summary(self, container_id: str, doc_id: UUID) -> SummaryView:
        """The summary of a document, or why there is none."""
        path = f"/v1/containers/{part(container_id)}/documents/{doc_id}/summary"
        return (await self._transport.ask(DocumentSummaryAnswer, "GET", path)).summary

    async def drop_generated(
        self,
        container_id: str,
        group: GeneratedGroup,
        doc_ids: Collection[UUID] | None = None,
    ) -> JobId:
        """Remove what language models wrote about these documents, or about all. Returns the job."""
        body = DropGeneratedBody(
            container_id=container_id,
            group=group,
            doc_ids=None if doc_ids is None else list(doc_ids),
        ).model_dump(mode="json")
        answer = await self._transport.ask(JobAccepted, "POST", DROP, json=body)
        return JobId(answer.job_id)

    async def follow_extraction(
        self,
        container_id: str,
        doc_ids: Collection[UUID],
        *,
        pages: Sequence[int] | None = None,
        force: bool = False,
    ) -> AsyncIterator[DocumentUnderstanding]:
        """The same, and the state of each document when it changes, until all jobs have ended."""
        body = _body(container_id, doc_ids, pages, force=force, stream=True)
        unfinished = (
            "the stream ended before all documents were extracted; `understanding` has their state"
        )
        async for status in follow_documents(
            self._transport, EXTRACT, body, DocumentUnderstanding, unfinished
        ):
            yield status


def _body(
    container_id: str,
    doc_ids: Collection[UUID],
    pages: Sequence[int] | None,
    *,
    force: bool,
    stream: bool,
) -> dict[str, object]:
    return {
        "container_id": container_id,
        "doc_ids": [str(doc_id) for doc_id in doc_ids],
        "pages": None if pages is None else list(pages),
        "force": force,
        "stream": stream,
    }
