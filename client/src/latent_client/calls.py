"""What the parts of the client stand on: one transport, and lists read page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, TypeVar
from urllib.parse import quote

from latent_client.transport import Transport
from latent_core.wire.base import PagedEnvelope

PAGE: Final = 200

P = TypeVar("P", bound=PagedEnvelope)


class Calls:
    """Base of ``AsyncClient`` and of the mixins it is put together from."""

    _transport: Transport

    async def _pages(
        self, answer: type[P], path: str, **query: str | list[str] | None
    ) -> AsyncIterator[P]:
        cursor: str | None = None
        while True:
            asked = {**query, "limit": PAGE, "cursor": cursor}
            page = await self._transport.ask(answer, "GET", path, query=asked)
            yield page
            if page.next_cursor is None or page.next_cursor == cursor:
                return
            cursor = page.next_cursor


def part(identifier: str) -> str:
    """As one part of a path, whatever it holds."""
    return quote(identifier, safe="")
