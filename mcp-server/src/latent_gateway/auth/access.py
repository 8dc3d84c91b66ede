"""The rights of a principal, all checked here; the returned types prove them to other modules (DESIGN §11).

Effective rights = the token's containers ∩ its scopes ∩ the manifest's roles ∩ the container's state. A missing
scope is reported before any lookup, because it depends on the token alone. Everything else that the principal may
not read looks as if it did not exist: the same answer by the same query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NewType

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.spaces import spaces
from latent_core.domain.errors import Conflict, Forbidden, Invalid, NotFound
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.token import EVERYBODY, Scope
from latent_core.search.readable import Readable
from latent_core.wire.containers import ContainerState
from latent_gateway.auth.principal import Principal

Writable = NewType("Writable", Container)
"""Proof that the principal of this request may change the container, and that the container's state allows it."""

NOTHING: Final = ""
"""Matches no container: looked up instead of an unknown container, so that both cases take the same time."""


async def readable(
    conn: Connection, principal: Principal, container_ids: Sequence[str]
) -> dict[str, Readable]:
    """The containers, each once; ``NotFound`` names the first that the principal may not read."""
    require(principal, Scope.READ)
    if not container_ids:
        raise Invalid("containers is empty: name at least one. /v1/containers/list lists them")
    unique = list(dict.fromkeys(container_ids))
    found = await _known(conn, principal, unique)
    for container_id in unique:
        container = found.get(container_id)
        if container is None or not _may_see(principal, container):
            raise unknown(container_id)
    return {c: Readable(found[c]) for c in unique}


async def readable_one(conn: Connection, principal: Principal, container_id: str) -> Readable:
    return (await readable(conn, principal, [container_id]))[container_id]


async def readable_of(
    conn: Connection, principal: Principal, container_id: str | None
) -> Readable | None:
    """The container of a found object; None stands for an object that was not found. Both cases run the same query
    and give the same error."""
    require(principal, Scope.READ)
    looked_up = NOTHING if container_id is None else container_id
    container = (await _known(conn, principal, [looked_up])).get(looked_up)
    if container is None or not _may_see(principal, container):
        return None
    return Readable(container)


async def searchable(
    conn: Connection, principal: Principal, container_ids: Sequence[str] | None
) -> dict[str, Readable]:
    """As ``readable``, without archived ones; None: all that the principal may read. ``Conflict`` if every named one is
    archived."""
    if container_ids is None:
        return {c.id: c for c in await all_searchable(conn, principal)}
    found = await readable(conn, principal, container_ids)
    active = {c.id: c for c in found.values() if c.state is not ContainerState.ARCHIVED}
    if not active:
        first = next(iter(found.values()))
        raise closed(first.id, first.state)
    return active


async def all_readable(conn: Connection, principal: Principal) -> list[Readable]:
    """All containers that the principal may read."""
    require(principal, Scope.READ)
    return [Readable(c) for c in await _all(conn, principal) if _may_see(principal, c)]


async def all_searchable(conn: Connection, principal: Principal) -> list[Readable]:
    """Those of them that are not archived."""
    found = await all_readable(conn, principal)
    return [c for c in found if c.state is not ContainerState.ARCHIVED]


async def all_owned(
    conn: Connection, principal: Principal, *, scope: Scope = Scope.ADMIN
) -> list[Readable]:
    """All containers that the principal owns."""
    require(principal, scope)
    return [Readable(c) for c in await _all(conn, principal) if _owns(principal, c)]


async def owned(
    conn: Connection, principal: Principal, container_id: str, *, scope: Scope = Scope.ADMIN
) -> Readable:
    """A container that the principal owns, in any state; ``Forbidden`` if it may only be read."""
    require(principal, scope)
    container = (await _known(conn, principal, [container_id])).get(container_id)
    if container is not None and _owns(principal, container):
        return Readable(container)
    raise _not_owned(principal, container_id, container)


