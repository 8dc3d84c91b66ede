"""Tokens (``lct_``, 256 random bits and a checksum) and their scopes.

The checksum reveals a mistyped or cut token without a query. Only the SHA-256 of a token is stored.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from datetime import date, datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from pydantic import BaseModel

from latent_core.domain.errors import Invalid

PREFIX: Final = "lct_"
"""Lets people and secret scanners recognise a token."""
BITS: Final = 256
ALPHABET: Final = string.digits + string.ascii_letters
SECRET_CHARS: Final = 43
"""62^43 is the first power that holds 256 bits."""
CHECKSUM_CHARS: Final = 6
"""62^6 holds the 32 bits of a CRC."""
SHAPE: Final = re.compile(f"{PREFIX}[0-9A-Za-z]{{{SECRET_CHARS + CHECKSUM_CHARS}}}")
EVERYBODY: Final = "*"
"""Matches every principal in a manifest's roles; no principal can have this name."""
PRINCIPAL: Final = re.compile(r"[a-z][a-z0-9-]{0,31}:[A-Za-z0-9][A-Za-z0-9._@+/-]{0,94}")
MAX_LIVE: Final = 2
"""Live tokens per principal and name: two during a rotation."""


class Scope(StrEnum):
    """Permissions of a token. No scope includes another."""

    READ = "read"
    """List, describe, search, read documents, pages and jobs."""
    WRITE = "write"
    """Add documents, replace and delete one's own, upload, control jobs and read their state."""
    DELETE = "delete"
    """Replace and delete the documents of others."""
    CREATE = "create"
    """Create, import and restore containers."""
    ADMIN = "admin"
    """Containers themselves: change, delete, their state, refresh, export, doctor, audit."""


class TokenState(StrEnum):
    LIVE = "live"
    EXPIRED = "expired"
    REVOKED = "revoked"


class TokenView(BaseModel):
    """A token in API answers: all fields except the secret."""

    id: int
    principal: str
    name: str
    scopes: list[Scope]
    containers: list[str] | None
    """None: all containers of the principal's roles."""
    needs_role: bool
    """Whether the roles must also name the principal in ``containers``: so for tokens older than that rule."""
    state: TokenState
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    """To the minute."""
    revoked_at: datetime | None


class Api(StrEnum):
    """How a token is used."""

    MCP = "mcp"
    HTTP = "http"
    CONSOLE = "console"


class OperationCalls(BaseModel):
    """How often a token called one operation."""

    api: Api
    operation: str
    """A tool of MCP; method and path of a route of HTTP; pages or changes of the console."""
    calls: int
    failures: int
    """Of these calls."""


class TokenCalls(OperationCalls):
    """The same on one day."""

    day: date
    """UTC."""


class ChangeKind(StrEnum):
    WRITTEN = "written"
    SUPERSEDED = "superseded"
    DELETED = "deleted"


class ChangedState(StrEnum):
    """What became of a document that a token changed."""

    LIVE = "live"
    PENDING = "pending"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    DELETED = "deleted"
    REMOVED = "removed"
    """Nothing of it is stored."""


class TokenChange(BaseModel):
    """A document that a token wrote, superseded or deleted, as it is now."""

    id: int
    """Of the line in the audit trail."""
    at: datetime
    container_id: str
    source_uri: str
    doc_id: UUID | None
    """None: nothing of it is stored."""
    title: str | None
    state: ChangedState
    superseded_by: UUID | None
    restorable_until: datetime | None
    """Until then the deleted document can be restored; None: it cannot, or is not deleted."""


def new_token() -> str:
    """A new token. Its creator shows it once."""
    secret = _written(secrets.randbits(BITS), SECRET_CHARS)
    return f"{PREFIX}{secret}{_checksum(secret)}"


def well_formed(token: str) -> bool:
    """Whether prefix, length, alphabet and checksum are valid."""
    if not SHAPE.fullmatch(token):
        return False
    secret = token[len(PREFIX) : -CHECKSUM_CHARS]
    return _checksum(secret) == token[-CHECKSUM_CHARS:]


def digest(token: str) -> bytes:
    """The stored hash of a token. A plain hash is enough for 256 random bits."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def check_principal(name: str) -> str:
    """Return ``name`` if it is a valid principal; ``Invalid`` shows the format."""
    if not PRINCIPAL.fullmatch(name):
        raise Invalid(
            f"'{name[:80]}' is not a principal: write <kind>:<name>, such as agent:claude or person:ada"
        )
    return name


def _checksum(secret: str) -> str:
    return _written(zlib.crc32(f"{PREFIX}{secret}".encode()), CHECKSUM_CHARS)


def _written(number: int, length: int) -> str:
    """In base 62, padded: a double click selects all of it."""
    digits = []
    for _ in range(length):
        number, rest = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[rest])
    return "".join(reversed(digits))
