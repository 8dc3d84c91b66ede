"""Joins of several containers go together, and each waiter gets its own part or the failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import pytest

from latent_core.db.connection import Database
from latent_core.db.documents import chunks
from latent_core.db.documents.chunks import ChunkKey
from latent_core.domain.errors import Unavailable
from latent_core.search.live_join import LiveJoin

pytestmark = pytest.mark.asyncio


class NoDatabase:
    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        yield None


def join_that(
    monkeypatch: pytest.MonkeyPatch, statements: list[list[ChunkKey]], fails: int = 0
) -> LiveJoin:
    """Odd chunk_nos are visible; the first ``fails`` statements fail."""

    async def live(_: Any, keys: Sequence[ChunkKey], *, superseded: bool) -> dict[ChunkKey, UUID]:
        assert not superseded
        statements.append(list(keys))
        await asyncio.sleep(0)
        if len(statements) <= fails:
            raise Unavailable("the database does not answer")
        return {key: UUID(int=key[1]) for key in keys if key[1] % 2}

    monkeypatch.setattr(chunks, "live_of_several", live)
    return LiveJoin(cast(Database, NoDatabase()), superseded=False)


async def test_lists_that_are_ready_together_are_joined_by_one_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    statements: list[list[ChunkKey]] = []
    join = join_that(monkeypatch, statements)
    found = await asyncio.gather(join.of("a", [1, 2]), join.of("b", [2, 3]), join.of("a", [5]))
    assert found == [{1: UUID(int=1)}, {3: UUID(int=3)}, {5: UUID(int=5)}]
    assert statements == [[("a", 1), ("a", 2), ("b", 2), ("b", 3), ("a", 5)]]


async def test_a_failure_reaches_those_who_waited_for_it_and_the_next_join_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    join = join_that(monkeypatch, [], fails=1)
    failed = await asyncio.gather(join.of("a", [1]), join.of("b", [1]), return_exceptions=True)
    assert [type(one) for one in failed] == [Unavailable, Unavailable]
    assert await join.of("a", [1]) == {1: UUID(int=1)}


async def test_a_waiter_that_gives_up_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    join = join_that(monkeypatch, [])
    late = asyncio.create_task(join.of("a", [1]))
    other = asyncio.create_task(join.of("b", [3]))
    await asyncio.sleep(0)
    late.cancel()
    assert await other == {3: UUID(int=3)}
    with pytest.raises(asyncio.CancelledError):
        await late
    await join.close()
