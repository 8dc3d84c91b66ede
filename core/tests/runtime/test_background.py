"""The end of background tasks."""

from __future__ import annotations

import asyncio

from latent_core.runtime.tasks import ended


async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    lost = 0

    async def deaf() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
                if lost == 3:
                    raise

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    await ended(task, again_after=0.001)
    assert task.cancelled()
    assert lost == 3


async def test_what_a_task_failed_of_does_not_stop_the_others_from_ending() -> None:
    async def failing() -> None:
        raise ValueError("told in its own place")

    tasks = [asyncio.create_task(failing()), asyncio.create_task(asyncio.Event().wait())]
    await asyncio.sleep(0)
    await ended(*tasks)
    assert all(task.done() for task in tasks)


async def test_no_task_is_no_wait() -> None:
    await ended()
