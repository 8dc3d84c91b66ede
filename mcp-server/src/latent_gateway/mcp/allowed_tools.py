"""Which tools a principal may call: what it may not is neither listed nor known."""

from __future__ import annotations

from typing import Protocol

from latent_core.domain.token import Scope
from latent_gateway.auth.principal import Principal

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
