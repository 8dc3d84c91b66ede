"""Calls of tokens on their way from a gateway's memory to the database."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import cast

import pytest
from typing_extensions import override

from latent_core.db import token_calls, tokens
from latent_core.db.connection import Connection, Database
from latent_core.db.tokens import NewToken
from latent_core.domain.errors import ReadOnlyStore
from latent_core.domain.token import Api, Scope, digest, new_token
from latent_gateway.auth import call_counts
from latent_gateway.auth.call_counts import CallCounts
from latent_gateway.auth.principal import Principal


class RefusingDatabase(Database):
    """Refuses writes until it is repaired."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.is_repaired = False

    @override
    def single(self) -> AbstractAsyncContextManager[Connection]:
        if not self.is_repaired:
            raise ReadOnlyStore("it is a standby", service="postgres", retry_after=1)
        return self.database.single()


async def caller(database: Database) -> Principal:
    token = NewToken("agent:a", "laptop", frozenset({Scope.READ}), None, None)
    async with database.transaction() as conn:
        return Principal.of(
            await tokens.create(conn, token, digest(new_token()), created_by="local:you")
        )


async def counted(database: Database, who: Principal) -> list[tuple[str, int, int]]:
    async with database.reading() as conn:
        found = await token_calls.of_token(conn, cast(int, who.token_id), days=30)
    return [(one.operation, one.calls, one.failures) for one in found]


async def test_a_database_that_refuses_writes_loses_no_call(database: Database) -> None:
    refusing = RefusingDatabase(database)
    counts, agent = CallCounts(refusing), await caller(database)
    counts.count(agent, Api.MCP, "containers_search")
    counts.count(agent, Api.MCP, "containers_search", failed=True)
    await counts.flush()
    assert await counted(database, agent) == []
    counts.count(agent, Api.MCP, "containers_search")
    refusing.is_repaired = True
    await counts.flush()
    await counts.flush()
    assert await counted(database, agent) == [("containers_search", 3, 1)]


async def test_memory_is_bounded_while_the_database_refuses_writes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_counts, "MAX_COUNTS", 2)
    refusing = RefusingDatabase(database)
    counts, agent = CallCounts(refusing), await caller(database)
    for operation in ("a", "b", "c", "a"):
        counts.count(agent, Api.MCP, operation)
    await counts.flush()
    refusing.is_repaired = True
    counts.count(agent, Api.MCP, "d")
    await counts.flush()
    assert await counted(database, agent) == [("a", 2, 0), ("b", 1, 0)]


async def test_calls_count_for_the_day_on_which_they_were_made(database: Database) -> None:
    days = iter((datetime(2020, 1, 1, tzinfo=UTC), datetime.now(UTC)))
    counts, agent = CallCounts(database, lambda: next(days)), await caller(database)
    counts.count(agent, Api.MCP, "a")
    counts.count(agent, Api.MCP, "a")
    await counts.flush()
    assert await counted(database, agent) == [("a", 1, 0)]


async def test_the_owners_own_token_is_not_counted(database: Database) -> None:
    counts = CallCounts(database)
    counts.count(Principal.owner(), Api.HTTP, "GET /v1/jobs")
    await counts.flush()
    async with database.reading() as conn:
        found = await (await conn.execute("SELECT count(*) AS rows FROM token_calls")).fetchone()
    assert found == {"rows": 0}
