"""The rights of a principal, all checked here; the returned types prove them to other modules (DESIGN §11).

A token that names containers has its scopes there. A token that names none has what the manifest's roles give, within
its scopes: owners everything, writers ``read`` and ``write``, readers ``read``. The container's state limits both.
A missing scope is reported before any lookup, because it depends on the token alone. Everything else that the
principal may not read looks as if it did not exist: the same answer by the same query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NewType
from uuid import UUID

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.spaces import spaces
from latent_core.domain.errors import Conflict, Forbidden, Invalid, NotFound
from latent_core.domain.manifest.model import Manifest, Roles
from latent_core.domain.token import EVERYBODY, Scope
from latent_core.search.readable import Readable
from latent_core.wire.containers import ContainerState
from latent_gateway.auth.principal import Principal

Writable = NewType("Writable", Container)
"""Proof that the principal of this request may change the container, and that the container's state allows it."""

WRITER: Final = frozenset({Scope.READ, Scope.WRITE})
READER: Final = frozenset({Scope.READ})
NO_RIGHTS: Final[frozenset[Scope]] = frozenset()
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


async def all_permitted(conn: Connection, principal: Principal, scope: Scope) -> list[Readable]:
    """All containers in which the principal has the right."""
    require(principal, scope)
    return [Readable(c) for c in await _all(conn, principal) if scope in rights(principal, c)]


async def all_owned(conn: Connection, principal: Principal) -> list[Readable]:
    """All containers that the principal may administer."""
    return await all_permitted(conn, principal, Scope.ADMIN)


async def permitted(
    conn: Connection, principal: Principal, container_id: str, scope: Scope
) -> Readable:
    """A container in which the principal has the right, in any state; ``Forbidden`` if it may only be read."""
    require(principal, scope)
    container = (await _known(conn, principal, [container_id])).get(container_id)
    if container is not None and scope in rights(principal, container):
        return Readable(container)
    raise _not_permitted(principal, container_id, container, scope)


async def owned(conn: Connection, principal: Principal, container_id: str) -> Readable:
    """A container that the principal may administer, in any state; ``Forbidden`` if it may only be read."""
    return await permitted(conn, principal, container_id, Scope.ADMIN)


async def writable(
    conn: Connection, principal: Principal, container_id: str, *, scope: Scope = Scope.WRITE
) -> Writable:
    """A container that the principal may add to; ``Conflict`` if its state forbids it."""
    container = await permitted(conn, principal, container_id, scope)
    if container.state is not ContainerState.ACTIVE:
        raise closed(container.id, container.state)
    return Writable(container)


async def deletable(conn: Connection, principal: Principal, container_id: str) -> Writable:
    """A container from which the principal may delete: every document with the scope ``delete``, its own with
    ``write``."""
    require(principal, Scope.DELETE, Scope.WRITE)
    container = (await _known(conn, principal, [container_id])).get(container_id)
    if container is None or {Scope.DELETE, Scope.WRITE}.isdisjoint(rights(principal, container)):
        raise _not_permitted(principal, container_id, container, Scope.DELETE)
    if container.state is not ContainerState.ACTIVE:
        raise closed(container.id, container.state)
    return Writable(container)


def check_own(
    principal: Principal, container: Writable, written_by: str | None, doc_id: UUID
) -> None:
    """``Forbidden`` for another writer's document without the right to delete."""
    if Scope.DELETE in rights(principal, container) or written_by == principal.name:
        return
    raise Forbidden(
        f"document '{doc_id}' was not added by you: this needs a token with scope 'delete'",
        doc_id=str(doc_id),
    )


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
    require(principal, *((Scope.WRITE,) if to_change else (Scope.READ, Scope.WRITE)))
    looked_up = NOTHING if container_id is None else container_id
    container = (await _known(conn, principal, [looked_up])).get(looked_up)
    if container is None:
        gone = (
            looked_up not in await containers.find(conn, [looked_up]) and container_id is not None
        )
        return gone and (
            principal.is_owner or (not to_change and _requested_by(principal, requested_by))
        )
    held_rights = rights(principal, container)
    if Scope.WRITE in held_rights:
        return True
    if Scope.READ not in held_rights:
        return False
    if to_change:
        raise _only_read(principal, container.id, Scope.WRITE)
    return True


