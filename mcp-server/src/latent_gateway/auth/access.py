"""What a principal may do: the one place that reads manifest roles and yields the proof others ask for.

Unknown and unreadable containers give the same answer, by the same query (DESIGN §11).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType

from latent_core.domain.container import ContainerState
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.registry import containers
from latent_core.registry.connection import Connection
from latent_core.registry.containers import Container
from latent_gateway.auth.principal import Principal

Readable = NewType("Readable", Container)
"""Proof that the principal of this request may read the container."""
Writable = NewType("Writable", Container)
"""Proof that the principal of this request may change the container, and that its state allows it."""


async def readable(
    conn: Connection, principal: Principal, wanted: Sequence[str]
) -> dict[str, Readable]:
    """The wanted containers, each once; ``NotFound`` names the first that may not be read."""
    if not wanted:
        raise Invalid(
            "containers is empty: name at least one, or ask /v1/containers/list which there are"
        )
    unique = list(dict.fromkeys(wanted))
    found = await containers.find(conn, unique)
    for container_id in unique:
        container = found.get(container_id)
        if container is None or not _may_read(principal, container):
            raise unknown(container_id)
    return {c: Readable(found[c]) for c in unique}


async def readable_one(conn: Connection, principal: Principal, container_id: str) -> Readable:
    return (await readable(conn, principal, [container_id]))[container_id]


async def all_readable(conn: Connection, principal: Principal) -> list[Readable]:
    """Every container the principal may read."""
    return [Readable(c) for c in await containers.all_(conn) if _may_read(principal, c)]


async def owned(conn: Connection, principal: Principal, container_id: str) -> Readable:
    """A container the principal owns, in whatever state."""
    container = await readable_one(conn, principal, container_id)
    if principal.name not in container.manifest.acl.roles.owner:
        raise unknown(container_id)
    return container


async def writable(conn: Connection, principal: Principal, container_id: str) -> Writable:
    """A container the principal owns and that takes content; ``Conflict`` when its state forbids it."""
    container = await owned(conn, principal, container_id)
    if container.state is not ContainerState.ACTIVE:
        raise Conflict(
            f"container '{container_id}' is {container.state.value}: it takes no changes"
        )
    return Writable(container)


async def was_deleted(conn: Connection, container_id: str) -> bool:
    """Whether there is no such container any more: its jobs remain for a while."""
    return not await containers.find(conn, [container_id])


def _may_read(principal: Principal, container: Container) -> bool:
    roles = container.manifest.acl.roles
    return any(name in (principal.name, "*") for name in (*roles.owner, *roles.reader))


def unknown(container_id: str) -> NotFound:
    return NotFound(
        f"container '{container_id}' does not exist or may not be read; /v1/containers/list names those that can",
        container_id=container_id,
    )
