"""Keys of requests: one attempt answers, a crashed one is followed by another, and what was answered stays a day."""

from __future__ import annotations

from dataclasses import replace

from latent_core.registry import idempotency, usage
from latent_core.registry.connection import Connection, Database
from latent_core.registry.idempotency import KeptAnswer, KeyedRequest

REQUEST = KeyedRequest("agent:a", "key-1", request_hash="r", body_hash="b")
ANSWER = KeptAnswer(201, {"content-type": "application/json"}, b'{"ok": true}')
CRASH = "UPDATE idempotency_keys SET locked_until = clock_timestamp() - interval '1 second'"
AGE = "UPDATE idempotency_keys SET created_at = now() - interval '25 hours'"


async def test_a_key_is_claimed_once_until_it_is_released(database: Database) -> None:
    async with database.transaction() as conn:
        held = await idempotency.claim(conn, REQUEST, seconds=60)
        assert held is not None
        assert await idempotency.claim(conn, REQUEST, seconds=60) is None
        theirs = replace(REQUEST, principal="agent:b")
        assert await idempotency.claim(conn, theirs, seconds=60) is not None
        await idempotency.release(conn, REQUEST, held)
        assert await idempotency.claim(conn, REQUEST, seconds=60) is not None


async def test_what_was_answered_is_known_and_not_answered_anew(database: Database) -> None:
    async with database.transaction() as conn:
        held = await idempotency.claim(conn, REQUEST, seconds=60)
        assert held is not None
        assert await idempotency.keep(conn, REQUEST, held, "b", ANSWER)
        await idempotency.release(conn, REQUEST, held)  # as its attempt does at its end
        assert await idempotency.claim(conn, REQUEST, seconds=60) is None
        known = await idempotency.look(conn, "agent:a", "key-1")
    assert known is not None
    assert known.answer == ANSWER
    assert known.is_of(REQUEST)
    assert not known.is_of(replace(REQUEST, request_hash="other"))
    assert not known.is_of(replace(REQUEST, body_hash="other"))
    assert known.is_of(replace(REQUEST, body_hash=None))  # an upload that was not read yet


async def test_a_crashed_attempt_is_followed_by_one_with_the_same_request_only(
    database: Database,
) -> None:
    async with database.transaction() as conn:
        crashed = await idempotency.claim(conn, REQUEST, seconds=60)
        assert crashed is not None
        await conn.execute(CRASH)
        other = replace(REQUEST, request_hash="other")
        assert await idempotency.claim(conn, other, seconds=60) is None
        follower = await idempotency.claim(conn, REQUEST, seconds=60)
        assert follower not in (None, crashed)


async def test_an_attempt_that_was_taken_for_crashed_changes_nothing_any_more(
    database: Database,
) -> None:
    async with database.transaction() as conn:
        late = await idempotency.claim(conn, REQUEST, seconds=60)
        assert late is not None
        await conn.execute(CRASH)
        follower = await idempotency.claim(conn, REQUEST, seconds=60)
        assert follower is not None
        assert not await idempotency.renew(conn, REQUEST, late, seconds=60)
        assert not await idempotency.keep(conn, REQUEST, late, "b", ANSWER)
        await idempotency.release(conn, REQUEST, late)
        assert await idempotency.keep(conn, REQUEST, follower, "b", ANSWER)


async def test_a_key_is_forgotten_after_a_day_and_free_before_it_is_pruned(
    database: Database,
) -> None:
    async with database.transaction() as conn:
        await _answered(conn)
        assert await idempotency.forget(conn) == 0
        await conn.execute(AGE)
        other = replace(REQUEST, request_hash="other")
        assert await idempotency.claim(conn, other, seconds=60) is not None
        await conn.execute(AGE)
        assert await idempotency.forget(conn) == 1
        assert await idempotency.look(conn, "agent:a", "key-1") is None


async def test_uploads_are_counted_by_day_and_by_whom(database: Database) -> None:
    async with database.transaction() as conn:
        await usage.count_upload(conn, "agent:a", 10)
        await usage.count_upload(conn, "agent:a", 5)
        await usage.count_upload(conn, "agent:b", 1)
        assert await usage.uploaded_today(conn, "agent:a") == 15
        await conn.execute("UPDATE uploaded_bytes SET day = day - 1 WHERE who = 'agent:a'")
        assert await usage.uploaded_today(conn, "agent:a") == 0
        assert await usage.forget(conn) == 0
        await conn.execute("UPDATE uploaded_bytes SET day = day - 40 WHERE who = 'agent:a'")
        assert await usage.forget(conn) == 1


async def _answered(conn: Connection) -> None:
    held = await idempotency.claim(conn, REQUEST, seconds=60)
    assert held is not None
    assert await idempotency.keep(conn, REQUEST, held, "b", ANSWER)
