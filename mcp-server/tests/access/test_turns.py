"""Turns: how many searches are at work at once, and who waits for whom."""

from __future__ import annotations

import asyncio

import pytest

from latent_core.domain.errors import RateLimited
from latent_gateway.search.turns import Turns

SOON = 0.01
LONG = 30.0


async def test_who_comes_when_all_turns_are_taken_is_served_in_the_order_of_coming() -> None:
    turns, served = Turns(1), []

    async def search(name: str) -> None:
        async with turns.turn(LONG, exact=False):
            served.append(name)

    async with turns.turn(LONG, exact=False):
        waiting = [asyncio.create_task(search(name)) for name in ("first", "second", "third")]
        await asyncio.sleep(0)
        assert served == []
    await asyncio.gather(*waiting)
    assert served == ["first", "second", "third"]


async def test_who_gets_no_turn_in_time_is_told_to_come_back() -> None:
    turns = Turns(1)
    async with turns.turn(LONG, exact=False):
        with pytest.raises(RateLimited, match="no turn came within") as caught:
            async with turns.turn(SOON, exact=False):
                pytest.fail("there was one turn, and it was taken")
        assert caught.value.details["retry_after"] > 0
    async with turns.turn(SOON, exact=False):
        pass


async def test_expressions_never_keep_other_searches_waiting() -> None:
    turns, served = Turns(1), []
    async with turns.turn(LONG, exact=True):
        async with turns.turn(SOON, exact=False):
            served.append("usual")
        with pytest.raises(RateLimited):
            async with turns.turn(SOON, exact=True):
                pytest.fail("there was one turn for expressions, and it was taken")
    assert served == ["usual"]


async def test_a_turn_is_lent_to_others_while_its_search_waits_for_somebody_far_away() -> None:
    turns = Turns(1)
    async with turns.turn(LONG, exact=False) as turn:
        async with turn.lent(), turns.turn(SOON, exact=False):
            pass
        with pytest.raises(RateLimited):
            async with turns.turn(SOON, exact=False):
                pytest.fail("it was taken back")
    async with turns.turn(SOON, exact=False):
        pass


async def test_who_comes_back_when_all_turns_are_taken_goes_on_without_one_and_gives_none_back() -> (
    None
):
    turns = Turns(1)
    async with turns.turn(SOON, exact=False) as turn:
        lent = turn.lent()
        await lent.__aenter__()
        async with turns.turn(LONG, exact=False):
            await lent.__aexit__(None, None, None)
    async with turns.turn(SOON, exact=False):
        with pytest.raises(RateLimited):
            async with turns.turn(SOON, exact=False):
                pytest.fail("one turn was given back twice")


async def test_a_search_that_fails_or_is_given_up_gives_its_turn_back_once() -> None:
    turns = Turns(1)

    async def fail() -> None:
        async with turns.turn(LONG, exact=False) as turn, turn.lent():
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await fail()
    begun = asyncio.Event()

    async def search() -> None:
        async with turns.turn(LONG, exact=False):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(search())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    async with turns.turn(SOON, exact=False):
        with pytest.raises(RateLimited):
            async with turns.turn(SOON, exact=False):
                pytest.fail("one turn was given back twice")
