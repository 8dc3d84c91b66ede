"""How much a token may ask for, and how much may wait at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from latent_core.db.connection import Connection, Database
from latent_core.domain.errors import OutOfSpace, RateLimited
from latent_core.domain.job import JobKind, NewJob
from latent_core.queue.enqueue import enqueue_many
from latent_core.settings import load_settings
from latent_gateway.auth.principal import Principal
from latent_gateway.auth.quotas import MAX_COUNTED, Quotas, check_capacity

AGENT = Principal("agent:a", token_id=1)
OTHER_TOKEN = Principal("agent:a", token_id=2)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def quotas(clock: Clock | None = None, **limits: int) -> Quotas:
    return Quotas(load_settings(**limits), clock or Clock())


def test_a_rate_limited_token_gets_retry_after() -> None:
    clock = Clock()
    limited = quotas(clock, quota_requests_per_min=60)
    for _ in range(60):
        limited.take_request(AGENT)
    with pytest.raises(RateLimited, match="60 requests per minute") as caught:
        limited.take_request(AGENT)
    clock.now += caught.value.details["retry_after"]
    limited.take_request(AGENT)
    with pytest.raises(RateLimited):
        limited.take_request(AGENT)


def test_tokens_of_one_principal_are_counted_each_by_itself_and_the_owner_not_at_all() -> None:
    limited = quotas(quota_requests_per_min=1)
    limited.take_request(AGENT)
    limited.take_request(OTHER_TOKEN)
    for _ in range(3):
        limited.take_request(Principal.owner())
    with pytest.raises(RateLimited):
        limited.take_request(OTHER_TOKEN)


def test_a_limit_of_nought_is_none() -> None:
    limited = quotas(quota_requests_per_min=0)
    for _ in range(100):
        limited.take_request(AGENT)


def test_the_tokens_that_are_counted_are_bounded() -> None:
    limited = quotas(quota_requests_per_min=1)
    for number in range(MAX_COUNTED + 1):
        limited.take_request(Principal("agent:a", token_id=number))
    limited.take_request(Principal("agent:a", token_id=0))  # longest silent, begins anew
    with pytest.raises(RateLimited):
        limited.take_request(Principal("agent:a", token_id=MAX_COUNTED))


async def test_bytes_are_counted_to_the_end_of_the_day(database: Database) -> None:
    limited = quotas(quota_upload_bytes_per_day=100)
    async with database.transaction() as conn:
        assert await limited.bytes_left(conn, AGENT, 60) == 100
        await limited.count_upload(conn, AGENT, 60)
        assert await limited.bytes_left(conn, AGENT, 40) == 40
        with pytest.raises(RateLimited, match="100 bytes per day") as caught:
            await limited.bytes_left(conn, AGENT, 41)
        assert 0 < caught.value.details["retry_after"] <= 86_400
        assert await limited.bytes_left(conn, Principal.owner(), 1000) is None


async def test_a_body_may_have_what_is_left_and_counts_when_it_is_refused(
    database: Database,
) -> None:
    limited = quotas(quota_upload_bytes_per_day=100)

    async def receive(*pieces: int) -> None:
        async with limited.metered(database, AGENT, 50) as meter:
            for size in pieces:
                meter.took(size)

    with pytest.raises(RateLimited, match="100 bytes per day"):
        await receive(50, 1)
    async with database.transaction() as conn:
        assert await limited.bytes_left(conn, AGENT, 0) == 49
    async with limited.metered(database, Principal.owner(), None) as meter:
        meter.took(1000)


async def test_a_principal_whose_jobs_wait_adds_no_more_of_them(database: Database) -> None:
    limited = quotas(quota_queued_jobs=2)
    async with database.transaction() as conn:
        await limited.check_queue(conn, AGENT)
        await _enqueue(conn, 2, AGENT.name)
        with pytest.raises(RateLimited, match="2 of your jobs are queued") as caught:
            await limited.check_queue(conn, AGENT)
        assert caught.value.details["retry_after"] > 0
        await limited.check_queue(conn, Principal("agent:b"))
        await conn.execute("UPDATE jobs SET state = 'done', finished_at = now()")
        await limited.check_queue(conn, AGENT)


async def test_a_full_queue_takes_nothing_of_anybody_until_it_is_shorter(
    database: Database,
) -> None:
    clock = Clock()
    limited = quotas(clock, max_queued_jobs=3)
    async with database.transaction() as conn:
        await _enqueue(conn, 2, "local:you")
        await limited.check_queue(conn, Principal.owner())  # the third is let in
        with pytest.raises(RateLimited, match="3 jobs are queued"):
            await limited.check_queue(conn, Principal.owner())
        clock.now += 2  # it was never enqueued: the next count says so
        await limited.check_queue(conn, Principal.owner())


async def test_an_upload_must_leave_free_space_on_the_disk(tmp_path: Path) -> None:
    await check_capacity(tmp_path, 0, 2**60)
    await check_capacity(tmp_path, 1, 0)
    with pytest.raises(OutOfSpace, match="LLC_MIN_FREE_BYTES"):
        await check_capacity(tmp_path, 1, 2**60)


async def _enqueue(conn: Connection, count: int, principal: str) -> None:
    jobs = [NewJob(JobKind.COMPACT, "art", principal=principal) for _ in range(count)]
    await enqueue_many(conn, jobs)
