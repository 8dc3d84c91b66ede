"""Rows of tokens: what is kept of them, how many live, and from when they live no more."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from latent_core.db import tokens
from latent_core.db.connection import Database
from latent_core.db.tokens import NewToken
from latent_core.domain.errors import Conflict
from latent_core.domain.token import Scope, TokenState, TokenView, digest, new_token

ADA = NewToken("person:ada", "laptop", frozenset({Scope.READ, Scope.WRITE}), ("notes",), None)
AGE = "UPDATE tokens SET last_used_at = last_used_at - interval '61 seconds'"
EXPIRE = "UPDATE tokens SET expires_at = now() WHERE id = %(id)s"


async def make(db: Database, token: NewToken = ADA) -> tuple[str, TokenView]:
    secret = new_token()
    async with db.transaction() as conn:
        return secret, await tokens.create(conn, token, digest(secret), created_by="local:you")


async def test_a_token_is_found_by_its_digest_and_stands_nowhere(database: Database) -> None:
    secret, made = await make(database)
    async with database.reading() as conn:
        found = await tokens.find(conn, digest(secret))
        assert found is not None
        assert (found.id, found.state, found.containers) == (made.id, made.state, {"notes"})
        assert found.scopes == {Scope.READ, Scope.WRITE}
        assert (made.principal, made.scopes, made.containers) == (
            "person:ada",
            [Scope.READ, Scope.WRITE],
            ["notes"],
        )
        assert await tokens.find(conn, digest(new_token())) is None
        row = await (await conn.execute("SELECT tokens::text AS all FROM tokens")).fetchone()
    assert row is not None
    assert secret not in row["all"]


async def test_two_of_a_name_live_at_a_time_however_many_are_made_at_once(
    database: Database,
) -> None:
    made = await asyncio.gather(*(make(database) for _ in range(6)), return_exceptions=True)
    refused = [one for one in made if isinstance(one, BaseException)]
    assert len(refused) == 4
    assert all(
        isinstance(one, Conflict) and "revoke the older one" in one.message for one in refused
    )
    await make(database, NewToken("person:ada", "phone", ADA.scopes, None, None))
    await make(database, NewToken("person:eve", "laptop", ADA.scopes, None, None))


@pytest.mark.parametrize("ended", ["revoked", "expired"])
async def test_a_revoked_token_frees_its_name_and_is_reported(
    database: Database, ended: str
) -> None:
    secret, first = await make(database)
    await make(database)
    async with database.transaction() as conn:
        if ended == "revoked":
            assert await tokens.revoke(conn, first.id)
            assert not await tokens.revoke(conn, first.id)
        else:
            await conn.execute(EXPIRE, {"id": first.id})
    await make(database)
    async with database.reading() as conn:
        found = await tokens.find(conn, digest(secret))
        live = await tokens.page(conn, before=2**62, limit=9, principal=None, all_=False)
        every = await tokens.page(conn, before=2**62, limit=9, principal="person:ada", all_=True)
    assert found is not None
    assert found.state is TokenState(ended)
    assert [one.id for one in live] == [one.id for one in every if one.id != first.id]
    assert len(every) == 3


async def test_use_is_noted_once_a_minute(database: Database) -> None:
    secret, made = await make(database)

    async def use() -> tuple[bool, datetime | None]:
        async with database.reading() as conn:
            found = await tokens.find(conn, digest(secret))
            assert found is not None
            await tokens.note_use(conn, made.id)
            after = await tokens.get(conn, made.id)
        assert after is not None
        return found.unnoted, after.last_used_at

    first, noted = await use()
    assert first
    assert await use() == (False, noted)
    async with database.transaction() as conn:
        await conn.execute(AGE)
    again, later = await use()
    assert again
    assert later is not None
    assert noted is not None
    assert later > noted - timedelta(seconds=61)


async def test_expiry_goes_by_the_databases_clock(database: Database) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    secret, made = await make(database, NewToken("person:ada", "b", ADA.scopes, None, soon))
    assert (made.state, made.expires_at) == (TokenState.LIVE, soon)
    async with database.transaction() as conn:
        await conn.execute(EXPIRE, {"id": made.id})
    async with database.reading() as conn:
        found = await tokens.find(conn, digest(secret))
    assert found is not None
    assert found.state is TokenState.EXPIRED
