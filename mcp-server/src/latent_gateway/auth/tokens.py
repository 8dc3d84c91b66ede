"""Valid tokens: the owner's, and those in the database, which are read on every request.

Nothing is cached between two requests, so that a revoked token fails at once. Failed attempts are limited by
address.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from math import ceil
from time import monotonic
from typing import Final

from latent_core.db import tokens
from latent_core.db.connection import Database
from latent_core.db.tokens import FoundToken
from latent_core.domain.errors import RateLimited, Unauthorized
from latent_core.domain.token import PREFIX, TokenState, TokenView, digest, well_formed
from latent_gateway.auth.principal import Principal
from latent_gateway.auth.shared_memory import DecayingCounts, SharedMemory

MAX_FAILURES: Final = 20
"""At the same time, from one address."""
SECONDS_PER_FAILURE: Final = 3.0
"""Seconds until one of them is forgiven."""
MAX_ADDRESSES: Final = 4096
NETWORK_BITS: Final = 64
"""Of an IPv6 address: a client usually has a whole network of this size."""


class FailedAttempts:
    """Failed attempts by address. Bounded in memory: the addresses that were idle longest are forgotten."""

    def __init__(
        self, clock: Callable[[], float] = monotonic, memory: SharedMemory | None = None
    ) -> None:
        self._clock = clock
        self._counts = DecayingCounts(memory or SharedMemory(), MAX_ADDRESSES)

    def check(self, address: str) -> None:
        """``RateLimited`` after too many failures from there."""
        over = self._counts.over(
            _network(address), self._clock(), limit=MAX_FAILURES, per_second=1 / SECONDS_PER_FAILURE
        )
        if over:
            raise RateLimited(
                "too many wrong tokens from your address: wait, then check the token",
                retry_after=max(1, ceil(over * SECONDS_PER_FAILURE)),
            )

    def failed(self, address: str) -> None:
        """Count a failure."""
        self._counts.add(
            _network(address), self._clock(), limit=MAX_FAILURES, per_second=1 / SECONDS_PER_FAILURE
        )


def _network(address: str) -> str:
    """The network of one client."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(int(parsed) >> (128 - NETWORK_BITS))


NOT_OURS: Final = "the token is not valid: check it against the token that you received, LLC_MCP_TOKEN, or the data directory's token file"
MISTYPED: Final = "the token has a wrong or missing character: copy it again"


class TokenRegistry:
    """One per gateway."""

    def __init__(
        self, owner_token: str, db: Database, attempts: FailedAttempts | None = None
    ) -> None:
        self._owner = digest(owner_token)
        self._db = db
        self._attempts = attempts or FailedAttempts()

    async def authenticate(self, authorization: str | None, address: str) -> Principal:
        """The principal of an ``Authorization`` header sent from ``address``.

        Raises ``Unauthorized`` for an invalid token and ``RateLimited`` after too many failures from that address.
        """
        return await self.principal_of(_bearer(authorization), address)

    async def principal_of(self, token: str, address: str) -> Principal:
        """The same for a token without a header, such as one typed into a form."""
        try:
            return await self._judged(token, digest(token))
        except Unauthorized:
            # Only after a failure: clients behind a proxy share one address, and valid tokens must not be limited.
            self._attempts.check(address)
            self._attempts.failed(address)
            raise

    async def renewed(self, principal: Principal) -> Principal:
        """The principal with the rights of its token now, for streams and sessions that do not send it again.

        Raises ``Unauthorized`` if the token is no longer valid.
        """
        if principal.token_id is None:
            return principal
        return await self.of_id(principal.token_id)

    async def of_id(self, token_id: int) -> Principal:
        """The principal of a token that was shown earlier; ``Unauthorized`` if it is no longer valid."""
        async with self._db.reading() as conn:
            found = await tokens.get(conn, token_id)
        if found is None:
            raise Unauthorized(NOT_OURS)
        _check_live(found)
        return Principal.of(found)

    async def _judged(self, token: str, shown: bytes) -> Principal:
        if hmac.compare_digest(shown, self._owner):
            return Principal.owner()
        if not token.startswith(PREFIX):
            raise Unauthorized(NOT_OURS)
        if not well_formed(token):
            raise Unauthorized(MISTYPED)
        async with self._db.reading() as conn:
            found = await tokens.find(conn, shown)
            if found is None:
                raise Unauthorized(NOT_OURS)
            _check_live(found)
            if found.unnoted:
                await tokens.note_use(conn, found.id)
        return Principal.of(found)


def _check_live(token: FoundToken | TokenView) -> None:
    if token.state is not TokenState.LIVE:
        raise Unauthorized(
            f"token {token.id} ('{token.name}') is {token.state.value}: ask the owner for a new one "
            "(latent token create)"
        )


def _bearer(authorization: str | None) -> str:
    if not authorization:
        raise Unauthorized("no token: send the header 'Authorization: Bearer <token>'")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("the Authorization header is not of the form 'Bearer <token>'")
    return token.strip()
