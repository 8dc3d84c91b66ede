"""Background tasks, and their end."""

from __future__ import annotations

import asyncio
from typing import Any, Final

SECONDS_TO_END: Final = 5.0


async def ended(*tasks: asyncio.Task[Any], again_after: float = SECONDS_TO_END) -> None:
    """Stop tasks that go on for ever, and hear their end.

    They are asked again until they do: whoever waits by ``asyncio.wait_for`` (the connection pool does) loses a
    cancellation that comes at the moment the wait is over, on Python 3.11, and a loop would go on.
    """
    waiting = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=again_after)
    await asyncio.gather(*tasks, return_exceptions=True)  # what they failed of is theirs to tell
