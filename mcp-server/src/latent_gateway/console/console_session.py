"""Who looks at a page: a session's principal, with the links and the request's id that its answers need."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Annotated, Final, cast

from fastapi import Depends, Request

from latent_core.db import secrets
from latent_core.domain.errors import Unauthorized
from latent_gateway.auth.principal import Principal
from latent_gateway.console.session import COOKIE, KEY_NAME, Sessions
from latent_gateway.context import Gateway, gateway, request_id
from latent_gateway.links import BlobLinks

TOKEN_SUBJECT: Final = "token:"
"""And its id."""
OWNER_SUBJECT: Final = "owner:"
"""And the fingerprint of the token, so that another token ends the session."""


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    principal: Principal
    links: BlobLinks
    """Relative: pictures come from wherever the page did."""
    request_id: str


async def signed(request: Request, shared: Gateway, token: str) -> str:
    """A session's cookie for a token; ``Unauthorized`` and ``RateLimited`` as for any request with it."""
    principal = await shared.tokens.principal_of(token, _address(request))
    sessions = await _sessions(request, shared)
    if principal.token_id is not None:
        return sessions.sign(f"{TOKEN_SUBJECT}{principal.token_id}")
    return sessions.sign(f"{OWNER_SUBJECT}{sessions.fingerprint(shared.stack.token)}")


async def session_of(request: Request, shared: Gateway) -> ConsoleSession:
    """Who looks, by the token as it is now; ``Unauthorized`` without a session or when its token is revoked."""
    sessions = await _sessions(request, shared)
    subject = sessions.subject(request.cookies.get(COOKIE))
    return ConsoleSession(
        await _principal(subject, sessions, shared),
        BlobLinks(shared.stack.signer, ""),
        await request_id(request),
    )


async def _principal(subject: str, sessions: Sessions, shared: Gateway) -> Principal:
    if subject.startswith(TOKEN_SUBJECT):
        return await shared.tokens.of_id(int(subject.removeprefix(TOKEN_SUBJECT)))
    now = f"{OWNER_SUBJECT}{sessions.fingerprint(shared.stack.token)}"
    if not hmac.compare_digest(subject, now):
        raise Unauthorized("the owner's token has changed: sign in again")
    return Principal.owner()


async def _sessions(request: Request, shared: Gateway) -> Sessions:
    """With the key that every gateway has; read once."""
    kept = getattr(request.app.state, "console_sessions", None)
    if kept is None:
        async with shared.stack.db.transaction() as conn:
            kept = Sessions(await secrets.ensure(conn, KEY_NAME))
        request.app.state.console_sessions = kept
    return cast(Sessions, kept)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


async def session(request: Request, shared: Annotated[Gateway, Depends(gateway)]) -> ConsoleSession:
    """Counted as any request of its token is."""
    found = await session_of(request, shared)
    shared.quotas.take_request(found.principal)
    return found


SignedIn = Annotated[ConsoleSession, Depends(session)]
