"""Who is asking, and what their token allows at most; the manifests' roles say the rest (``access``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from latent_core.domain.token import Scope, TokenView

OWNER: Final = "local:you"
"""Whose installation this is."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A name as the manifests' roles know it, within the bounds of the token that was shown."""

    name: str
    scopes: frozenset[Scope] = frozenset()
    containers: frozenset[str] | None = None
    """None: the token names none, and the roles alone decide."""
    token_id: int | None = None
    """None: the owner's own token, of which there is no row."""

    @classmethod
    def owner(cls) -> Self:
        """By the installation's own token: every scope, every container."""
        return cls(OWNER, frozenset(Scope))

    @classmethod
    def of(cls, token: TokenView) -> Self:
        return cls(
            token.principal,
            frozenset(token.scopes),
            None if token.containers is None else frozenset(token.containers),
            token.id,
        )

    @property
    def is_owner(self) -> bool:
        """The person whose installation this is, by a token that is not for some containers only."""
        return self.name == OWNER and self.containers is None

    @property
    def is_operator(self) -> bool:
        """Who runs the installation, and not single containers of it: all of them, with scope admin."""
        return self.containers is None and Scope.ADMIN in self.scopes
