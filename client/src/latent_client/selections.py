"""Calls for several documents of a container at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlencode
from uuid import UUID

from latent_client.transport import ClientCalls, part
from latent_core.domain.errors import Invalid
from latent_core.wire.documents import DocumentOutcome, SelectionAnswer

READ_SECONDS: Final = 60.0


class SelectionCalls(ClientCalls):
    """At most ``MAX_SELECTED`` documents per call. Each has an outcome of its own."""

    async def reingest_documents(
        self, container_id: str, doc_ids: Sequence[UUID]
    ) -> list[DocumentOutcome]:
        """Read documents again from their stored originals; what is live stays searchable until then."""
        return await self._selected(container_id, "reingest", doc_ids)

    async def delete_documents(
        self, container_id: str, doc_ids: Sequence[UUID]
    ) -> list[DocumentOutcome]:
        """Delete documents; they can be restored for 30 days."""
        return await self._selected(container_id, "delete", doc_ids)

    async def originals(self, container_id: str, doc_ids: Sequence[UUID], file: Path) -> int:
        """Write the originals of documents into a ZIP file, replaced if it exists; returns its bytes."""
        query = urlencode([("doc", str(doc_id)) for doc_id in doc_ids])
        path = f"/v1/containers/{part(container_id)}/originals?{query}"
        draft, size = file.with_name(f"{file.name}.part"), 0
        try:
            with await asyncio.to_thread(draft.open, "wb") as out:
                async with self._transport.stream(path, read_seconds=READ_SECONDS) as response:
                    async for piece in response.aiter_bytes():
                        size += await asyncio.to_thread(out.write, piece)
            await asyncio.to_thread(draft.replace, file)
        except OSError as exc:
            raise Invalid(f"{file} cannot be written: {exc.strerror or exc}") from exc
        finally:
            await asyncio.to_thread(draft.unlink, missing_ok=True)
        return size

    async def _selected(
        self, container_id: str, change: str, doc_ids: Sequence[UUID]
    ) -> list[DocumentOutcome]:
        path = f"/v1/containers/{part(container_id)}/documents/{change}"
        body = {"doc_ids": [str(doc_id) for doc_id in doc_ids]}
        answer = await self._transport.ask(SelectionAnswer, "POST", path, json=body)
        return answer.documents