async def writable(
    conn: Connection, principal: Principal, container_id: str, *, scope: Scope = Scope.INGEST
) -> Writable:
    """A container that the principal may add to; ``Conflict`` if its state forbids it."""
    container = await owned(conn, principal, container_id, scope=scope)
    if container.state is not ContainerState.ACTIVE:
        raise closed(container.id, container.state)
    return Writable(container)


async def held(conn: Connection, container: Writable) -> None:
    """Lock the container against deletion and state changes until the transaction ends, and check again as
    ``writable``. First in the lock order of all transactions."""
    state = await containers.hold(conn, container.id)
    if state is None or await containers.bucket(conn, container.id) != container.bucket:
        raise unknown(container.id)  # or deleted and created again meanwhile
    if state is not ContainerState.ACTIVE:
        raise closed(container.id, state)


async def changeable(conn: Connection, principal: Principal, container_id: str) -> Writable:
    """A container that the principal may change as a whole: its manifest, its vectors, its existence."""
    return await writable(conn, principal, container_id, scope=Scope.ADMIN)


async def changed_alone(conn: Connection, principal: Principal, container_id: str) -> Writable:
    """As ``changeable``, locked against all other changes until the transaction ends. First in the lock order.
    Checked before and after the lock: a lock wait must not reveal a container that the caller may not see."""
    await changeable(conn, principal, container_id)
    await spaces.lock(conn, container_id)
    return await changeable(conn, principal, container_id)


async def measurable(conn: Connection, principal: Principal, container_id: str) -> Readable:
    """A container that the principal owns and that can be searched; ``Conflict`` if it is archived."""
    container = await owned(conn, principal, container_id)
    if container.state is ContainerState.ARCHIVED:
        raise closed(container.id, container.state)
    return container


async def job_seen(
    conn: Connection,
    principal: Principal,
    container_id: str | None,
    *,
    to_change: bool,
    requested_by: tuple[str, str] | None = None,
) -> bool:
    """Whether the principal sees the jobs of a container: with the right to read it or to add to it.

    Changing a job needs the right to add. Jobs without a container, or of a deleted one, are visible to the owner
    and to the principal that enqueued them (``requested_by``, with the container of the job).
    """
    require(principal, *((Scope.INGEST,) if to_change else (Scope.READ, Scope.INGEST)))
    looked_up = NOTHING if container_id is None else container_id
    container = (await _known(conn, principal, [looked_up])).get(looked_up)
    if container is None:
        gone = (
            looked_up not in await containers.find(conn, [looked_up]) and container_id is not None
        )
        return gone and (
            principal.is_owner or (not to_change and _requested_by(principal, requested_by))
        )
    if _owns(principal, container):
        return True
    if not _may_see(principal, container) or Scope.READ not in principal.scopes:
        return False
    if to_change:
        raise _only_read(container.id)
    return True


async def jobs_of(conn: Connection, principal: Principal, container_id: str | None) -> list[str]:
    """Containers whose jobs are listed: the named one, or all whose jobs the principal sees."""
    require(principal, Scope.READ, Scope.INGEST)
    found = (
        await _all(conn, principal)
        if container_id is None
        else (await _known(conn, principal, [container_id])).values()
    )
    reads = Scope.READ in principal.scopes
    seen = [c.id for c in found if _owns(principal, c) or (reads and _may_see(principal, c))]
    if container_id is not None and not seen:
        raise unknown(container_id)
    return seen


def check_creation(principal: Principal, container_id: str) -> None:
    """``Forbidden`` unless the token may create a container with that name."""
    require(principal, Scope.ADMIN)
    if principal.containers is not None and container_id not in principal.containers:
        raise Forbidden(
            f"this token is limited to certain containers, and '{container_id}' is none of them"
        )


def check_kept(principal: Principal, manifest: Manifest) -> Manifest:
    """``Invalid`` for a manifest with which the sender could never change the container again."""
    if not _named(principal, manifest.acl.roles.owner):
        raise Invalid(
            f"you would lose access to container '{manifest.id}': acl.roles.owner must name '{principal.name}'"
        )
    return manifest


