"""What a signed-in person may do in a container: templates show only what is allowed, routes check again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from latent_core.db.containers import Container
from latent_core.domain.token import Scope
from latent_core.wire.containers import ContainerState
from latent_gateway.auth import access
from latent_gateway.auth.principal import Principal


@dataclass(frozen=True, slots=True)
class ContainerRights:
    """By role, token and the container's state."""

    read: bool
    write: bool
    """Add documents and notes, and ingest again."""
    delete: bool
    """Delete documents of others, too."""
    own: bool
    """Change the manifest, the state and the vectors; in every state."""
    closed: str | None = None
    """Why the container accepts no changes now, if its state forbids them."""

    @classmethod
    def of(cls, principal: Principal, container: Container) -> Self:
        scopes = access.rights(principal, container)
        active = container.state is ContainerState.ACTIVE
        return cls(
            read=Scope.READ in scopes,
            write=active and Scope.WRITE in scopes,
            delete=active and Scope.DELETE in scopes,
            own=Scope.ADMIN in scopes,
            closed=None if active else access.closed(container.id, container.state).message,
        )


def rights_of(principal: Principal, container: Container) -> ContainerRights:
    return ContainerRights.of(principal, container)
