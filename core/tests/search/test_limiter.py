"""The limit of concurrent searches: the order of waiting, time-outs, slots released and acquired again."""

from __future__ import annotations

import asyncio

import pytest

from latent_core.domain.errors import RateLimited
from latent_core.search.limiter import SearchLimiter

SOON = 0.01
LONG = 30.0


async def test_searches_over_the_limit_are_served_first_come_first_served() -> None:
    limiter, served = SearchLimiter(LONG, 1), []

    async def search(name: str) -> None:
        async with limiter.slot(exact=False):
            served.append(name)

    async with limiter.slot(exact=False):
        waiting = [asyncio.create_task(search(name)) for name in ("first", "second", "third")]
        await asyncio.sleep(0)
        assert served == []
    await asyncio.gather(*waiting)
    assert served == ["first", "second", "third"]


async def test_search_over_limit_raises_rate_limited_with_retry_after() -> None:
    limiter = SearchLimiter(SOON, 1)
    async with limiter.slot(exact=False):
        with pytest.raises(RateLimited, match="no slot became free within") as caught:
            async with limiter.slot(exact=False):
                pytest.fail("the only slot was held")
        assert caught.value.details["retry_after"] > 0
    async with limiter.slot(exact=False):
        pass


async def test_a_search_is_refused_at_once_when_too_many_wait_already() -> None:
    limiter, served = SearchLimiter(LONG, 1, max_waiting=2), []

    async def search(name: str) -> None:
        async with limiter.slot(exact=False):
            served.append(name)

    async with limiter.slot(exact=False):
        waiting = [asyncio.create_task(search(name)) for name in ("first", "second")]
        await asyncio.sleep(0)
        with pytest.raises(RateLimited, match="2 searches wait") as caught:
            await search("third")
        assert caught.value.details["retry_after"] > 0
        waiting[0].cancel()
        await asyncio.sleep(0)
        waiting.append(asyncio.create_task(search("fourth")))  # in the place of the cancelled one
        await asyncio.sleep(0)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert served == ["second", "fourth"]


async def test_slow_expressions_never_delay_other_searches() -> None:
    limiter, served = SearchLimiter(SOON, 1), []
    async with limiter.slot(exact=True):
        async with limiter.slot(exact=False):
            served.append("usual")
        with pytest.raises(RateLimited):
            async with limiter.slot(exact=True):
                pytest.fail("the only slot for expressions was held")
    assert served == ["usual"]


async def test_a_slot_is_free_for_others_while_its_search_waits_for_the_network() -> None:
    limiter = SearchLimiter(SOON, 1)
    async with limiter.slot(exact=False) as slot:
        async with slot.released(LONG), limiter.slot(exact=False):
            pass
        with pytest.raises(RateLimited):
            async with limiter.slot(exact=False):
                pytest.fail("the slot was acquired again")
    async with limiter.slot(exact=False):
        pass


async def test_a_search_that_gets_no_slot_again_goes_on_and_releases_none() -> None:
    limiter = SearchLimiter(SOON, 1)
    async with limiter.slot(exact=False) as slot:
        released = slot.released(SOON)
        await released.__aenter__()
        async with limiter.slot(exact=False):
            await released.__aexit__(None, None, None)
    async with limiter.slot(exact=False):
        with pytest.raises(RateLimited):
            async with limiter.slot(exact=False):
                pytest.fail("one slot was released twice")


async def test_a_search_that_fails_or_is_cancelled_releases_its_slot_once() -> None:
    limiter = SearchLimiter(SOON, 1)

    async def fail() -> None:
        async with limiter.slot(exact=False) as slot, slot.released(LONG):
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await fail()
    begun = asyncio.Event()

    async def search() -> None:
        async with limiter.slot(exact=False):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(search())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with limiter.slot(exact=False):
        with pytest.raises(RateLimited):
            async with limiter.slot(exact=False):
                pytest.fail("one slot was released twice")
