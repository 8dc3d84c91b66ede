"""A user's own cross-encoder, in this process.

A list of candidates is scored in small single-threaded runs, one per core, on dedicated threads. Measured (2 cores,
50 pairs of 90 tokens, a model of MiniLM's size): 1.6 s of processor time, against 2.4 s when runs share the cores.
Calls are served one after the other, first come, first served: run concurrently they would all be late, this way
the first ones are in time. Candidates are scored in their order, in groups: a call that is late returns the scores of
the first ones.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

from latent_core.domain.errors import TimedOut, Unavailable
from latent_core.models.onnx.folder import ModelDescription, ModelPrecision
from latent_core.models.rerank.cross_encoder import (
    CrossEncoder,
    Pair,
    PairTokenizer,
    reranker_of,
)
from latent_core.runtime.process import cores

RUN_TOKENS: Final = 512
"""Tokens per run, with padding: the work that a cancelled call still finishes, on each thread."""

GROUP: Final = 16
"""Candidates that are sorted by length before the next ones."""
RESERVE_SECONDS: Final = 0.2
RESERVE_SHARE: Final = 0.1
"""Of a call's time, kept to return what was scored: the smaller of the two."""

T = TypeVar("T")


class Scores(Protocol):
    @property
    def tokenizer(self) -> PairTokenizer: ...

    def probabilities(self, pairs: Sequence[Pair]) -> list[float]: ...


class LocalReranker:
    """Implements ``Reranker``. The model is loaded at first use."""

    def __init__(
        self,
        folder: Path,
        *,
        threads: int | None = None,
        load: Callable[[ModelDescription], Scores] = CrossEncoder,
        setting: str = "LLC_RERANK_FOLDER",
        precision: ModelPrecision | None = None,
    ) -> None:
        """``Invalid`` names a file that is missing in ``folder``, after ``setting``. ``threads``: by default all cores
        of this process. ``precision``: of the weights, if it is known."""
        self._described = reranker_of(folder, setting, precision)
        self._load = load
        self._side_by_side = threads or cores()
        self._threads = ThreadPoolExecutor(self._side_by_side, thread_name_prefix="rerank")
        self._model: Scores | None = None
        self._loading = threading.Lock()
        self._lock = asyncio.Lock()
        self._closed = False

    @property
    def name(self) -> str:
        return f"the local reranker {self._described.folder.name}"

    async def warm(self) -> None:
        """Load the model, so that the first search does not wait for it."""
        await self._in_thread(self._loaded)

    async def rerank(self, query: str, texts: Sequence[str], deadline: float) -> list[float | None]:
        """As in ``Reranker``. Scores are probabilities, 0..1."""
        scores: list[float | None] = [None] * len(texts)
        if not texts:
            return scores
        # A little earlier, so that what was scored is there before the caller gives up.
        now = asyncio.get_running_loop().time()
        until = deadline - min(RESERVE_SECONDS, RESERVE_SHARE * (deadline - now))
        try:
            async with asyncio.timeout_at(until), self._lock:
                await self._score(query, texts, scores)
        except TimeoutError as exc:
            if all(score is None for score in scores):
                raise TimedOut(f"{self.name} did not finish within its deadline") from exc
        return scores

    async def _score(self, query: str, texts: Sequence[str], scores: list[float | None]) -> None:
        """Fill in ``scores``, the first texts first."""
        model = await self._in_thread(self._loaded)
        pairs = await self._in_thread(partial(model.tokenizer.pairs, query, texts))
        runs = iter(_in_groups([len(pair.ids) for pair in pairs]))

        async def score_runs() -> None:
            for run in runs:
                job = partial(model.probabilities, [pairs[index] for index in run])
                for index, score in zip(run, await self._in_thread(job), strict=True):
                    scores[index] = score

        tasks = [asyncio.ensure_future(score_runs()) for _ in range(self._side_by_side)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _loaded(self) -> Scores:
        """Load once, in a thread. A cancelled caller does not stop the loading."""
        with self._loading:
            if self._model is None:
                self._model = self._load(self._described)
            return self._model

    async def _in_thread(self, job: Callable[[], T]) -> T:
        if self._closed:
            raise Unavailable(f"{self.name} is closed: the process is ending")
        return await asyncio.get_running_loop().run_in_executor(self._threads, job)

    async def close(self) -> None:
        """Waits for the current runs, which are short."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        self._model = None


def _in_groups(lengths: Sequence[int]) -> list[list[int]]:
    """Runs of each ``GROUP`` of texts, in order."""
    return [
        [start + index for index in run]
        for start in range(0, len(lengths), GROUP)
        for run in plan_runs(lengths[start : start + GROUP], RUN_TOKENS)
    ]


def plan_runs(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices run by run, pairs of similar length together, the shortest first.

    A run has at most ``budget`` tokens, padding included, unless a single pair has more.
    """
    runs: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: (lengths[index], index)):
        if runs and (len(runs[-1]) + 1) * lengths[index] <= budget:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs
