"""Calls for searches, and a client of them alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from latent_client.transport import ClientCalls, GatewayClient
from latent_core.wire.base import Envelope
from latent_core.wire.saved_searches import SavedSearch, SavedSearchAnswer, SavedSearchList
from latent_core.wire.search import SearchRequest, SearchResponse

SAVED: Final = "/v1/saved-searches"


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

    async def saved_searches(self) -> list[SavedSearch]:
        """The caller's, by name."""
        answer = await self._transport.ask(SavedSearchList, "GET", SAVED)
        return answer.saved_searches

    async def save_search(self, name: str, request: SearchRequest) -> SavedSearch:
        """Save a search under a name, in place of the one that has it."""
        body = {"name": name, "request": request.model_dump(mode="json", exclude_unset=True)}
        answer = await self._transport.ask(
            SavedSearchAnswer, "POST", SAVED, json=body, repeatable=True
        )
        return answer.saved_search

    async def delete_saved_search(self, saved_id: int) -> None:
        await self._transport.ask(Envelope, "DELETE", f"{SAVED}/{saved_id}")


class SearchClient(SearchCalls, GatewayClient):
    """A client that only searches. It needs no other module of requests and answers, so a command that uses it starts in
    half of the time."""
