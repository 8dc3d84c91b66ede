"""One call of a tool: its caller, the stack, and its progress notifications."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from latent_core.domain.token import Scope
from latent_gateway.auth.principal import Principal
from latent_gateway.context import BlobLinks, Gateway


class Progress(Protocol):
    """Notifies the client of progress, if the client has requested it."""

    def __call__(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> Awaitable[None]: ...


@dataclass(frozen=True, slots=True)
class ToolCall:
    shared: Gateway
    caller: Principal
    links: BlobLinks
    request_id: str
    progress: Progress


__all__ = ["Scope", "ScopedTool", "may"]


class ScopedTool(Protocol):
    """A tool as far as permissions are concerned."""

    @property
    def scope(self) -> Scope: ...

    @property
    def also(self) -> Scope | None:
        """A scope that is also sufficient."""
        ...


def may(principal: Principal, tool: ScopedTool) -> bool:
    return tool.scope in principal.scopes or tool.also in principal.scopes
