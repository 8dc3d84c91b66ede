"""Questions at a time, of one principal and of a gateway."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from latent_core.domain.errors import RateLimited
from latent_core.domain.token import Scope
from latent_gateway.auth.ask_limiter import AskLimiter
from latent_gateway.auth.principal import Principal

READ = frozenset({Scope.READ})
ADA, BOB = Principal("agent:ada", READ), Principal("agent:bob", READ)


async def test_one_principal_cannot_take_the_slots_of_others() -> None:
    limiter = AskLimiter(max_running=3, max_per_principal=2)
    async with AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(limiter.slot(ADA))
        with pytest.raises(RateLimited, match="2 of your questions") as refused:
            await held.enter_async_context(limiter.slot(ADA))
        assert refused.value.details["retry_after"] > 0
        await held.enter_async_context(limiter.slot(BOB))
    async with limiter.slot(ADA):
        pass


async def test_the_owner_is_limited_by_the_gateway_only() -> None:
    limiter = AskLimiter(max_running=3, max_per_principal=1, wait_seconds=0)
    async with AsyncExitStack() as held:
        for _ in range(3):
            await held.enter_async_context(limiter.slot(Principal.owner()))
        with pytest.raises(RateLimited, match="no slot became free"):
            await held.enter_async_context(limiter.slot(Principal.owner()))


async def test_a_question_waits_for_a_slot_and_too_many_are_refused_at_once() -> None:
    limiter = AskLimiter(max_running=1, max_per_principal=9, max_waiting=1, wait_seconds=60)
    answered: list[str] = []

    async def use_slot(who: Principal) -> None:
        async with limiter.slot(who):
            answered.append(who.name)

    async with limiter.slot(ADA):
        waiting = asyncio.create_task(use_slot(BOB))
        await asyncio.sleep(0)
        with pytest.raises(RateLimited, match="1 others wait"):
            await use_slot(ADA)
        assert answered == []
    await waiting
    assert answered == [BOB.name]


async def test_a_question_that_is_cancelled_while_it_waits_gives_its_place_back() -> None:
    limiter = AskLimiter(max_running=1, max_per_principal=2, max_waiting=1, wait_seconds=60)

    async def wait() -> None:
        async with limiter.slot(ADA):
            pass

    async with limiter.slot(ADA):
        for _ in range(3):
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            assert not waiting.done(), "it was refused"
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
    await wait()
