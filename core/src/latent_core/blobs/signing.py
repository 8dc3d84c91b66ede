"""Signed links: the holder may read one blob, as one type, for a few minutes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from time import time
from typing import Final
from urllib.parse import quote

from latent_core.domain.errors import Forbidden, Invalid

MAX_SECONDS: Final = 300
MIN_KEY: Final = 16


class Signer:
    """HMAC-SHA256 over ``bucket, sha256, exp, type, disposition, filename``, each with its length, so that fields cannot run together."""

    def __init__(self, key: bytes, *, clock: Callable[[], float] = time) -> None:
        if len(key) < MIN_KEY:
            raise Invalid(f"LLC_SIGNING_KEY must have at least {MIN_KEY} bytes, or be unset")
        self._key = hashlib.sha256(b"latent blob links\0" + key).digest()
        self._clock = clock

    def sign(
        self,
        sha256: str,
        *,
        expires_at: int,
        mime: str,
        disposition: str,
        filename: str,
        bucket: str = "",
    ) -> dict[str, str]:
        """The query of a link, without empty names, that is valid until ``expires_at`` (Unix seconds), at most five minutes from now."""
        expires_at = min(expires_at, int(self._clock()) + MAX_SECONDS)
        return {
            "exp": str(expires_at),
            "sig": self._mac(bucket, sha256, str(expires_at), mime, disposition, filename),
            "type": mime,
            "disposition": disposition,
            **({"filename": filename} if filename else {}),
            **({"bucket": bucket} if bucket else {}),
        }

    def verify(
        self,
        sha256: str,
        *,
        exp: int,
        sig: str,
        mime: str,
        disposition: str,
        filename: str,
        bucket: str = "",
    ) -> None:
        """``Forbidden`` unless exactly this link was signed and has not expired."""
        expected = self._mac(bucket, sha256, str(exp), mime, disposition, filename)
        if not hmac.compare_digest(expected.encode(), sig.encode("utf-8", "surrogatepass")):
            raise Forbidden("the link's signature is not valid; request a new link")
        if exp < self._clock():
            raise Forbidden("the link has expired; request a new one")

    def _mac(self, *fields: str) -> str:
        mac = hmac.new(self._key, digestmod=hashlib.sha256)
        for field in fields:
            data = field.encode("utf-8", "surrogatepass")
            mac.update(len(data).to_bytes(4, "big") + data)
        return mac.hexdigest()


RESERVED: Final = frozenset('"*/:<>?\\|')
"""Characters that file names of some systems cannot have."""
SHOWN: Final = frozenset({"image/webp", "image/png", "image/jpeg", "application/pdf"})
"""Types that a browser may display; all others are downloaded. The server adds no ``Content-Security-Policy``."""


def content_disposition(mime: str, disposition: str, filename: str) -> str:
    """The header of a response: an attachment unless it is an image or a PDF (DESIGN §6). A name of other
    characters is also given in UTF-8 (RFC 6266)."""
    shown = "inline" if disposition == "inline" and mime in SHOWN else "attachment"
    if not filename:
        return shown
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._- ") else "_" for c in filename)
    header = f'{shown}; filename="{name}"'
    exact = "".join("_" if c in RESERVED or not c.isprintable() else c for c in filename)
    if name == exact:
        return header
    exact = quote(exact.encode("utf-8", "replace"), safe="")
    return f"{header}; filename*=UTF-8''{exact}"
