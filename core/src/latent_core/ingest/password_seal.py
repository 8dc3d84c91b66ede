"""Passwords of files while their jobs wait: encrypted, for a day, and erased with the end of the job (ADR 0045)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

from latent_core.domain.errors import IngestFailed

FIELD: Final = "sealed_password"
"""Of a job's payload. The statements that end a job remove it by this name."""
VALID_SECONDS: Final = 24 * 3600 + 3600
"""A job waits for a service for a day."""


class PasswordSeal:
    """Encrypts (Fernet: AES-CBC with HMAC and the time) with a key that is derived from the signing key."""

    def __init__(self, signing_key: bytes) -> None:
        derived = hmac.new(signing_key, b"latent passwords of files", hashlib.sha256).digest()
        self._key = base64.urlsafe_b64encode(derived)

    def seal(self, password: str) -> str:
        from cryptography.fernet import Fernet  # slow to load, and few files need it

        return Fernet(self._key).encrypt(password.encode()).decode("ascii")

    def open(self, sealed: str, name: str) -> str:
        """The password. ``IngestFailed`` if it is too old, or sealed with another signing key."""
        from cryptography.fernet import Fernet, InvalidToken

        try:
            return Fernet(self._key).decrypt(sealed, ttl=VALID_SECONDS).decode()
        except InvalidToken as exc:
            raise IngestFailed(
                f"the password of '{name}' is no longer valid (more than a day old, or the signing key changed): add "
                "the file again with its password",
                reason="password_expired",
            ) from exc


def without_password(payload: Mapping[str, Any]) -> dict[str, Any]:
    """``payload`` of a job that may wait for longer than a password is valid."""
    return {key: value for key, value in payload.items() if key != FIELD}
