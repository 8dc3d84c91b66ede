"""The connections on which processes hear of each other's changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import psycopg

from latent_core.runtime.tasks import ended

CUT: Final = """
SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
WHERE application_name = 'latent listener'
"""


@asynccontextmanager
async def notifications_cut(dsn: str) -> AsyncIterator[None]:
    """End every connection that gateways and workers listen on, again and again while the block runs."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:

        async def cut() -> int:
            return len(await (await conn.execute(CUT)).fetchall())

        async def keep_cut() -> None:
            while True:
                await cut()

        assert await cut(), "a process listened"
        cutting = asyncio.create_task(keep_cut())
        try:
            yield
            assert not cutting.done(), "connections were ended until now"
        finally:
            await ended(cutting)
