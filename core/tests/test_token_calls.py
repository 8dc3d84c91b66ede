"""Calls of tokens, counted by day, token and operation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from latent_core.db import token_calls, tokens
from latent_core.db.connection import Connection, Database
from latent_core.db.token_calls import KEPT_DAYS, CallCount, CallKey
from latent_core.db.tokens import NewToken
from latent_core.domain.token import Api, OperationCalls, Scope, digest, new_token

TODAY = datetime.now(UTC).date()


async def created(conn: Connection, name: str) -> int:
    token = NewToken("agent:a", name, frozenset({Scope.READ}), None, None)
    return (await tokens.create(conn, token, digest(new_token()), created_by="local:you")).id


async def test_counts_of_several_gateways_add_up(database: Database) -> None:
    async with database.transaction() as conn:
        one, other = await created(conn, "one"), await created(conn, "other")
        search = CallKey(one, TODAY, Api.MCP, "containers_search")
        await token_calls.add(conn, {search: CallCount(3, 1)})
        await token_calls.add(
            conn,
            {
                CallKey(other, TODAY, Api.HTTP, "GET /v1/jobs"): CallCount(1),
                search: CallCount(4),
                CallKey(one, TODAY - timedelta(days=40), Api.MCP, "jobs_get"): CallCount(9, 9),
                CallKey(10**9, TODAY, Api.MCP, "jobs_get"): CallCount(5),
            },
        )
        found = await token_calls.of_token(conn, one, days=30)
        assert [(c.operation, c.calls, c.failures) for c in found] == [("containers_search", 7, 1)]
        assert found[0].day == TODAY
        whole = await token_calls.totals(conn, [one, other], days=KEPT_DAYS)
        assert whole[one] == [
            OperationCalls(api=Api.MCP, operation="jobs_get", calls=9, failures=9),
            OperationCalls(api=Api.MCP, operation="containers_search", calls=7, failures=1),
        ]
        assert [c.operation for c in whole[other]] == ["GET /v1/jobs"]


async def test_counts_are_forgotten_by_age_and_with_their_token(database: Database) -> None:
    async with database.transaction() as conn:
        one, other = await created(conn, "one"), await created(conn, "other")
        old = TODAY - timedelta(days=KEPT_DAYS + 1)
        await token_calls.add(
            conn,
            {
                CallKey(one, old, Api.MCP, "jobs_get"): CallCount(1),
                CallKey(one, TODAY, Api.MCP, "jobs_get"): CallCount(1),
                CallKey(other, TODAY, Api.MCP, "jobs_get"): CallCount(1),
            },
        )
        assert await token_calls.forget(conn) == 1
        assert await token_calls.forget(conn) == 0
        await conn.execute("DELETE FROM tokens WHERE id = %(id)s", {"id": one})
        assert await token_calls.of_token(conn, one, days=KEPT_DAYS) == []
        assert len(await token_calls.of_token(conn, other, days=KEPT_DAYS)) == 1