async def jobs_of(conn: Connection, principal: Principal, container_id: str | None) -> list[str]:
    """Containers whose jobs are listed: the named one, or all whose jobs the principal sees."""
    require(principal, Scope.READ, Scope.WRITE)
    found = (
        await _all(conn, principal)
        if container_id is None
        else (await _known(conn, principal, [container_id])).values()
    )
    seen = [c.id for c in found if not WRITER.isdisjoint(rights(principal, c))]
    if container_id is not None and not seen:
        raise unknown(container_id)
    return seen


def check_creation(principal: Principal, container_id: str) -> None:
    """``Forbidden`` unless the token may create a container with that name."""
    require(principal, Scope.CREATE)
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


def require_owner(principal: Principal, to: str = "create, list and revoke tokens") -> None:
    """``Forbidden`` unless the caller is the owner of the installation, because tokens carry rights."""
    require(principal, Scope.ADMIN)
    if not principal.is_owner:
        raise Forbidden(f"only the owner of this installation may {to}")


def require_own_token(principal: Principal) -> None:
    """``Forbidden`` for all but the owner's own token. Another token of the owner may have fewer scopes, and it ends."""
    require_owner(principal, "sign in by a link")
    if principal.token_id is not None:
        raise Forbidden(
            "only the owner's own token may create a sign-in link, since the link gives all rights: "
            "sign in with this token instead"
        )


async def check_grant(
    conn: Connection, principal: Principal, scopes: Iterable[Scope], named: Sequence[str]
) -> None:
    """``Forbidden`` for scopes that the caller's own token lacks; ``NotFound`` or ``Forbidden`` for a named container
    that the caller does not own: the new token would give rights there that the caller does not have."""
    for scope in scopes:
        require(principal, scope)
    for container_id in named:
        await owned(conn, principal, container_id)


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


def rights(principal: Principal, container: Container) -> frozenset[Scope]:
    """The scopes that the principal has in the container, as its state allows. Only owners see archived containers."""
    if principal.containers is not None and container.id not in principal.containers:
        return NO_RIGHTS
    roles = container.manifest.acl.roles
    given = principal.scopes & _role_rights(principal, roles)
    if principal.granted_at is not None and container.created_at <= principal.granted_at:
        given = principal.scopes
    open_ = container.state is not ContainerState.ARCHIVED
    return given if open_ or Scope.ADMIN in given or _named(principal, roles.owner) else NO_RIGHTS


def _role_rights(principal: Principal, roles: Roles) -> frozenset[Scope]:
    if _named(principal, roles.owner):
        return frozenset(Scope)
    if _named(principal, roles.writer):
        return WRITER
    return READER if _named(principal, roles.reader) else NO_RIGHTS


async def _known(
    conn: Connection, principal: Principal, container_ids: Sequence[str]
) -> dict[str, Container]:
    """The containers whose roles name the principal, or which its token names. The caller checks its rights there."""
    within = principal.containers
    looked_up = [one if within is None or one in within else NOTHING for one in container_ids]
    names = [principal.name, EVERYBODY]
    return await containers.find(conn, looked_up, named=names, granted=_granted(principal))


async def _all(conn: Connection, principal: Principal) -> list[Container]:
    names = [principal.name, EVERYBODY]
    return await containers.all_(conn, named=names, granted=_granted(principal))


def _granted(principal: Principal) -> frozenset[str]:
    if principal.granted_at is None or principal.containers is None:
        return frozenset()
    return principal.containers


def _not_permitted(
    principal: Principal, container_id: str, container: Container | None, scope: Scope
) -> NotFound | Forbidden:
    """A reader knows that the container exists and learns which right is missing; for others it does not exist."""
    if container is not None and Scope.READ in rights(principal, container):
        return _only_read(principal, container_id, scope)
    return unknown(container_id)


def _only_read(principal: Principal, container_id: str, scope: Scope) -> Forbidden:
    role = "writer" if scope is Scope.WRITE else "owner"
    return Forbidden(
        f"you lack the right '{scope.value}' in container '{container_id}': its owner adds '{principal.name}' to "
        f"acl.roles.{role} of its manifest, or creates a token with that scope that names the container",
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
    return Scope.READ in rights(principal, container)


def _named(principal: Principal, role: Iterable[str]) -> bool:
    return any(name in (principal.name, EVERYBODY) for name in role)
