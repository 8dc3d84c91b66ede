"""The form that creates a token: what was typed, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import Form
from pydantic import ValidationError

from latent_core.domain.agent_clients import AGENT_SCOPES
from latent_core.domain.token import Scope
from latent_core.wire.access import TokenBody
from latent_gateway.console.agents.connecting import OTHER, chosen_client

DAYS: Final = {"1": 1, "7": 7, "30": 30, "90": 90, "365": 365}
LIFETIMES: Final = (
    *(("1", "1 day"), ("7", "7 days"), ("30", "30 days"), ("90", "90 days"), ("365", "1 year")),
    ("never", "Never"),
)
DEFAULT_LIFETIME: Final = "90"
SCOPES: Final = (
    (Scope.READ, "search and read"),
    (Scope.WRITE, "add documents and notes, change its own"),
    (Scope.DELETE, "replace and delete those of others"),
    (Scope.CREATE, "create containers"),
    (Scope.ADMIN, "change and delete containers themselves"),
)
ROLES: Final = "roles"
"""The value of the choice that names no container."""


@dataclass(slots=True)
class TokenForm:
    """As typed. ``errors`` by field; ``""`` is about the whole form."""

    client: str
    principal: str = ""
    name: str = "console"
    scopes: Collection[str] = tuple(scope.value for scope in AGENT_SCOPES)
    containers: Collection[str] = ()
    lifetime: str = DEFAULT_LIFETIME
    errors: dict[str, str] = field(default_factory=dict)

    def body(self, now: datetime) -> TokenBody | None:
        """The request; None if the form is wrong, and ``errors`` say why."""
        if not self.scopes:
            self.errors["scopes"] = "Choose at least one scope."
        if not self.containers:
            self.errors["containers"] = "Choose at least one container."
        if self.lifetime not in dict(LIFETIMES):
            self.errors["lifetime"] = "Choose when it ends."
        if self.errors:
            return None
        days = DAYS.get(self.lifetime)
        try:
            return TokenBody(
                principal=self.principal or f"agent:{self.client}",
                name=self.name,
                scopes=[Scope(scope) for scope in self.scopes],
                containers=None if ROLES in self.containers else list(self.containers),
                expires_at=None if days is None else now + timedelta(days=days),
            )
        except ValidationError as exc:
            for error in exc.errors():
                self.errors[str(error["loc"][0])] = f"{error['msg']}."
        except ValueError:
            self.errors["scopes"] = "Choose scopes of the list."
        return None


Line = Annotated[str, Form(max_length=200)]
Choices = Annotated[list[str], Form(max_length=200)]


async def given_form(
    client: Line = OTHER,
    principal: Line = "",
    name: Line = "",
    scope: Choices = [],  # noqa: B006 - the framework copies it
    container: Choices = [],  # noqa: B006
    lifetime: Line = "",
) -> TokenForm:
    return TokenForm(
        chosen_client(client), principal.strip(), name.strip(), scope, container, lifetime
    )


def new_form(client: str, containers: Sequence[str]) -> TokenForm:
    """With what `latent connect` would grant."""
    return TokenForm(client, containers=containers[:1])


def now() -> datetime:
    return datetime.now(UTC)
