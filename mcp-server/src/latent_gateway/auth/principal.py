"""The caller, and what its token allows. Without named containers the manifests' roles decide the rest (``access``)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from latent_core.db.tokens import FoundToken
from latent_core.domain.token import Scope, TokenView

OWNER: Final = "local:you"
"""The owner of this installation."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A name from the manifests' roles, limited by the token that was shown."""

    name: str
    scopes: frozenset[Scope] = frozenset()
    containers: frozenset[str] | None = None
    """None: the token is not limited to containers, and the roles decide."""
    token_id: int | None = None
    """None: the owner's own token, which has no row."""
    token_name: str | None = None
    granted_at: datetime | None = None
    """The token gives its scopes in ``containers`` without a role, in those that existed at this time: a container that
    is created again later under the same id may belong to somebody else. None: roles are needed."""

    @classmethod
    def owner(cls) -> Self:
        """The principal of the installation's own token: every scope, every container."""
        return cls(OWNER, frozenset(Scope))

    @classmethod
    def of(cls, token: TokenView | FoundToken) -> Self:
        return cls(
            token.principal,
            frozenset(token.scopes),
            None if token.containers is None else frozenset(token.containers),
            token.id,
            token.name,
            None if token.containers is None or token.needs_role else token.created_at,
        )

    @property
    def is_owner(self) -> bool:
        """Whether this is the owner of the installation, by a token that is not limited to containers."""
        return self.name == OWNER and self.containers is None

    @property
    def is_operator(self) -> bool:
        """Whether the token is for the whole installation: all containers, with scope admin."""
        return self.containers is None and Scope.ADMIN in self.scopes
