"""The join on what is visible, for all containers of one search: joins that are asked for while one runs go together."""

from __future__ import annotations

import asyncio
from uuid import UUID

from latent_core.db.connection import Database
from latent_core.db.documents import chunks
from latent_core.db.documents.chunks import ChunkKey

_Waiting = tuple[str, list[int], "asyncio.Future[dict[int, UUID]]"]


class LiveJoin:
    """A search of five containers has ten lists to join. One statement for several costs hardly more than for one."""

    def __init__(self, db: Database, *, superseded: bool) -> None:
        self._db = db
        self._superseded = superseded
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None

    async def of(self, container_id: str, chunk_nos: list[int]) -> dict[int, UUID]:
        """Those of ``chunk_nos`` that are visible, each with its document."""
        future: asyncio.Future[dict[int, UUID]] = asyncio.get_running_loop().create_future()
        self._waiting.append((container_id, chunk_nos, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._join_all())
        return await future

    async def close(self) -> None:
        """Cancel what is not finished."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _join_all(self) -> None:
        while self._waiting:
            together, self._waiting = self._waiting, []
            try:
                found = await self._joined([(one, no) for one, nos, _ in together for no in nos])
            except Exception as error:  # noqa: BLE001 - each waiter gets it
                for _, _, future in together:
                    if not future.done():
                        future.set_exception(error)
            else:
                for container_id, chunk_nos, future in together:
                    if not future.done():  # its search may have given up
                        future.set_result(
                            {
                                no: found[container_id, no]
                                for no in chunk_nos
                                if (container_id, no) in found
                            }
                        )

    async def _joined(self, keys: list[ChunkKey]) -> dict[ChunkKey, UUID]:
        async with self._db.reading() as conn:
            return await chunks.live_of_several(conn, keys, superseded=self._superseded)
