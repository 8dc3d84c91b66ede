"""Effective rights of a token with and without named containers, by scopes, roles and state, over all combinations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, combinations, product
from typing import Any, Final

import pytest

from latent_core.db import containers
from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import Conflict, Forbidden, Invalid, LatentError, NotFound
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.token import Scope
from latent_core.wire.containers import ContainerState
from latent_gateway.auth import access
from latent_gateway.auth.principal import OWNER, Principal

ME: Final = "agent:me"
ROLES: Final[dict[str, dict[str, list[str]]]] = {
    "owner": {"owner": [ME], "reader": []},
    "all-own": {"owner": ["*"], "reader": []},
    "writer": {"owner": [OWNER], "writer": ["agent:else", ME]},
    "reader": {"owner": [OWNER], "reader": ["agent:else", ME]},
    "all-read": {"owner": [OWNER], "reader": ["*"]},
    "nobody": {"owner": [OWNER], "reader": ["agent:mean", "agent:me2"]},
}
OWNING: Final = ("owner", "all-own")
BY_ROLE: Final = {
    "owner": set(Scope),
    "all-own": set(Scope),
    "writer": {Scope.READ, Scope.WRITE},
    "reader": {Scope.READ},
    "all-read": {Scope.READ},
    "nobody": set[Scope](),
}
LATER: Final = datetime.now(UTC) + timedelta(days=1)
SCOPES: Final = [
    frozenset(some)
    for some in chain.from_iterable(combinations(Scope, n) for n in range(len(Scope) + 1))
]


@dataclass(frozen=True)
class Case:
    role: str
    state: ContainerState
    scopes: frozenset[Scope]
    within: bool | None
    """Whether the token names the container; None when it names none."""
    grants: bool = False
    """Whether the names give rights without a role, as in all but old tokens."""

    @property
    def container_id(self) -> str:
        return f"{self.role}-{self.state.value}"

    @property
    def principal(self) -> Principal:
        named = {None: None, True: frozenset({self.container_id}), False: frozenset({"another"})}
        granted_at = LATER if self.grants else None
        return Principal(ME, self.scopes, named[self.within], 7, granted_at=granted_at)

    @property
    def rights(self) -> set[Scope]:
        if self.within is False:
            return set()
        has = set(self.scopes) if self.grants else self.scopes & BY_ROLE[self.role]
        archived = self.state is ContainerState.ARCHIVED
        return (
            set() if archived and self.role not in OWNING and Scope.ADMIN not in has else set(has)
        )


TOKENS: Final = ((None, False), (True, False), (False, False), (True, True), (False, True))
CASES: Final = [
    Case(role, state, scopes, within, grants)
    for role, state, scopes, (within, grants) in product(ROLES, ContainerState, SCOPES, TOKENS)
]


async def furnish(db: Database) -> None:
    """A container for each role and state."""
    async with db.transaction() as conn:
        for role, state in product(ROLES, ContainerState):
            name = f"{role}-{state.value}"
            manifest = Manifest.model_validate(
                {"id": name, "name": name, "acl": {"roles": ROLES[role]}}
            )
            await containers.insert(conn, manifest, "etag")
            await containers.insert_space(conn, name, "local", "1", 384)
            await containers.set_state(conn, name, state)


async def outcome(call: Awaitable[Any]) -> type[LatentError] | None:
    try:
        await call
    except LatentError as error:
        return type(error)
    return None


def expected_read(case: Case) -> type[LatentError] | None:
    if Scope.READ not in case.scopes:
        return Forbidden
    return None if Scope.READ in case.rights else NotFound


def expected_search(case: Case) -> type[LatentError] | None:
    refused = expected_read(case)
    archived = case.state is ContainerState.ARCHIVED
    return Conflict if refused is None and archived else refused


def expected_owned(case: Case, scope: Scope) -> type[LatentError] | None:
    if scope not in case.scopes:
        return Forbidden
    if scope in case.rights:
        return None
    return Forbidden if Scope.READ in case.rights else NotFound


def expected_write(case: Case) -> type[LatentError] | None:
    refused = expected_owned(case, Scope.WRITE)
    closed = case.state is not ContainerState.ACTIVE
    return Conflict if refused is None and closed else refused


def expected_change(case: Case) -> type[LatentError] | None:
    refused = expected_owned(case, Scope.ADMIN)
    closed = case.state is not ContainerState.ACTIVE
    return Conflict if refused is None and closed else refused


def expected_measure(case: Case) -> type[LatentError] | None:
    refused = expected_owned(case, Scope.ADMIN)
    archived = case.state is ContainerState.ARCHIVED
    return Conflict if refused is None and archived else refused


Ask = Callable[[Connection, Principal, str], Awaitable[object]]
RULES: Final[list[tuple[Ask, Callable[[Case], type[LatentError] | None]]]] = [
    (access.readable_one, expected_read),
    (lambda conn, who, name: access.searchable(conn, who, [name]), expected_search),
    (access.owned, lambda case: expected_owned(case, Scope.ADMIN)),
    (access.writable, expected_write),
    (access.changeable, expected_change),
    (access.changed_alone, expected_change),
    (access.measurable, expected_measure),
]


async def test_every_combination_gives_the_rights_that_its_parts_share(database: Database) -> None:
    await furnish(database)
    async with database.reading() as conn:
        for ask, expected in RULES:
            wrong = [
                case
                for case in CASES
                if await outcome(ask(conn, case.principal, case.container_id)) is not expected(case)
            ]
            assert wrong == []


async def test_jobs_are_shown_to_who_may_read_or_add_and_steered_by_who_may_add(
    database: Database,
) -> None:
    await furnish(database)
    async with database.reading() as conn:
        for case in CASES:
            call = (conn, case.principal, case.container_id)
            if case.scopes.isdisjoint({Scope.READ, Scope.WRITE}):
                assert await outcome(access.job_seen(*call, to_change=False)) is Forbidden
                continue
            shown = not case.rights.isdisjoint({Scope.READ, Scope.WRITE})
            assert await access.job_seen(*call, to_change=False) is shown
            listed = await access.jobs_of(conn, case.principal, None)
            assert (case.container_id in listed) is shown
            named = await outcome(access.jobs_of(*call))
            assert named is (None if shown else NotFound)
            steered = await outcome(access.job_seen(*call, to_change=True))
            writes = Scope.WRITE in case.rights
            if Scope.WRITE not in case.scopes or (shown and not writes):
                assert steered is Forbidden
            elif writes:
                assert await access.job_seen(*call, to_change=True)
            else:
                assert not await access.job_seen(*call, to_change=True)


async def test_lists_hold_readable_containers_and_searches_of_all_skip_archived_ones(
    database: Database,
) -> None:
    await furnish(database)
    async with database.reading() as conn:
        for case in CASES:
            if Scope.READ not in case.scopes:
                assert await outcome(access.all_readable(conn, case.principal)) is Forbidden
                continue
            read = {c.id for c in await access.all_readable(conn, case.principal)}
            searched = {c.id for c in await access.all_searchable(conn, case.principal)}
            assert (case.container_id in read) is (Scope.READ in case.rights)
            archived = case.state is ContainerState.ARCHIVED
            assert (case.container_id in searched) is (Scope.READ in case.rights and not archived)


async def test_a_search_without_containers_covers_those_of_the_token_and_skips_archived_ones(
    database: Database,
) -> None:
    await furnish(database)
    named = ["owner-active", "owner-archived", "reader-readonly"]
    reads = frozenset({Scope.READ})
    async with database.reading() as conn:
        one_project = Principal(ME, reads, frozenset(named), 3)
        open_ones = {"owner-active", "reader-readonly"}
        assert set(await access.searchable(conn, one_project, None)) == open_ones
        assert set(await access.searchable(conn, one_project, named)) == open_ones
        everything = await access.searchable(conn, Principal(ME, reads, None, 3), None)
        assert set(everything) == {
            c.id for c in await access.all_searchable(conn, Principal(ME, reads, None, 3))
        }
        assert open_ones < set(everything)
        assert (
            await outcome(access.searchable(conn, one_project, [*named, "nobody-active"]))
            is NotFound
        )
        assert await outcome(access.searchable(conn, one_project, ["owner-archived"])) is Conflict


async def test_what_is_not_there_and_what_may_not_be_read_are_refused_in_the_same_words(
    database: Database,
) -> None:
    await furnish(database)
    stranger = Principal("agent:stranger", frozenset(Scope), None, 9)
    async with database.reading() as conn:
        for ask, _ in RULES:
            refusals = []
            for name in ("nobody-active", "reader-archived", "never-was-one"):
                with pytest.raises(NotFound) as refused:
                    await ask(conn, stranger, name)
                refusals.append(
                    (refused.value.message.replace(name, "…"), set(refused.value.details))
                )
            assert len(set(map(str, refusals))) == 1
        assert await access.readable_of(conn, stranger, None) is None
        assert await access.readable_of(conn, stranger, "nobody-active") is None


async def test_jobs_of_what_is_no_more_stay_with_the_owner_of_the_installation(
    database: Database,
) -> None:
    everything = frozenset(Scope)
    await furnish(database)
    async with database.reading() as conn:
        elsewhere = (conn, Principal.owner(), "owner-active")
        assert not await access.job_seen(*elsewhere, to_change=False)
        for who, shown in [
            (Principal.owner(), True),
            (Principal(OWNER, everything, frozenset({"gone"}), 3), False),
            (Principal("agent:x", everything, None, 4), False),
        ]:
            assert await access.job_seen(conn, who, "gone", to_change=False) is shown
            assert not await access.job_seen(conn, who, None, to_change=False)


async def test_a_job_of_what_is_no_more_is_shown_to_who_enqueued_it_and_not_steered_by_it(
    database: Database,
) -> None:
    everything = frozenset(Scope)
    await furnish(database)
    async with database.reading() as conn:
        for within, container_id, requested_by, shown in [
            (None, "gone", (ME, "gone"), True),
            (None, "", (ME, "to-come"), True),  # an import that makes its container
            (None, "gone", ("agent:else", "gone"), False),
            (frozenset({"gone"}), "gone", (ME, "gone"), True),
            (frozenset({"another"}), "", (ME, "to-come"), False),
            (None, "nobody-active", (ME, "nobody-active"), False),  # it is there, and not mine
        ]:
            call = (conn, Principal(ME, everything, within, 7), container_id)
            assert (
                await access.job_seen(*call, to_change=False, requested_by=requested_by) is shown
            ), requested_by
            assert not await access.job_seen(*call, to_change=True, requested_by=requested_by)


async def test_tokens_are_made_by_the_owner_and_give_no_more_than_the_asker_has(
    database: Database,
) -> None:
    access.require_owner(Principal.owner())
    narrow = Principal(OWNER, frozenset({Scope.ADMIN}), None, 1)
    access.require_owner(narrow)
    await furnish(database)
    async with database.reading() as conn:
        await access.check_grant(conn, narrow, [Scope.ADMIN], ["reader-active"])
        with pytest.raises(Forbidden, match="'read'"):
            await access.check_grant(conn, narrow, [Scope.ADMIN, Scope.READ], [])
        for unowned in ("owner-active", "never-was-one"):
            with pytest.raises(NotFound):
                await access.check_grant(conn, narrow, [Scope.ADMIN], ["reader-active", unowned])
    for refused in (
        Principal(OWNER, frozenset({Scope.READ, Scope.WRITE}), None, 1),
        Principal(OWNER, frozenset(Scope), frozenset({"notes"}), 1),
        Principal("agent:admin", frozenset(Scope), None, 1),
    ):
        with pytest.raises(Forbidden):
            access.require_owner(refused)


async def test_a_token_gives_no_right_in_a_container_that_was_created_after_it(
    database: Database,
) -> None:
    await furnish(database)
    named = frozenset({"nobody-active"})
    token = Principal(ME, frozenset(Scope), named, 7, granted_at=LATER)
    older = replace(token, granted_at=datetime.now(UTC) - timedelta(days=1))
    async with database.reading() as conn:
        assert await access.readable_one(conn, token, "nobody-active")
        with pytest.raises(NotFound):
            await access.readable_one(conn, older, "nobody-active")


def test_a_container_is_created_within_the_tokens_containers_and_kept_by_its_maker() -> None:
    one = Principal(ME, frozenset({Scope.CREATE}), frozenset({"mine"}), 1)
    access.check_creation(one, "mine")
    with pytest.raises(Forbidden):
        access.check_creation(one, "yours")
    with pytest.raises(Forbidden):
        access.check_creation(Principal(ME, frozenset(Scope) - {Scope.CREATE}), "mine")
    mine = Manifest.model_validate(
        {"id": "mine", "name": "Mine", "acl": {"roles": {"owner": [ME]}}}
    )
    assert access.check_kept(one, mine) is mine
    with pytest.raises(Invalid, match="lose access"):
        access.check_kept(one, Manifest(id="mine", name="Mine"))
