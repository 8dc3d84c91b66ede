"""Which tools a principal may call: what it may not is neither listed nor known."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from latent_gateway.auth.principal import Principal


class Scope(StrEnum):
    READ = "read"
    INGEST = "ingest"
    ADMIN = "admin"


class Scoped(Protocol):
    """A tool, as far as rights go."""

    @property
    def scope(self) -> Scope: ...


def scopes(principal: Principal) -> frozenset[Scope]:
    """What the principal's token allows; today there is the owner's alone."""
    return frozenset(Scope) if principal.is_owner else frozenset()


def may(principal: Principal, tool: Scoped) -> bool:
    return tool.scope in scopes(principal)
