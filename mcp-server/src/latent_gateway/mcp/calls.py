"""One call of a tool: who calls, on what, and whom to tell of progress."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from latent_core.domain.token import Scope
from latent_gateway.auth.principal import Principal
from latent_gateway.context import BlobLinks, Gateway


class Progress(Protocol):
    """Tells the client how far a call is; silent unless the client asked to be told."""

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
    """A tool, as far as rights go."""

    @property
    def scope(self) -> Scope: ...

    @property
    def also(self) -> Scope | None:
        """A scope that suffices as well."""
        ...


def may(principal: Principal, tool: ScopedTool) -> bool:
    return tool.scope in principal.scopes or tool.also in principal.scopes
