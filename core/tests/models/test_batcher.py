"""The micro-batcher: full batches, in turn, each caller on its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.errors import (
    IngestFailed,
    InputRefused,
    LatentError,
    RateLimited,
    TimedOut,
    Unavailable,
)
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.models.embedding.batcher import Batcher, RefusedTexts
from latent_core.models.embedding.port import EmbeddingModel, TextsOnly
from latent_core.models.embedding.tokens import PieceTokenizer
from tests.support.hashed_embedder import HashedWords

DIMS = 16
DEADLINE = 20.0
HASHED = HashedWords(DIMS)


class Recorder(TextsOnly):
    """An embedder that notes its batches, waits at a gate and fails where it is told to."""

    def __init__(self) -> None:
        self.model = EmbeddingModel("recorder", "1", DIMS, 100)
        self.tokenizer = PieceTokenizer()
        self.batches: list[list[str]] = []
        self.under_way = 0
        self.max_in_flight = 0
        self.failure: Callable[[Sequence[str]], Exception | None] = lambda _: None
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        self.batches.append(list(texts))
        self.under_way += 1
        self.max_in_flight = max(self.max_in_flight, self.under_way)
        self.entered.set()
        try:
            await self.gate.wait()
        finally:
            self.under_way -= 1
        if failure := self.failure(texts):
            raise failure
        return HASHED.vectors(texts)

    async def embed_query(self, text: str) -> Vector:
        vector: Vector = HASHED.vectors([text])[0]
        return vector

    async def close(self) -> None:
        """Nothing is held open."""


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def batcher(recorder: Recorder) -> AsyncIterator[Batcher]:
    batcher = Batcher(recorder, max_texts=10, max_tokens=1000, in_flight=1)
    yield batcher
    await batcher.close()


def texts(name: str, count: int) -> list[str]:
    return [f"{name} {n}" for n in range(count)]


async def held(recorder: Recorder, batcher: Batcher) -> asyncio.Task[Matrix]:
    """A first batch that keeps the embedder busy until the gate opens."""
    recorder.gate.clear()
    task = asyncio.create_task(batcher.embed(["first"]))
    await recorder.entered.wait()
    return task


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


def refusing(word: str, error: LatentError) -> Callable[[Sequence[str]], Exception | None]:
    return lambda batch: error if any(word in text for text in batch) else None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.text(max_size=60), max_size=25), min_size=1, max_size=6),
    st.integers(1, 12),
    st.integers(1, 60),
    st.integers(1, 3),
)
async def test_each_caller_gets_its_own_rows_in_order_whatever_the_limits(
    calls: list[list[str]], max_texts: int, max_tokens: int, in_flight: int
) -> None:
    recorder = Recorder()
    batcher = Batcher(recorder, max_texts=max_texts, max_tokens=max_tokens, in_flight=in_flight)
    async with asyncio.timeout(DEADLINE):
        results = await asyncio.gather(*(batcher.embed(own) for own in calls))
        await batcher.close()
    for own, rows in zip(calls, results, strict=True):
        assert rows.shape == (len(own), DIMS)
        if own:
            assert np.array_equal(rows, HASHED.vectors(own))
    assert sum(map(len, recorder.batches)) == sum(map(len, calls))
    assert all(len(batch) <= max_texts for batch in recorder.batches)
    assert recorder.max_in_flight <= in_flight


async def test_a_lone_text_leaves_at_once(recorder: Recorder) -> None:
    batcher = Batcher(recorder, max_wait_ms=3_600_000)
    async with asyncio.timeout(DEADLINE):
        await batcher.embed(["alone"])
    await batcher.close()
    assert [len(batch) for batch in recorder.batches] == [1]


async def test_concurrent_callers_share_a_batch(recorder: Recorder, batcher: Batcher) -> None:
    first = await held(recorder, batcher)
    calls = [asyncio.create_task(batcher.embed(texts(name, 3))) for name in "abc"]
    await settle()
    recorder.gate.set()
    await asyncio.gather(first, *calls)
    assert [len(batch) for batch in recorder.batches] == [1, 9]


async def test_full_batches_of_one_call_go_side_by_side_and_no_more_than_may(
    recorder: Recorder,
) -> None:
    batcher = Batcher(recorder, max_texts=10, in_flight=4)
    recorder.gate.clear()
    call = asyncio.create_task(batcher.embed(texts("long", 75)))
    await settle()
    assert [len(batch) for batch in recorder.batches] == [10] * 4
    recorder.gate.set()
    assert np.array_equal(await call, HASHED.vectors(texts("long", 75)))
    assert recorder.max_in_flight == 4
    await batcher.close()


async def test_a_batch_that_is_not_full_waits_while_two_are_under_way(recorder: Recorder) -> None:
    batcher = Batcher(recorder, max_texts=10, in_flight=4)
    recorder.gate.clear()
    calls = [asyncio.create_task(batcher.embed(texts("first", 1)))]
    for name in "abcd":
        await settle()
        calls.append(asyncio.create_task(batcher.embed(texts(name, 2))))
    await settle()
    assert [len(batch) for batch in recorder.batches] == [1, 2]
    recorder.gate.set()
    await asyncio.gather(*calls)
    assert [len(batch) for batch in recorder.batches] == [1, 2, 6]
    await batcher.close()


async def test_a_remote_embedder_is_sent_as_many_requests_as_it_takes() -> None:
    class Remote(Recorder):
        texts_a_request = 5
        requests_at_a_time = 3

    remote = Remote()
    batcher = Batcher(remote)
    remote.gate.clear()
    call = asyncio.create_task(batcher.embed(texts("long", 50)))
    await settle()
    assert [len(batch) for batch in remote.batches] == [5] * 3
    remote.gate.set()
    await call
    await batcher.close()


async def test_a_short_document_does_not_wait_for_a_long_one(
    recorder: Recorder, batcher: Batcher
) -> None:
    first = await held(recorder, batcher)
    long = asyncio.create_task(batcher.embed(texts("long", 500)))
    await settle()
    short = asyncio.create_task(batcher.embed(texts("short", 4)))
    await settle()
    recorder.gate.set()
    await short
    assert not long.done()
    assert sum("short" in text for text in recorder.batches[1]) == 4
    await asyncio.gather(first, long)


async def test_batches_are_bounded_by_tokens_too(recorder: Recorder) -> None:
    batcher = Batcher(recorder, max_texts=100, max_tokens=120, in_flight=1)
    await batcher.embed(["word " * 40] * 20)  # fifty tokens each, by bytes
    await batcher.close()
    assert {len(batch) for batch in recorder.batches} == {2}


async def test_texts_of_like_length_go_together(recorder: Recorder, batcher: Batcher) -> None:
    mixed = [f"{n} " + "word " * (1 if n % 2 else 40) for n in range(20)]
    rows = await batcher.embed(mixed)
    assert np.array_equal(rows, HASHED.vectors(mixed))
    lengths = [[len(text) for text in batch] for batch in recorder.batches]
    assert [min(own) > 100 for own in lengths] == [True, False]


class TestCheckpoint:
    async def test_the_checkpoint_is_called_between_the_batches_of_its_caller(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        seen_batches: list[int] = []

        async def checkpoint() -> None:
            seen_batches.append(len(recorder.batches))

        await batcher.embed(texts("a", 45), checkpoint)
        assert len(recorder.batches) == 5
        assert len(seen_batches) == 4

    async def test_what_it_raises_ends_its_call_and_no_other(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        async def cancelled() -> None:
            raise Unavailable("the lease is lost")

        first = await held(recorder, batcher)
        doomed = asyncio.create_task(batcher.embed(texts("doomed", 100), cancelled))
        other = asyncio.create_task(batcher.embed(texts("other", 30)))
        await settle()
        recorder.gate.set()
        with pytest.raises(Unavailable, match="lease"):
            await doomed
        assert np.array_equal(await other, HASHED.vectors(texts("other", 30)))
        await first
        assert sum("doomed" in text for batch in recorder.batches for text in batch) <= 10

    async def test_a_slow_one_holds_up_its_own_caller_only(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        answer = asyncio.Event()

        async def slow() -> None:
            await answer.wait()

        waiting = asyncio.create_task(batcher.embed(texts("waiting", 30), slow))
        async with asyncio.timeout(DEADLINE):
            await batcher.embed(texts("other", 40))
        assert not waiting.done()
        answer.set()
        assert np.array_equal(await waiting, HASHED.vectors(texts("waiting", 30)))


class TestFailure:
    async def test_a_text_that_is_refused_fails_its_own_caller_only(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        recorder.failure = refusing("bad", IngestFailed("refused", text="bad"))
        first = await held(recorder, batcher)
        calls = [
            asyncio.create_task(batcher.embed(own))
            for own in (texts("good", 3), ["bad"], texts("fine", 3))
        ]
        await settle()
        recorder.gate.set()
        good, bad, fine = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(bad, IngestFailed)
        assert bad.details == {"text": "bad"}
        assert isinstance(good, np.ndarray)
        assert isinstance(fine, np.ndarray)
        assert np.array_equal(good, HASHED.vectors(texts("good", 3)))
        assert np.array_equal(fine, HASHED.vectors(texts("fine", 3)))
        await first

    async def test_a_transient_error_is_raised_to_the_whole_batch_and_not_repeated(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        first = await held(recorder, batcher)
        recorder.failure = lambda _: RateLimited("slow down", retry_after=3.0)
        calls = [asyncio.create_task(batcher.embed(texts(name, 2))) for name in "ab"]
        await settle()
        recorder.gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [RateLimited, RateLimited]
        assert results[0] is not results[1]
        assert len(recorder.batches) == 2
        await asyncio.gather(first, return_exceptions=True)

    async def test_a_failed_caller_sends_nothing_more(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        recorder.failure = refusing("bad 0", IngestFailed("refused"))
        with pytest.raises(IngestFailed):
            await batcher.embed([*texts("bad", 100)])
        await settle()
        assert len(recorder.batches) <= 2

    async def test_a_caller_that_is_cancelled_leaves_the_others_alone(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        first = await held(recorder, batcher)
        gone = asyncio.create_task(batcher.embed(texts("gone", 50)))
        stays = asyncio.create_task(batcher.embed(texts("stays", 15)))
        await settle()
        gone.cancel()
        recorder.gate.set()
        assert np.array_equal(await stays, HASHED.vectors(texts("stays", 15)))
        assert gone.cancelled()
        assert not any("gone" in text for batch in recorder.batches for text in batch)
        await first

    async def test_a_caller_cancelled_while_its_batch_is_under_way_is_no_trouble(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        recorder.failure = refusing("gone", IngestFailed("refused"))
        first = await held(recorder, batcher)
        first.cancel()
        gone = asyncio.create_task(batcher.embed(texts("gone", 2)))
        stays = asyncio.create_task(batcher.embed(texts("stays", 2)))
        await settle()
        recorder.entered.clear()
        recorder.gate.set()
        recorder.gate.clear()
        await settle()
        gone.cancel()
        recorder.gate.set()
        assert np.array_equal(await stays, HASHED.vectors(texts("stays", 2)))

    async def test_a_defect_of_the_embedder_reaches_the_caller(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        recorder.failure = lambda _: ZeroDivisionError("a defect")
        with pytest.raises(ZeroDivisionError):
            await batcher.embed(["x"])
        recorder.failure = lambda _: None
        assert (await batcher.embed(["x"])).shape == (1, DIMS)

    async def test_a_batch_has_a_deadline(self, recorder: Recorder) -> None:
        batcher = Batcher(recorder, batch_seconds=0.01)
        recorder.gate.clear()
        with pytest.raises(TimedOut):
            await batcher.embed(["x"])
        await batcher.close()


class TestBounds:
    async def test_so_many_callers_are_served_at_a_time(self, recorder: Recorder) -> None:
        batcher = Batcher(recorder, max_texts=100, max_callers=3, in_flight=1)
        first = await held(recorder, batcher)
        calls = [asyncio.create_task(batcher.embed(texts(str(n), 1))) for n in range(9)]
        await settle()
        recorder.gate.set()
        await asyncio.gather(first, *calls)
        await batcher.close()
        assert all(len(batch) <= 3 for batch in recorder.batches)

    async def test_closing_ends_who_waits_and_who_comes(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        first = await held(recorder, batcher)
        waiting = asyncio.create_task(batcher.embed(texts("waiting", 40)))
        await settle()
        await batcher.close()
        for task in (first, waiting):
            with pytest.raises(Unavailable, match="closed"):
                await task
        with pytest.raises(Unavailable, match="closed"):
            await batcher.embed(["late"])


class TestRefusedTexts:
    """One text that the embedder refuses costs only its own vector."""

    @pytest.mark.parametrize("count", [1, 2, 7, 10])
    async def test_a_refused_text_is_found_and_the_others_of_its_batch_get_their_rows(
        self, recorder: Recorder, batcher: Batcher, count: int
    ) -> None:
        recorder.failure = refusing("poison", InputRefused("no"))
        given = [f"text {n}" for n in range(count)] + ["poison"]
        refused: RefusedTexts = {}
        kept: list[int] = []

        async def keep(indices: Sequence[int], rows: Matrix) -> None:
            assert len(indices) == len(rows)
            kept.extend(indices)

        rows = await batcher.embed(given, keep=keep, refused=refused)
        assert set(refused) == {count}
        assert not rows[count].any()
        assert all(rows[n].any() for n in range(count))
        assert sorted(kept) == list(range(count))

    async def test_without_a_place_for_refusals_the_call_fails_and_others_do_not(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        recorder.failure = refusing("poison", InputRefused("no"))
        first = await held(recorder, batcher)
        bad = asyncio.create_task(batcher.embed(["a", "poison", "b"]))
        good = asyncio.create_task(batcher.embed(texts("good", 4)))
        await settle()
        recorder.gate.set()
        await first
        with pytest.raises(InputRefused):
            await bad
        assert (await good).any(axis=1).all()

    async def test_a_server_that_refuses_everything_gets_no_request_for_each_text(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        recorder.failure = refusing("text", InputRefused("no"))
        refused: RefusedTexts = {}
        with pytest.raises(InputRefused):
            await batcher.embed(texts("text", 10), refused=refused)
        assert len(recorder.batches) <= 10

    async def test_a_transient_error_while_texts_are_separated_is_not_taken_for_a_refusal(
        self, recorder: Recorder, batcher: Batcher
    ) -> None:
        answers: list[Exception | None] = [InputRefused("no"), Unavailable("down"), None]
        recorder.failure = lambda _: answers.pop(0) if answers else None
        refused: RefusedTexts = {}
        with pytest.raises(Unavailable):
            await batcher.embed(texts("text", 4), refused=refused)
        assert refused == {}