def require(principal: Principal, *scopes: Scope) -> None:
    """``Forbidden`` unless the token has one of the scopes, whatever the request is about."""
    if principal.scopes.isdisjoint(scopes):
        named = " or ".join(f"'{scope.value}'" for scope in scopes)
        raise Forbidden(
            f"this token lacks the scope {named}; the owner makes one that has it (latent token create)",
            scopes=[scope.value for scope in scopes],
        )


def require_owner(principal: Principal) -> None:
    """``Forbidden`` unless the caller is the owner of the installation, because tokens carry rights."""
    require(principal, Scope.ADMIN)
    if not principal.is_owner:
        raise Forbidden("only the owner of this installation may create, list and revoke tokens")


def check_grant(principal: Principal, scopes: Iterable[Scope]) -> None:
    """``Forbidden`` for scopes that the caller's own token lacks."""
    for scope in scopes:
        require(principal, scope)


def require_operator(principal: Principal) -> None:
    """``Forbidden`` unless the token is for the whole installation."""
    if not principal.is_operator:
        raise Forbidden(
            "this covers all containers: it needs a token with scope 'admin' that is not limited to certain containers"
        )


def unknown(container_id: str) -> NotFound:
    return NotFound(
        f"container '{container_id}' does not exist, or you may not read it; /v1/containers/list names those that can",
        container_id=container_id,
    )


def closed(container_id: str, state: ContainerState) -> Conflict:
    """The error for a container that is not active."""
    state_text = (
        "neither searched nor changed"
        if state is ContainerState.ARCHIVED
        else "searched, but not changed"
    )
    return Conflict(
        f"container '{container_id}' is {state.value}: it is {state_text}; "
        f"its owner opens it again: latent container state {container_id} active",
        container_id=container_id,
        state=state.value,
    )


async def _known(
    conn: Connection, principal: Principal, container_ids: Sequence[str]
) -> dict[str, Container]:
    """The containers whose roles name the principal and which its token covers. The caller checks what the roles
    allow."""
    within = principal.containers
    looked_up = [one if within is None or one in within else NOTHING for one in container_ids]
    return await containers.find(conn, looked_up, named=[principal.name, EVERYBODY])


async def _all(conn: Connection, principal: Principal) -> list[Container]:
    return await containers.all_(conn, named=[principal.name, EVERYBODY])


def _not_owned(
    principal: Principal, container_id: str, container: Container | None
) -> NotFound | Forbidden:
    """A reader knows that the container exists and learns which right is missing; for others it does not exist."""
    seen = container is not None and _may_see(principal, container)
    if seen and Scope.READ in principal.scopes:
        return _only_read(container_id)
    return unknown(container_id)


def _only_read(container_id: str) -> Forbidden:
    return Forbidden(
        f"container '{container_id}' is read-only for you: its manifest's acl.roles.owner does not name you",
        container_id=container_id,
    )


def _requested_by(principal: Principal, requested_by: tuple[str, str] | None) -> bool:
    if requested_by is None:
        return False
    name, about = requested_by
    return name == principal.name and (
        principal.containers is None or about in principal.containers
    )


def _may_see(principal: Principal, container: Container) -> bool:
    """By the token's containers, the roles and the state: only owners see archived containers."""
    if not _within(principal, container):
        return False
    roles = container.manifest.acl.roles
    if container.state is ContainerState.ARCHIVED:
        return _named(principal, roles.owner)
    return _named(principal, (*roles.owner, *roles.reader))


def _owns(principal: Principal, container: Container) -> bool:
    return _within(principal, container) and _named(principal, container.manifest.acl.roles.owner)


def _within(principal: Principal, container: Container) -> bool:
    return principal.containers is None or container.id in principal.containers


def _named(principal: Principal, role: Iterable[str]) -> bool:
    return any(name in (principal.name, EVERYBODY) for name in role)
