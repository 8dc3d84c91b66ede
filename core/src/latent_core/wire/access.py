"""Tokens and the audit trail."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field

from latent_core.domain.ids import CONTAINER_SLUG
from latent_core.domain.text import Text
from latent_core.domain.token import Scope, TokenCalls, TokenChange, TokenView
from latent_core.wire.base import Envelope, Moment, PagedEnvelope, PrincipalName, RequestBody


class AuditLine(BaseModel):
    id: int
    at: datetime
    principal: str
    action: str
    """Noun and verb: ``container.apply``, ``document.add``, ``token.revoke``."""
    container_id: str | None
    """None: the line concerns the installation, as with tokens."""
    object: str | None
    """What was changed: a source uri, a job's or token's id, a state, an etag."""
    request_id: str | None
    """None: the change did not come from an HTTP request."""


class AuditPage(PagedEnvelope):
    audit: list[AuditLine]


MAX_CONTAINERS: Final = 100


def _slug(value: str) -> str:
    if not CONTAINER_SLUG.fullmatch(value):
        raise ValueError(f"'{value[:80]}' is not a valid container id")
    return value


class TokenBody(RequestBody):
    principal: PrincipalName
    """As in the roles of manifests: ``agent:claude``."""
    name: Annotated[Text, Field(min_length=1, max_length=64)] = "default"
    """Purpose of the token; at most two tokens of one name are live at a time."""
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope))] = [Scope.READ]
    containers: Annotated[
        list[Annotated[str, AfterValidator(_slug)]] | None,
        Field(min_length=1, max_length=MAX_CONTAINERS),
    ] = None
    """Default: all containers of the principal's roles."""
    expires_at: Moment | None = None
    """Default: never."""


class TokenCreated(Envelope):
    token: TokenView
    secret: str
    """The token itself. No other answer contains it."""


class TokenAnswer(Envelope):
    token: TokenView


class TokenPage(PagedEnvelope):
    tokens: list[TokenView]


class TokenCallsAnswer(Envelope):
    calls: list[TokenCalls]
    """Oldest day first."""


class TokenChangePage(PagedEnvelope):
    changes: list[TokenChange]


class SignInLink(Envelope):
    url: str
    """Signs one browser in to the console as the owner, after a click."""
    valid_seconds: int
