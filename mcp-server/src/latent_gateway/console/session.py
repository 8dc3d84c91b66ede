"""Sessions: what a browser keeps instead of the token. Signed, expiring, and worth nothing once the token is revoked.

The cookie names whose token it was made with, never the token; that the token is still valid is looked up on
every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from time import time
from typing import Final

from latent_core.domain.errors import Unauthorized

COOKIE: Final = "latent_session"
LASTS_SECONDS: Final = 12 * 3600
KEY_NAME: Final = "console_sessions"
"""Of the secret in Postgres: every gateway knows every session."""
_SHAPE: Final = re.compile(r"([A-Za-z0-9:_-]{1,128})\.([0-9]{1,12})\.([0-9a-f]{64})")


class Sessions:
    """Signs who signed in, and until when."""

    def __init__(self, key: bytes, *, clock: Callable[[], float] = time) -> None:
        self._key = hashlib.sha256(b"latent console sessions\0" + key).digest()
        self._clock = clock

    def sign(self, subject: str) -> str:
        """A cookie's value for ``subject``: letters, digits, ``:``, ``_`` and ``-``."""
        expires = str(int(self._clock()) + LASTS_SECONDS)
        return f"{subject}.{expires}.{self._mac(subject, expires)}"

    def subject(self, cookie: str | None) -> str:
        """Whom a cookie was signed for; ``Unauthorized`` when it is not ours or has expired."""
        parts = _SHAPE.fullmatch(cookie or "")
        if parts is None:
            raise Unauthorized("sign in to use the console")
        subject, expires, mac = parts.groups()
        if not hmac.compare_digest(mac, self._mac(subject, expires)):
            raise Unauthorized("the session is not valid: sign in again")
        if int(expires) <= self._clock():
            raise Unauthorized("the session has expired: sign in again")
        return subject

    def fingerprint(self, secret: str) -> str:
        """Tells whether a secret is still the same, without telling it."""
        return hmac.new(self._key, b"fingerprint\0" + secret.encode(), hashlib.sha256).hexdigest()

    def _mac(self, subject: str, expires: str) -> str:
        text = f"session\0{subject}\0{expires}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
