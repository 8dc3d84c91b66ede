"""Who is asking: the bearer token of a request, checked in constant time."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from latent_core.domain.errors import Unauthorized

OWNER: Final = "local:you"


@dataclass(frozen=True, slots=True)
class Principal:
    """A name as the manifests' roles know it."""

    name: str

    @property
    def is_owner(self) -> bool:
        """The person whose installation this is."""
        return self.name == OWNER


class Tokens:
    """The tokens that are valid: today the owner's."""

    def __init__(self, owner_token: str) -> None:
        self._owner = owner_token.encode()

    def authenticate(self, authorization: str | None) -> Principal:
        """The principal of an ``Authorization`` header; ``Unauthorized`` says what is wrong with it."""
        if not authorization:
            raise Unauthorized("no token: send the header 'Authorization: Bearer <token>'")
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Unauthorized("the Authorization header is not of the form 'Bearer <token>'")
        if not hmac.compare_digest(token.strip().encode(), self._owner):
            raise Unauthorized(
                "the token is not valid: compare it with LLC_MCP_TOKEN or the data directory's token file"
            )
        return Principal(OWNER)
