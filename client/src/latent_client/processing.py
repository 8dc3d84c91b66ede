"""How far PDFs are, and having some of them finished."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import aclosing
from typing import Final
from uuid import UUID

from pydantic import ValidationError

from latent_client.streams import read_events
from latent_client.transport import ClientCalls
from latent_core.domain.errors import Unavailable
from latent_core.domain.pdf_status import PdfState, PdfStatus, PdfTotals
from latent_core.wire.processing import PdfStatusPage, ProcessAnswer

PATH: Final = "/v1/admin/process-selected"
QUIET_SECONDS: Final = 60.0
"""Of silence: the server says something every quarter of a minute."""


class ProcessingCalls(ClientCalls):
    """Routes of the owner of a container."""

    async def pdf_status(
        self, container_id: str | None = None, *, states: Collection[PdfState] = ()
    ) -> AsyncIterator[PdfStatus]:
        """PDFs of one container, or of all that are owned; by default in all states."""
        status = sorted(state.value for state in states) or None
        path = "/v1/admin/pdf-status"
        async for page in self._pages(
            PdfStatusPage, path, container_id=container_id, status=status
        ):
            for document in page.documents:
                yield document

    async def pdf_totals(self, container_id: str | None = None) -> PdfTotals:
        """Of the same PDFs, counted."""
        query: dict[str, str | int | list[str] | None] = {"container_id": container_id, "limit": 1}
        page = await self._transport.ask(PdfStatusPage, "GET", "/v1/admin/pdf-status", query=query)
        if page.totals is None:
            raise Unavailable("the gateway told no totals: it is of another version")
        return page.totals

    async def process_selected(self, container_id: str, doc_ids: Collection[UUID]) -> ProcessAnswer:
        """Have PDFs read and drawn to their end; the jobs that do it, to be waited for or not."""
        body = _body(container_id, doc_ids, stream=False)
        return await self._transport.ask(ProcessAnswer, "POST", PATH, json=body, repeatable=True)

    async def follow_selected(
        self, container_id: str, doc_ids: Collection[UUID]
    ) -> AsyncIterator[PdfStatus]:
        """The same, and how far each has come whenever that changes, until no job works on any.

        When the connection breaks off, ask again: to select what is being processed is to join it.
        """
        body = _body(container_id, doc_ids, stream=True)
        async with (
            self._transport.stream(
                PATH, method="POST", json=body, read_seconds=QUIET_SECONDS
            ) as response,
            aclosing(read_events(response.aiter_bytes())) as events,
        ):
            async for event in events:
                if event.event == "document":
                    yield _status(event.data)
                elif event.event == "end":
                    return
        raise Unavailable("the stream ended before the documents were done: ask again")


def _body(container_id: str, doc_ids: Collection[UUID], *, stream: bool) -> dict[str, object]:
    return {
        "container_id": container_id,
        "doc_ids": [str(doc_id) for doc_id in doc_ids],
        "stream": stream,
    }


def _status(data: str) -> PdfStatus:
    try:
        return PdfStatus.model_validate_json(data)
    except ValidationError as exc:
        raise Unavailable(f"the state of a document cannot be read: {exc}") from exc
