"""Calls for the sources of a container: the folders that are synced into it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from latent_client.transport import ClientCalls, part
from latent_core.wire.sources import (
    ForgetSourceAnswer,
    ListedSource,
    SourceAnswer,
    SourceList,
    SourceMatch,
    SourceMatches,
    SourceView,
)


class SourceCalls(ClientCalls):
    """Calls of ``AsyncClient`` for sources."""

    async def sources(self, container_id: str) -> list[ListedSource]:
        """The folders that are synced into a container; needs the right to write."""
        path = f"/v1/containers/{part(container_id)}/sources"
        return (await self._transport.ask(SourceList, "GET", path)).sources

    async def match_sources(
        self, container_id: str, root: str, sha256: Sequence[str]
    ) -> list[SourceMatch]:
        """All sources, and documents below ``root`` without one, each compared with hashes of a folder's files."""
        path = f"/v1/containers/{part(container_id)}/sources/match"
        body = {"root": root, "sha256": list(sha256)}
        answer = await self._transport.ask(SourceMatches, "POST", path, json=body, repeatable=True)
        return answer.matches

    async def create_source(
        self, container_id: str, root: str, *, host: str, folder: str, adopt: bool = False
    ) -> SourceView:
        """A source with ``root``, or if that is taken with ``root~2``, ``root~3``, and so on."""
        path = f"/v1/containers/{part(container_id)}/sources"
        body = {"root": root, "host": host, "folder": folder, "adopt": adopt}
        return (await self._transport.ask(SourceAnswer, "POST", path, json=body)).source

    async def take_over_source(
        self, container_id: str, source_id: UUID, *, host: str, folder: str
    ) -> SourceView:
        """Sync a source from another place from now on. It gets another id."""
        path = f"/v1/containers/{part(container_id)}/sources/{source_id}"
        body = {"host": host, "folder": folder}
        return (await self._transport.ask(SourceAnswer, "PUT", path, json=body)).source

    async def forget_source(
        self, container_id: str, source_id: UUID, *, delete_documents: bool = False
    ) -> ForgetSourceAnswer:
        """Forget a source. Its documents stay, unless ``delete_documents``. A sync of its folder later makes them its
        own again, if the folder still has them."""
        path = f"/v1/containers/{part(container_id)}/sources/{source_id}"
        query = {"delete_documents": "true" if delete_documents else None}
        deleted, jobs = 0, list[int]()
        while True:
            answer = await self._transport.ask(ForgetSourceAnswer, "DELETE", path, query=query)
            deleted += answer.deleted
            jobs += answer.delete_jobs
            if not (answer.partial and answer.deleted):
                return answer.model_copy(update={"deleted": deleted, "delete_jobs": jobs})
