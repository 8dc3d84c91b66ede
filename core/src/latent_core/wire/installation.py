"""What a backup of the whole installation has apart from archives: states, tokens, saved searches, the audit trail."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from latent_core.domain.text import Text
from latent_core.domain.token import Scope
from latent_core.wire.base import ContainerId, Envelope, Moment, PrincipalName, RequestBody
from latent_core.wire.saved_searches import MAX_NAME_CHARS
from latent_core.wire.search import SearchRequest

MAX_RECORDS: Final = 1_000
"""Of each kind but saved searches, in one request."""
MAX_SAVED_RECORDS: Final = 20
"""Saved searches in one request, which has at most 2 MB: each has up to 64 KiB (``saved_searches.MAX_BYTES``)."""


class ContainerStanding(RequestBody):
    """A container as the installation lists it; its contents are in its archive."""

    id: ContainerId
    state: Annotated[str, Field(pattern="^(active|readonly|archived)$")]
    created_at: Moment


class TokenRecord(RequestBody):
    """A token with its hash: the secret itself is stored nowhere."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    principal: PrincipalName
    name: Annotated[Text, Field(min_length=1, max_length=64)]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))]
    containers: Annotated[list[ContainerId], Field(min_length=1)] | None
    needs_role: bool
    created_by: Annotated[Text, Field(max_length=128)]
    created_at: Moment
    expires_at: Moment | None
    last_used_at: Moment | None
    revoked_at: Moment | None


class AuditRecord(RequestBody):
    """A line of the audit trail."""

    at: Moment
    principal: Annotated[Text, Field(max_length=256)]
    action: Annotated[Text, Field(max_length=64)]
    container_id: Annotated[Text, Field(max_length=64)] | None
    object: str | None
    request_id: str | None


def _valid_search(value: dict[str, Any]) -> dict[str, Any]:
    """``value`` unchanged, without the defaults of a ``SearchRequest``: later defaults apply to it."""
    SearchRequest.model_validate(value)
    return value


class SavedSearchRecord(RequestBody):
    """A saved search and its principal."""

    principal: PrincipalName
    name: Annotated[Text, Field(min_length=1, max_length=MAX_NAME_CHARS)]
    request: Annotated[dict[str, Any], AfterValidator(_valid_search)]
    saved_at: Moment


class InstallationRecords(Envelope):
    """The standing of every container, all tokens and all saved searches. The audit trail has a route of its own."""

    at: datetime
    """By the database's clock."""
    containers: list[ContainerStanding]
    tokens: list[TokenRecord]
    saved_searches: list[SavedSearchRecord] = []
    """Older backups have none."""


class RestoreRecordsBody(RequestBody):
    """Records to add. What exists already stays as it is."""

    containers: Annotated[list[ContainerStanding], Field(max_length=MAX_RECORDS)] = []
    tokens: Annotated[list[TokenRecord], Field(max_length=MAX_RECORDS)] = []
    saved_searches: Annotated[list[SavedSearchRecord], Field(max_length=MAX_SAVED_RECORDS)] = []
    audit: Annotated[list[AuditRecord], Field(max_length=MAX_RECORDS)] = []


class RestoredRecords(Envelope):
    """How many of the records were new here."""

    containers: int
    tokens: int
    saved_searches: int
    audit: int
