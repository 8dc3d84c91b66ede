"""What every ``Reranker`` must do. An adapter's tests inherit ``RerankerContract``.

The subclass gives a fixture ``reranker`` with an open ``Reranker``, of any scope, and marks itself with the
loop scope of that fixture. It must score a text that shares the query's words above one that shares none.
"""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from latent_core.domain.errors import TimedOut
from latent_core.models.rerank.resolve import Reranker

SAME = 1e-4
"""How far a score may be from that of the same pair in another call."""
PATIENT = 30.0
QUERY = "rye bread recipe"
TEXTS = [
    "heat flows along a blunt body",
    "a recipe for bread with rye flour",
    "bread",
    "the old recipe of a cold soup",
    "Zwölf Boxkämpfer jagen Viktor. 东京 🙂",
    "words " * 700,
]


def soon() -> float:
    """A deadline that no adapter of a test comes near."""
    return asyncio.get_running_loop().time() + PATIENT


async def scores_of(reranker: Reranker, texts: list[str], query: str = QUERY) -> list[float]:
    """Of all texts: such a deadline leaves none without one."""
    scores = await reranker.rerank(query, texts, soon())
    return [score for score in scores if score is not None]


class RerankerContract:
    async def test_every_text_gets_a_finite_score(self, reranker: Reranker) -> None:
        scores = await scores_of(reranker, TEXTS)
        assert len(scores) == len(TEXTS)
        assert all(type(score) is float and math.isfinite(score) for score in scores)

    async def test_no_texts_give_no_scores(self, reranker: Reranker) -> None:
        assert await scores_of(reranker, []) == []

    async def test_what_answers_the_query_scores_above_what_does_not(
        self, reranker: Reranker
    ) -> None:
        scores = await scores_of(reranker, TEXTS)
        assert max(scores) == scores[1]
        assert scores[1] > max(scores[0], scores[4])

    async def test_another_query_gives_another_order(self, reranker: Reranker) -> None:
        scores = await scores_of(reranker, TEXTS, "heat along a blunt body")
        assert max(scores) == scores[0]

    async def test_scores_come_in_the_order_of_the_texts(self, reranker: Reranker) -> None:
        texts = [f"{TEXTS[n % 4]} part {n}. " * (1 + n * 7 % 8) for n in range(50)]
        scores = dict(zip(texts, await scores_of(reranker, texts), strict=True))
        random.Random(7).shuffle(texts)
        again = await scores_of(reranker, texts)
        assert again == pytest.approx([scores[text] for text in texts], abs=SAME)

    async def test_a_score_does_not_depend_on_the_rest_of_its_batch(
        self, reranker: Reranker
    ) -> None:
        (alone,) = await scores_of(reranker, [TEXTS[1]])
        in_batch = await scores_of(reranker, [TEXTS[5], TEXTS[1], TEXTS[2]])
        assert in_batch[1] == pytest.approx(alone, abs=SAME)

    async def test_equal_texts_score_alike(self, reranker: Reranker) -> None:
        scores = await scores_of(reranker, [TEXTS[1], TEXTS[0], TEXTS[1]])
        assert scores[0] == pytest.approx(scores[2], abs=SAME)

    async def test_a_query_longer_than_any_model_reads_is_cut(self, reranker: Reranker) -> None:
        scores = await scores_of(reranker, TEXTS, f"{QUERY} " * 2000)
        assert scores[1] > scores[0]

    async def test_calls_side_by_side_do_not_mix_their_texts(self, reranker: Reranker) -> None:
        batches = [[f"{text} {n}" for text in TEXTS[:4]] for n in range(6)]
        together = await asyncio.gather(*(scores_of(reranker, batch) for batch in batches))
        for batch, scores in zip(batches, together, strict=True):
            assert scores == pytest.approx(await scores_of(reranker, batch), abs=SAME)

    async def test_a_passed_deadline_raises_a_timeout(self, reranker: Reranker) -> None:
        with pytest.raises(TimedOut):
            await reranker.rerank(QUERY, TEXTS, asyncio.get_running_loop().time() - 1.0)

    async def test_a_call_that_is_cancelled_leaves_the_reranker_in_order(
        self, reranker: Reranker
    ) -> None:
        task = asyncio.ensure_future(scores_of(reranker, TEXTS * 8))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert len(await scores_of(reranker, TEXTS)) == len(TEXTS)
