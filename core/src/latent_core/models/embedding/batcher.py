"""Fills embedding batches with texts of concurrent jobs, and groups texts of similar length for local models."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from latent_core.domain.errors import InputRefused, LatentError, ServiceUnreachable, TimedOut
from latent_core.domain.vector_types import Matrix
from latent_core.models.embedding.port import IN_FLIGHT, MAX_TEXTS, Embedder, RemoteEmbedderLimits

logger = logging.getLogger(__name__)

Checkpoint = Callable[[], Awaitable[None]]
Keep = Callable[[Sequence[int], Matrix], Awaitable[None]]
"""Stores rows as they arrive, with the indices of their texts; also after the call failed, since they are paid for."""
BYTES_PER_TOKEN: Final = 4
MAX_REFUSED: Final = 3
"""Texts of a batch that are refused alone while none is accepted: then the server refuses everything."""
RefusedTexts = dict[int, LatentError]
"""Why texts were refused, by their index in the call."""


@dataclass(eq=False, slots=True)
class _EmbedCall:
    """One call of ``embed``: its waiting texts and the rows received so far."""

    texts: Sequence[str]
    tokens: Sequence[int]
    rows: Matrix
    waiting: deque[int]
    """Indices of texts, the longest first, so that texts of similar length share a batch."""
    missing: int
    checkpoint: Checkpoint | None
    keep: Keep | None
    refused: RefusedTexts | None
    """Collects texts that are refused alone; None: the first one fails the call."""
    ready: bool = True
    """False while its checkpoint runs."""
    taken: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Future[None] = field(default_factory=asyncio.Future)

    def receive(self, indices: Sequence[int], rows: Matrix) -> None:
        if self.done.done():
            return
        self.rows[indices] = rows
        self.missing -= len(indices)
        if self.missing == 0:
            self.done.set_result(None)

    def refuse(self, index: int, error: LatentError) -> None:
        if self.refused is None:
            self.fail(error)
            return
        self.refused[index] = error
        self.receive([index], np.zeros((1, self.rows.shape[1]), np.float32))

    def fail(self, error: BaseException) -> None:
        self.waiting.clear()
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # marks it as retrieved: the caller may be gone
        self.taken.set()


@dataclass(slots=True)
class _TextBatch:
    parts: dict[_EmbedCall, list[int]] = field(default_factory=dict)
    texts: int = 0
    tokens: int = 0

    def add(self, caller: _EmbedCall, index: int) -> None:
        self.parts.setdefault(caller, []).append(index)
        self.texts += 1
        self.tokens += caller.tokens[index]

    def give_back(self) -> None:
        """Put the texts back in line, in their old order."""
        for caller, indices in self.parts.items():
            caller.waiting.extendleft(reversed(indices))

    def halves(self) -> tuple[_TextBatch, _TextBatch]:
        """Two batches with half of the texts each, without those whose call has failed."""
        texts = [
            (caller, index)
            for caller, indices in self.parts.items()
            for index in indices
            if not caller.done.done()
        ]
        made = _TextBatch(), _TextBatch()
        for place, (caller, index) in enumerate(texts):
            made[place * 2 >= len(texts)].add(caller, index)
        return made

    def alone(self) -> Iterator[_TextBatch]:
        """One batch per caller that still waits."""
        for caller, indices in self.parts.items():
            if not caller.done.done():
                yield _TextBatch({caller: indices})


class Batcher:
    """Takes one text per caller in turn, so that a short document does not wait for a long one.

    A full batch is sent as long as the embedder takes another request. A partial batch is sent at once when no
    caller is about to add to it, but only while fewer than two batches are in flight: waiting texts then fill the
    next one. Texts belong to their callers until they are sent. At most ``max_callers`` are served at a time.
    """

    def __init__(
        self,
        embedder: Embedder,
        *,
        max_texts: int | None = None,
        max_tokens: int = 8192,
        max_wait_ms: float = 5.0,
        in_flight: int | None = None,
        max_callers: int = 64,
        batch_seconds: float = 900.0,
    ) -> None:
        """``max_texts`` defaults to one request to the embedder, so that rows are stored before more are requested.
        ``max_tokens`` is estimated from bytes; ``batch_seconds`` is the deadline of a batch."""
        remote = embedder if isinstance(embedder, RemoteEmbedderLimits) else None
        self.embedder = embedder
        self._max_texts = max_texts or (remote.texts_a_request if remote else MAX_TEXTS)
        self._in_flight = in_flight or (remote.requests_at_a_time if remote else IN_FLIGHT)
        self._max_tokens = max_tokens
        self._max_wait = max_wait_ms / 1000
        self._batch_seconds = batch_seconds
        self._slots = asyncio.Semaphore(self._in_flight)
        self._under_way = 0
        self._admission = asyncio.Semaphore(max_callers)
        self._callers: deque[_EmbedCall] = deque()
        self._changed = asyncio.Event()
        self._dispatcher: asyncio.Task[None] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    async def embed(
        self,
        texts: Sequence[str],
        checkpoint: Checkpoint | None = None,
        keep: Keep | None = None,
        refused: RefusedTexts | None = None,
    ) -> Matrix:
        """One row per text, in order. ``checkpoint`` is awaited between two batches with texts of this call;
        an error of it ends the call. A permanent error of the embedder reaches only the callers whose texts
        cause it, a transient one all callers of the batch. With ``refused``, a text that the embedder refuses alone
        is collected there; its row is zeros."""
        if not texts:
            return np.empty((0, self.embedder.model.dims), np.float32)
        async with self._admission:
            if self._closed:
                raise ServiceUnreachable("the embedder is closed: the process is ending")
            caller = self._caller(texts, checkpoint, keep, refused)
            self._callers.append(caller)
            self._wake()
            try:
                await self._see_through(caller)
            finally:
                caller.waiting.clear()
                caller.done.cancel()
                self._callers.remove(caller)
                self._changed.set()
        return caller.rows

    def _caller(
        self,
        texts: Sequence[str],
        checkpoint: Checkpoint | None,
        keep: Keep | None,
        refused: RefusedTexts | None,
    ) -> _EmbedCall:
        window = self.embedder.model.window
        tokens = [min(window, _bytes(text) // BYTES_PER_TOKEN + 1) for text in texts]
        order = sorted(range(len(texts)), key=lambda index: (-tokens[index], index))
        rows = np.empty((len(texts), self.embedder.model.dims), np.float32)
        return _EmbedCall(texts, tokens, rows, deque(order), len(texts), checkpoint, keep, refused)

    async def _see_through(self, caller: _EmbedCall) -> None:
        while caller.checkpoint and caller.waiting:
            await caller.taken.wait()
            caller.taken.clear()
            if caller.waiting:
                await caller.checkpoint()
                caller.ready = True
                self._changed.set()
        await caller.done

    def _wake(self) -> None:
        if self._dispatcher is None:
            # It serves many jobs: without its own context its log lines would carry the first job's id.
            self._dispatcher = asyncio.create_task(
                self._dispatch(), name="embedding batches", context=Context()
            )
        self._changed.set()

    async def _dispatch(self) -> None:
        while True:
            await self._slots.acquire()
            batch = await self._next_batch()
            for caller in batch.parts:
                caller.ready = caller.checkpoint is None
                caller.taken.set()
            self._under_way += 1
            task = asyncio.create_task(self._run(batch), name="embedding batch")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _next_batch(self) -> _TextBatch:
        batch = _TextBatch()
        deadline: float | None = None
        clock = asyncio.get_running_loop().time
        while True:
            if self._fill(batch):
                return batch
            if self._under_way >= min(IN_FLIGHT, self._in_flight):
                batch.give_back()
                batch, deadline = _TextBatch(), None
            elif batch.parts and not self._more_is_coming():
                return batch
            elif batch.parts and deadline is None:
                deadline = clock() + self._max_wait
            self._changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                return batch

    def _fill(self, batch: _TextBatch) -> bool:
        """Add one text per caller in turn until the batch is full or none is left; returns whether it is full."""
        idle = 0
        while idle < len(self._callers):
            caller = self._callers[0]
            if not (caller.ready and caller.waiting):
                idle += 1
            elif not self._has_capacity(batch, caller.tokens[caller.waiting[0]]):
                return True
            else:
                idle = 0
                batch.add(caller, caller.waiting.popleft())
            self._callers.rotate(-1)
        return batch.texts == self._max_texts

    def _has_capacity(self, batch: _TextBatch, tokens: int) -> bool:
        return batch.texts == 0 or (
            batch.texts < self._max_texts and batch.tokens + tokens <= self._max_tokens
        )

    def _more_is_coming(self) -> bool:
        return any(caller.waiting and not caller.ready for caller in self._callers)

    async def _run(self, batch: _TextBatch) -> None:
        try:
            await self._serve(batch)
        except asyncio.CancelledError:
            self._fail(batch, ServiceUnreachable("the embedder is closed: the process is ending"))
            raise
        except Exception as exc:  # a bug: its callers must not wait for ever
            logger.exception("embedding_batch_failed", extra={"texts": batch.texts})
            self._fail(batch, exc)
        finally:
            self._under_way -= 1
            self._slots.release()
            self._changed.set()

    async def _serve(self, batch: _TextBatch) -> None:
        error = await self._attempt(batch)
        if error is None:
            return
        if isinstance(error, InputRefused):
            await self._isolate(batch, error)
            return
        if error.transient or len(batch.parts) == 1:
            self._fail(batch, error)
            return
        for own in batch.alone():
            if own_error := await self._attempt(own):
                self._fail(own, own_error)

    async def _isolate(self, batch: _TextBatch, error: LatentError) -> None:
        """Find the refused texts of a batch by halving it: the others succeed."""
        waiting, accepted, refused = deque([(batch, error)]), False, 0
        while waiting:
            part, error = waiting.popleft()
            if part.texts == 1:
                ((caller, (index,)),) = part.parts.items()
                caller.refuse(index, error.copied())
                refused += 1
                if refused >= MAX_REFUSED and not accepted:
                    for rest, _ in waiting:
                        self._fail(rest, error)
                    return
                continue
            for half in part.halves():
                if not half.texts:
                    continue
                again = await self._attempt(half)
                if again is None:
                    accepted = True
                elif isinstance(again, InputRefused):
                    waiting.appendleft((half, again))
                else:
                    self._fail(half, again)

    async def _attempt(self, batch: _TextBatch) -> LatentError | None:
        """Embed a batch and hand out its rows; returns the error, if any."""
        texts = [caller.texts[i] for caller, indices in batch.parts.items() for i in indices]
        try:
            async with asyncio.timeout(self._batch_seconds):
                rows = await self.embedder.embed_documents(texts)
        except LatentError as exc:
            return exc
        except TimeoutError:
            return TimedOut(f"a batch of {len(texts)} texts took over {self._batch_seconds:g} s")
        start = 0
        for caller, indices in batch.parts.items():
            await _hand_out(caller, indices, rows[start : start + len(indices)])
            start += len(indices)
        return None

    def _fail(self, batch: _TextBatch, error: Exception) -> None:
        for caller in batch.parts:
            caller.fail(error.copied() if isinstance(error, LatentError) else error)

    async def close(self) -> None:
        """Cancel the batches in flight; their callers get ``ServiceUnreachable``. The embedder stays open."""
        self._closed = True
        tasks = [*self._running, *([self._dispatcher] if self._dispatcher else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for caller in self._callers:
            caller.fail(ServiceUnreachable("the embedder is closed: the process is ending"))


async def _hand_out(caller: _EmbedCall, indices: Sequence[int], rows: Matrix) -> None:
    if caller.keep is not None:
        try:
            await caller.keep(indices, rows)
        except LatentError as exc:
            caller.fail(exc)
            return
    caller.receive(indices, rows)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


MIN_FILL: Final = 0.8
"""The shortest text of a run has at least this share of the longest one's tokens …"""
SLACK: Final = 4
"""… or is at most this many tokens shorter."""


def plan_runs(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of texts, run by run, the longest texts first.

    A run has at most ``budget`` tokens, padding included, unless a single text has more. A run holds texts of
    similar length: at most a fifth of it is padding, plus ``SLACK`` tokens per text.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    runs: list[list[int]] = []
    width = 0
    for index in order:
        length = lengths[index]
        alike = length >= MIN_FILL * width or width - length <= SLACK
        if runs and alike and (len(runs[-1]) + 1) * width <= budget:
            runs[-1].append(index)
        else:
            runs.append([index])
            width = length
    return runs
