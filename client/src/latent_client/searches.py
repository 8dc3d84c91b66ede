"""Calls for searches, and a client of them alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from latent_client.transport import ClientCalls, GatewayClient
from latent_core.wire.search import SearchRequest, SearchResponse


class SearchCalls(ClientCalls):
    async def search(self, request: SearchRequest) -> SearchResponse:
        body = request.model_dump(mode="json", exclude_unset=True)
        return await self._transport.ask(
            SearchResponse, "POST", "/v1/containers/search", json=body, repeatable=True
        )

    async def doc_search(
        self,
        query: str,
        formats: Collection[str] = (),
        limit: int = 10,
        *,
        containers: Collection[str] = (),
    ) -> SearchResponse:
        """Search documents but no source code, by default in all readable containers."""
        body: dict[str, Any] = {"query": query, "limit": limit}
        body |= {"formats": sorted(formats)} if formats else {}
        body |= {"containers": list(containers)} if containers else {}
        return await self._transport.ask(
            SearchResponse, "POST", "/v1/doc_search", json=body, repeatable=True
        )


class SearchClient(SearchCalls, GatewayClient):
    """A client that only searches. It needs no other module of requests and answers, so a command that uses it starts in
    half of the time."""
