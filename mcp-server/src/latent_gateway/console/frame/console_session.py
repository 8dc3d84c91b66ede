"""The session of a console page: its principal, with the links and the request id for its answers."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from time import time
from typing import Annotated, Final, cast
from urllib.parse import unquote

from fastapi import Depends, Request

from latent_core.db import installation
from latent_core.domain.errors import Unauthorized
from latent_core.domain.token import Api
from latent_gateway.auth.principal import Principal
from latent_gateway.console.frame.navigation import Section, sections
from latent_gateway.context import BlobLinks, Gateway, gateway, request_id

COOKIE: Final = "latent_session"
NOTICE: Final = "latent_notice"
"""The cookie with the sentence that the page after a change shows once."""
MAX_NOTICE_BYTES: Final = 1600
LASTS_SECONDS: Final = 12 * 3600
KEY_NAME: Final = "console_sessions"
"""Name of the secret in Postgres, shared by all gateways."""
_SHAPE: Final = re.compile(r"([A-Za-z0-9:_-]{1,128})\.([0-9]{1,12})\.([0-9a-f]{64})")


class Sessions:
    """Signs session cookies: who signed in, and until when."""

    def __init__(self, key: bytes, *, clock: Callable[[], float] = time) -> None:
        self._key = hashlib.sha256(b"latent console sessions\0" + key).digest()
        self._clock = clock

    def sign(self, subject: str) -> str:
        """The cookie value for ``subject``: letters, digits, ``:``, ``_`` and ``-``."""
        expires = str(int(self._clock()) + LASTS_SECONDS)
        return f"{subject}.{expires}.{self._mac(subject, expires)}"

    def subject(self, cookie: str | None) -> str:
        """The subject of a cookie; ``Unauthorized`` if the signature is wrong or it has expired."""
        parts = _SHAPE.fullmatch(cookie or "")
        if parts is None:
            raise Unauthorized("sign in to use the console")
        subject, expires, mac = parts.groups()
        if not hmac.compare_digest(mac, self._mac(subject, expires)):
            raise Unauthorized("the session is not valid: sign in again")
        if int(expires) <= self._clock():
            raise Unauthorized("the session has expired: sign in again")
        return subject

    def csrf(self, cookie: str) -> str:
        """The token that changes of this session must bring: 64 hexadecimal digits."""
        return hmac.new(self._key, b"csrf\0" + cookie.encode(), hashlib.sha256).hexdigest()

    def fingerprint(self, secret: str) -> str:
        """Shows whether a secret is still the same without revealing it."""
        return hmac.new(self._key, b"fingerprint\0" + secret.encode(), hashlib.sha256).hexdigest()

    def _mac(self, subject: str, expires: str) -> str:
        text = f"session\0{subject}\0{expires}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


TOKEN_SUBJECT: Final = "token:"
"""Followed by its id."""
OWNER_SUBJECT: Final = "owner:"
"""Followed by the fingerprint of the token, so that a new token ends the session."""


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    principal: Principal
    links: BlobLinks
    """Relative links, so that images come from the same origin as the page."""
    request_id: str
    csrf: str
    """What every change must bring."""
    sections: tuple[Section, ...]
    notice: str = ""
    """What the last change did: a sentence, shown once."""


async def signed(request: Request, shared: Gateway, token: str) -> str:
    """A session cookie for a token; ``Unauthorized`` and ``RateLimited`` as for any request with it."""
    principal = await shared.tokens.principal_of(token, _address(request))
    if principal.token_id is None:
        return await signed_owner(request, shared)
    sessions = await sessions_of(request, shared)
    return sessions.sign(f"{TOKEN_SUBJECT}{principal.token_id}")


async def signed_owner(request: Request, shared: Gateway) -> str:
    """A session cookie with the rights of the owner's token. It ends when that token changes."""
    sessions = await sessions_of(request, shared)
    return sessions.sign(f"{OWNER_SUBJECT}{sessions.fingerprint(shared.stack.token)}")


async def session_of(request: Request, shared: Gateway) -> ConsoleSession:
    """The session with its token's rights now; ``Unauthorized`` without a session or with a revoked token."""
    sessions = await sessions_of(request, shared)
    cookie = request.cookies.get(COOKIE, "")
    principal = await _principal(sessions.subject(cookie), sessions, shared)
    return ConsoleSession(
        principal,
        BlobLinks(shared.stack.signer, ""),
        await request_id(request),
        sessions.csrf(cookie),
        sections(principal, asks=shared.settings.providers is not None),
        unquote(request.cookies.get(NOTICE, "")[:MAX_NOTICE_BYTES]),
    )


async def _principal(subject: str, sessions: Sessions, shared: Gateway) -> Principal:
    if subject.startswith(TOKEN_SUBJECT):
        return await shared.tokens.of_id(int(subject.removeprefix(TOKEN_SUBJECT)))
    now = f"{OWNER_SUBJECT}{sessions.fingerprint(shared.stack.token)}"
    if not hmac.compare_digest(subject, now):
        raise Unauthorized("the owner's token has changed: sign in again")
    return Principal.owner()


async def sessions_of(request: Request, shared: Gateway) -> Sessions:
    """Signs with the key that all gateways share; it is read once."""
    kept = getattr(request.app.state, "console_sessions", None)
    if kept is None:
        async with shared.stack.db.transaction() as conn:
            kept = Sessions(await installation.ensure_secret(conn, KEY_NAME))
        request.app.state.console_sessions = kept
    return cast(Sessions, kept)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


async def session(request: Request, shared: Annotated[Gateway, Depends(gateway)]) -> ConsoleSession:
    """The session, counted as a request of its token."""
    found = await session_of(request, shared)
    shared.quotas.take_request(found.principal)
    reads = request.method in ("GET", "HEAD")
    shared.calls.count(found.principal, Api.CONSOLE, "pages" if reads else "changes")
    return found


SignedIn = Annotated[ConsoleSession, Depends(session)]
