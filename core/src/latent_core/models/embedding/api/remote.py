"""An embedder over HTTP with rate limit, retries and a circuit breaker."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from latent_core.domain.errors import (
    InputRefused,
    LatentError,
    Misconfigured,
    OtherModel,
    RateLimited,
    ServiceUnreachable,
    Unavailable,
    UpstreamTimeout,
)
from latent_core.domain.vector_types import Matrix, Vector
from latent_core.models.embedding.api.identity import ModelIdentity, References
from latent_core.models.embedding.api.window import (
    MAX_HALVINGS,
    cut_texts,
    halves,
    is_cut,
    mean_rows,
    with_another_end,
)
from latent_core.models.embedding.api.wire import DialectClient, ImageClient
from latent_core.models.embedding.port import NONE, EmbeddingModel, Prefixes, no_images
from latent_core.models.embedding.rate import CostEstimate, Rate
from latent_core.models.embedding.tokens import PieceTokenizer
from latent_core.models.providers.facts import UNKNOWN, ServerFacts
from latent_core.runtime.load_once import LoadOnce
from latent_core.runtime.tasks import all_or_first_failure

FAILURES: Final = 5
FIRST_PAUSE: Final = 2.0
LONGEST_PAUSE: Final = 60.0


class Breaker:
    """A circuit breaker. After ``failures`` in a row it blocks all requests for a pause (seconds), then lets one
    through; if that fails, the pause doubles."""

    def __init__(
        self,
        *,
        failures: int = FAILURES,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = failures
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._clock = clock
        self._failures = 0
        self._pause = 0.0
        self._closed_until = 0.0
        self.cause = ""
        """Of the last failure."""

    @property
    def failures(self) -> int:
        """Failures in a row."""
        return self._failures

    def wait(self) -> float:
        """Seconds until a request may be tried. 0: the caller may try, and others wait for its result."""
        if self._failures < self._limit:
            return 0.0
        now = self._clock()
        if now < self._closed_until:
            return self._closed_until - now
        self._closed_until = now + self._pause
        return 0.0

    def left(self) -> float:
        """Like ``wait``, without taking the right to try."""
        if self._failures < self._limit:
            return 0.0
        return max(0.0, self._closed_until - self._clock())

    def good(self) -> None:
        """Record that the server answered."""
        self._failures = 0
        self._pause = 0.0

    def bad(self, cause: str = "") -> None:
        """Record that the server failed or did not answer."""
        self.cause = cause
        self._failures += 1
        if self._failures < self._limit:
            return
        self._pause = min(self._longest_pause, self._pause * 2 or self._first_pause)
        self._closed_until = self._clock() + self._pause


QUERY_CONNECTIONS: Final = 4
HARMLESS: Final = "a test"
"""Sent after several failures in a row, to test whether any request succeeds."""
MAX_REQUESTED_WAIT_SECONDS: Final = 600.0
"""Caps the wait that a server asks for."""
_PASSING: Final = (Unavailable, UpstreamTimeout)
"""Transient errors of the server."""
Send = Callable[[], Awaitable[Matrix]]
"""Sends one request; it can be repeated."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Size and number of requests, and how long errors are retried. Times in seconds."""

    texts: int = 64
    characters: int = 400_000
    """Per request, unless a single text is longer. The batcher limits tokens."""
    requests: int = 8
    """Concurrent requests for documents: they mostly wait for the network."""
    attempts: int = 5
    first_wait: float = 0.5
    longest_wait: float = 30.0
    """For longer waits the job goes back to the queue."""
    wait_seconds: float = 600.0
    """How long documents wait for the rate limit."""
    query_wait_seconds: float = 10.0
    """How long a query waits for the rate limit."""


