"""Signed links: who holds one may read one blob, as one type, for a few minutes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from time import time
from typing import Final

from latent_core.domain.errors import Forbidden, Invalid

MAX_SECONDS: Final = 300
MIN_KEY: Final = 16


class Signer:
    """HMAC-SHA256 over ``sha256, exp, type, disposition, filename``, each with its length, so that none can run into the next."""

    def __init__(self, key: bytes, *, clock: Callable[[], float] = time) -> None:
        if len(key) < MIN_KEY:
            raise Invalid(f"LLC_SIGNING_KEY must have at least {MIN_KEY} bytes, or be left out")
        self._key = hashlib.sha256(b"latent blob links\0" + key).digest()
        self._clock = clock

    def sign(
        self, sha256: str, *, expires_at: int, mime: str, disposition: str, filename: str
    ) -> dict[str, str]:
        """The query of a link that is valid until ``expires_at`` (Unix seconds), at most five minutes from now."""
        expires_at = min(expires_at, int(self._clock()) + MAX_SECONDS)
        return {
            "exp": str(expires_at),
            "sig": self._mac(sha256, str(expires_at), mime, disposition, filename),
            "type": mime,
            "disposition": disposition,
            "filename": filename,
        }

    def verify(
        self, sha256: str, *, exp: int, sig: str, mime: str, disposition: str, filename: str
    ) -> None:
        """``Forbidden`` unless this very link was signed and has not expired."""
        expected = self._mac(sha256, str(exp), mime, disposition, filename)
        if not hmac.compare_digest(expected.encode(), sig.encode("utf-8", "surrogatepass")):
            raise Forbidden("the link's signature is not valid; ask again for a fresh link")
        if exp < self._clock():
            raise Forbidden("the link has expired; ask again for a fresh one")

    def _mac(self, *fields: str) -> str:
        mac = hmac.new(self._key, digestmod=hashlib.sha256)
        for field in fields:
            data = field.encode("utf-8", "surrogatepass")
            mac.update(len(data).to_bytes(4, "big") + data)
        return mac.hexdigest()