class RemoteEmbedder:
    """Implements ``Embedder``. Its tokenizer is an approximation (``PieceTokenizer``)."""

    def __init__(
        self,
        model: EmbeddingModel,
        client: DialectClient,
        rate: Rate,
        *,
        retry_policy: RetryPolicy = RetryPolicy(),
        prefixes: Prefixes = NONE,
        breaker: Breaker | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
        images: ImageClient | None = None,
        facts: Callable[[], Awaitable[ServerFacts]] | None = None,
        references: References | None = None,
    ) -> None:
        """``rate`` is shared by all users of the same key; ``jitter(a, b)`` returns a number between them;
        ``images`` is the same client if its dialect supports pictures; ``facts`` reads what the server reports about
        its model; ``references`` tell whether it is still the same one."""
        self._model = model
        self._client = client
        self._images = images
        self._rate = rate
        self._retry_policy = retry_policy
        self._prefixes = prefixes
        self._breaker = breaker or Breaker()
        self._sleep = sleep
        self._jitter = jitter
        self._tokenizer = PieceTokenizer()
        self._free = asyncio.Semaphore(retry_policy.requests)
        self._bill = CostEstimate()
        self._facts_once = LoadOnce(facts) if facts else None
        self._facts = UNKNOWN
        self._identity = (
            ModelIdentity(model, references, self._embed_reference, self._reported_tokens)
            if references
            else None
        )
        self._cuts: bool | None = None
        """Whether the server cuts long texts without an error; None until a long text was embedded."""

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    @property
    def tokenizer(self) -> PieceTokenizer:
        return self._tokenizer

    @property
    def texts_a_request(self) -> int:
        reported = self._facts.max_texts or self._client.max_texts
        return min(self._retry_policy.texts, reported, self._rate.burst)

    @property
    def images_a_request(self) -> int:
        return min(self._images.images_a_request if self._images else 1, self._rate.burst)

    @property
    def requests_at_a_time(self) -> int:
        return self._retry_policy.requests

    def tokens_of(self, texts: Sequence[str], images: int = 0) -> int:
        return self._bill.tokens(sum(self._tokenizer.count(texts)), images)

    async def embed_query(self, text: str) -> Vector:
        send = partial(self._send_in_halves, [text], query=True)
        rows = await self._confirmed(self._persist(send, 1, urgent=True))
        vector: Vector = rows[0]
        return vector

    async def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """A text that is longer than the server reads is sent in parts; its row is their mean."""
        parts = cut_texts(texts, self._tokenizer, await self._max_tokens())
        flat = texts if parts is None else [piece for pieces in parts for piece in pieces]

        def send(part: slice) -> Send:
            return partial(self._send_in_halves, flat[part])

        rows = await self._side_by_side(self._parts(flat), send, len(flat))
        await self._check_truncation(flat, rows)
        return rows if parts is None else mean_rows(rows, parts, self._tokenizer, self._client.name)

    @property
    def trouble(self) -> str | None:
        """What is wrong with all vectors of the server, and what to do; None if nothing is known to be."""
        if not self._cuts:
            return None
        return (
            f"{self._client.name} cuts long texts without an error: the end of a chunk is missing from its vector."
            f" `latent models test {self._model.embedder}` measures how many tokens it reads: set that as window"
        )

    async def refuse_other_model(self) -> None:
        if self._identity is None:
            return
        try:
            await self._identity.confirm()
        except OtherModel:
            raise
        except LatentError:  # it does not answer now, and makes no vectors either
            return

    @property
    def other_model(self) -> str | None:
        """Why the server's model is another one than that of the stored vectors; None if it is not known to be."""
        return self._identity.other if self._identity else None

    async def _confirmed(self, request: Coroutine[Any, Any, Matrix]) -> Matrix:
        """The answer to a request that runs while the model is confirmed."""
        if self._identity is None:
            return await request
        rows, _ = await all_or_first_failure([request, self._identity.confirm()])
        assert rows is not None
        return rows

    async def _embed_reference(self, text: str) -> Vector:
        vector: Vector = (
            await self._persist(partial(self._send_in_halves, [text]), 1, urgent=True)
        )[0]
        return vector

    async def _reported_tokens(self) -> int:
        return (await self._facts_once.get()).window or 0 if self._facts_once else 0

    async def _max_tokens(self) -> int | None:
        """The longest part of a text, for all vectors of this key: what the server reported when it was first used."""
        if self._identity is None:
            await self._learn()
            return self._facts.window
        decided = await self._identity.max_tokens()
        await self._learn()
        return decided or None

    async def _learn(self) -> None:
        """Read once what the server reports; concurrent calls wait for it. An embedder works without; its requests say why
        a server fails."""
        if self._facts_once is None or self._breaker.left() > 0:
            return
        with suppress(LatentError):  # the server may be reachable later
            self._facts = await self._facts_once.get()

    async def _send_in_halves(
        self, texts: Sequence[str], *, query: bool = False, depth: int = MAX_HALVINGS
    ) -> Matrix:
        """One request; a single text that is refused for its length is sent in two halves."""
        try:
            return await self._send_texts(texts, query=query)
        except InputRefused as exc:
            if len(texts) > 1 or not exc.too_long or not depth:
                raise
            parts = halves(texts[0], self._tokenizer)
            if len(parts) < 2:
                raise
        rows = [await self._send_in_halves([part], query=query, depth=depth - 1) for part in parts]
        return mean_rows(np.concatenate(rows), [parts], self._tokenizer, self._client.name)

    async def _check_truncation(self, texts: Sequence[str], rows: Matrix) -> None:
        """Once, for the first long text: its vector with another end must differ."""
        if self._cuts is not None:
            return
        counts = self._tokenizer.count(texts)
        longest = max(range(len(texts)), key=counts.__getitem__, default=None)
        if longest is None or counts[longest] < self._model.window // 2:
            return
        self._cuts = False
        other = with_another_end(texts[longest], self._tokenizer)
        try:
            await self._rate.take(1, within=self._retry_policy.query_wait_seconds)
            changed = await self._send_texts([other])
        except LatentError:
            self._cuts = None  # it is checked with a later text
            return
        self._cuts = is_cut(rows[longest], changed[0])

    async def embed_query_image(self, image: bytes) -> Vector:
        send = partial(self._send_images, self._image_client(), [image])
        vector: Vector = (await self._confirmed(self._persist(send, 1, urgent=True)))[0]
        return vector

    async def embed_images(self, images: Sequence[bytes]) -> Matrix:
        client = self._image_client()
        if self._identity is not None:
            await self._identity.confirm()
        batch_size = self.images_a_request
        parts = [
            slice(at, min(at + batch_size, len(images))) for at in range(0, len(images), batch_size)
        ]

        def send(part: slice) -> Send:
            return partial(self._send_images, client, images[part])

        return await self._side_by_side(parts, send, len(images))

    def _image_client(self) -> ImageClient:
        if self._images is None:
            raise no_images(self._model)
        return self._images

    async def _send_texts(self, texts: Sequence[str], *, query: bool = False) -> Matrix:
        prefixed = self._prefixes.put(texts, query=query)
        answer = await self._client.embed(prefixed, query=query)
        self._bill.add_texts(sum(self._tokenizer.count(texts)), answer.tokens)
        if answer.pause:
            await self._rate.pause(min(answer.pause, MAX_REQUESTED_WAIT_SECONDS))
        return answer.rows

    async def _send_images(self, client: ImageClient, images: Sequence[bytes]) -> Matrix:
        answer = await client.embed_images(images)
        self._bill.add_images(len(images), answer.tokens)
        return answer.rows

    async def _side_by_side(
        self, parts: Iterable[slice], send: Callable[[slice], Send], total: int
    ) -> Matrix:
        """One request per part, some of them concurrent; all rows in order."""
        rows = np.empty((total, self._model.dims), np.float32)

        async def one(part: slice) -> None:
            async with self._free:
                rows[part] = await self._persist(send(part), part.stop - part.start, urgent=False)

        await all_or_first_failure([one(part) for part in parts])
        return rows

    def _parts(self, texts: Sequence[str]) -> Iterator[slice]:
        """Slices of texts within the request limits, unless a single text exceeds them."""
        batch_size = self.texts_a_request
        start, characters = 0, 0
        for index, text in enumerate(texts):
            full = (
                index - start == batch_size
                or characters + len(text) > self._retry_policy.characters
            )
            if full and index > start:
                yield slice(start, index)
                start, characters = index, 0
            characters += len(text)
        if start < len(texts):
            yield slice(start, len(texts))

    async def _persist(self, send: Send, size: int, *, urgent: bool) -> Matrix:
        """Send a request for ``size`` vectors; retry transient errors as the policy allows."""
        for attempt in range(1, self._retry_policy.attempts):
            try:
                return await self._attempt(send, size, urgent=urgent)
            except RateLimited as exc:
                if not _is_the_servers(exc):
                    raise  # our own limit, which was already waited for
                if await self._hold(exc, attempt) > self._retry_policy.longest_wait:
                    raise
            except Misconfigured:
                raise
            except _PASSING as exc:
                if _says_when(exc):
                    held = await self._hold(exc, attempt)
                    if urgent or held > self._retry_policy.longest_wait:
                        raise
                    continue
                closed = exc.details.get("retry_after")
                if urgent and (closed is not None or isinstance(exc, ServiceUnreachable)):
                    raise  # a search prefers results without this embedder to waiting, which ends as a timeout
                await self._sleep(max(self._backoff(attempt, None), closed or 0.0))
        try:
            return await self._attempt(send, size, urgent=urgent)
        except LatentError as exc:
            if _says_when(exc) or (isinstance(exc, RateLimited) and _is_the_servers(exc)):
                await self._hold(exc, self._retry_policy.attempts)
            raise

    async def _try_harmless(self) -> None:
        """Reset the breaker if a harmless text succeeds: then only our texts make the server fail."""
        try:
            await self._rate.take(1, urgent=True, within=self._retry_policy.query_wait_seconds)
            await self._client.embed(self._prefixes.put([HARMLESS], query=False), query=False)
        except LatentError:
            return
        self._breaker.good()

    def raise_if_unreachable(self) -> None:
        """Raise ``ServiceUnreachable`` while the breaker blocks requests."""
        seconds = self._breaker.left()
        if seconds > 0:
            raise self._closed(seconds)

    async def _attempt(self, send: Send, size: int, *, urgent: bool) -> Matrix:
        self._refuse_if_closed()
        within = (
            self._retry_policy.query_wait_seconds if urgent else self._retry_policy.wait_seconds
        )
        await self._rate.take(size, urgent=urgent, within=within)
        try:
            rows = await send()
        except Misconfigured:
            self._breaker.good()
            raise
        except _PASSING as exc:
            self._breaker.bad(exc.message)
            if not urgent and self._breaker.left() > 0 and not _says_when(exc):
                # A text that makes the server fail must not block all other requests.
                await self._try_harmless()
            raise
        except LatentError:
            self._breaker.good()  # it answers, if only with an error
            raise
        self._breaker.good()
        return rows

    def _refuse_if_closed(self) -> None:
        seconds = min(self._breaker.wait(), self._retry_policy.longest_wait)
        if seconds > 0:
            raise self._closed(seconds)

    def _closed(self, seconds: float) -> ServiceUnreachable:
        return ServiceUnreachable(
            f"{self._client.name} failed {self._breaker.failures} times in a row: the next try is in "
            f"{seconds:.0f} s ({self._breaker.cause})",
            retry_after=seconds,
        )

    async def _hold(self, exc: LatentError, attempt: int) -> float:
        """Pause all users of the key for as long as the server asks; returns the seconds."""
        seconds = self._backoff(attempt, exc.details.get("retry_after"))
        await self._rate.pause(seconds)
        return seconds

    def _backoff(self, attempt: int, requested_wait: float | None) -> float:
        """Full jitter, or the wait that the server asks for plus a little jitter, to spread the retries."""
        ceiling = min(
            self._retry_policy.longest_wait, self._retry_policy.first_wait * 2 ** (attempt - 1)
        )
        if requested_wait is None:
            return self._jitter(0.0, ceiling)
        requested_wait = min(requested_wait, MAX_REQUESTED_WAIT_SECONDS)
        return requested_wait + self._jitter(0.0, min(1.0, requested_wait * 0.1))

    async def close(self) -> None:
        await self._client.close()


def _is_the_servers(exc: LatentError) -> bool:
    """Whether the error came from the server, not from our own limit or breaker."""
    return "upstream_status" in exc.details


def _says_when(exc: LatentError) -> bool:
    """Whether the server sent ``Retry-After``."""
    return _is_the_servers(exc) and "retry_after" in exc.details
