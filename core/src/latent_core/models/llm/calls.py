"""The one way from a container to a language model: permission, stored answers, budget, limits, retries, usage, log.

The manifest is read for every request: what its owner forbids is not sent any more. An answer is committed together with
its usage before the caller sees it, so a crash repeats no call that was answered and stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final
from uuid import UUID
from weakref import WeakValueDictionary

from latent_core.db import model_answers, model_usage
from latent_core.db.connection import Connection, Database
from latent_core.db.model_answers import AnswerRow, StoredAnswer
from latent_core.db.model_usage import NO_JOB, ModelPermission
from latent_core.domain.errors import (
    ConnectionClosed,
    Forbidden,
    LatentError,
    LimitReached,
    NotFound,
    ServiceUnreachable,
    UpstreamError,
    UpstreamOverload,
)
from latent_core.domain.ids import JobId
from latent_core.domain.manifest.language_models import ModelBlock
from latent_core.models.llm.port import (
    Answer,
    AnswerPart,
    Completion,
    LanguageModel,
    ModelFacts,
    Part,
    Stop,
    TextPart,
    Usage,
)
from latent_core.models.llm.quotes import without_quotes
from latent_core.models.llm.resolve import LanguageModels, OpenModel
from latent_core.models.llm.usage import estimated
from latent_core.runtime.failpoint import failpoint

logger = logging.getLogger(__name__)


SPEECH: Final = "speech"
"""The purpose whose models transcribe."""
QUESTION: Final = "ask"
"""The purpose for which a person waits."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request on behalf of a container."""

    container_id: str
    purpose: str
    """The manifest's key that permits it: one of ``MODEL_BLOCKS``."""
    block: ModelBlock
    """The manifest's block of that key, which names the model. It is compared with the stored manifest."""
    prompt_version: str
    request: Completion
    input_hash: str
    """Of all that decides about the answer, except the prompt's version, the model and the schema."""
    job_id: JobId | None = None
    doc_id: UUID | None = None
    """The answer is deleted with it."""
    force: bool = False
    """Call the model even if an answer is stored, and replace it."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    answer: Answer
    model: str
    cost: float
    created_at: datetime
    """When the model was called."""
    cached: bool
    """Whether it was stored before: nothing was called or counted."""


@dataclass(frozen=True, slots=True)
class ModelRetryPolicy:
    """Of requests that were not answered: 429, 5xx, no connection. Times in seconds."""

    attempts: int = 4
    first_wait: float = 0.5
    longest_wait: float = 60.0
    """A server that asks for more ends the call; its job waits in the queue."""


class ModelCalls:
    def __init__(
        self,
        db: Database,
        models: LanguageModels,
        *,
        retry_policy: ModelRetryPolicy = ModelRetryPolicy(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._db = db
        self._models = models
        self._retry_policy = retry_policy
        self._sleep = sleep
        self._jitter = jitter
        self._at_work: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def model(self, block: ModelBlock) -> LanguageModel:
        """What the model that a block permits can read. ``Forbidden`` if the block permits none."""
        model = self._models.named(_permitted(block, "the block")).model
        return ModelFacts(model.name, model.reads_pdf, model.reads_images)

    async def complete(self, call: Call) -> CachedAnswer:
        """The answer of an equal call that is stored, or the model's.

        ``Forbidden`` if the manifest does not permit the call, or its budget is used up. Other errors are those of
        ``ModelClient.complete``, after retries.
        """
        key = answer_key(call)
        lock = self._at_work.setdefault((call.container_id, key), asyncio.Lock())
        async with lock:  # equal calls of one process are made once
            async with self._db.transaction() as conn:
                await self._permission(conn, call)
                stored = (
                    None if call.force else await model_answers.use(conn, call.container_id, key)
                )
            if stored is not None:
                return self._from(stored, call)
            opened = self._models.named(
                _permitted(call.block, call.purpose), speech=call.purpose == SPEECH
            )
            # The usage is stored within the slot: the budget is exceeded by as many calls as there are slots, no more.
            async with self._slot(call, opened):
                answer = await self._persist(call, opened)
                return await self._committed(call, key, opened, answer)

    async def stream(
        self, call: Call, *, others: Sequence[str] = ()
    ) -> AsyncGenerator[AnswerPart, None]:
        """As ``complete``, in parts. Nothing is stored but the usage: it is estimated if the stream is closed early.

        ``others``: further containers whose content is in the request. Each has to permit the call within its budget,
        and the usage is divided among all.
        """
        calls = [call, *(replace(call, container_id=one) for one in others)]
        opened = self._models.named(_permitted(call.block, call.purpose))
        texts: list[str] = []
        last: AnswerPart | None = None
        began = False
        timer = _Timer()
        async with self._slot(call, opened):
            try:
                async with aclosing(self._first_parts(calls, opened)) as parts:
                    async for part in parts:
                        began = True
                        texts.append(part.text)
                        last = part
                        yield part
            finally:
                if began:
                    usage = last.usage if last is not None else None
                    used = usage or estimated(call.request, "".join(texts))
                    await self._count(calls, opened, used)
                    stop = last.stop if last is not None else None
                    self._log(call, used, stop, timer.milliseconds())

    async def _first_parts(
        self, calls: Sequence[Call], opened: OpenModel
    ) -> AsyncGenerator[AnswerPart, None]:
        """The parts of the first attempt that has one."""
        call = calls[0]
        for attempt in self._attempts():
            began = False
            try:
                for one in calls:
                    await self._check(one)
                async with aclosing(opened.model.stream(call.request)) as parts:
                    async for part in parts:
                        began = True
                        yield part
                return
            except LatentError as exc:
                self._log_failure(call, exc)
                error = _discreet(exc, call)
                if began:
                    raise error from None
                await self._wait_after(error, attempt, opened)

    async def _persist(self, call: Call, opened: OpenModel) -> Answer:
        for attempt in self._attempts():
            await self._check(call)
            timer = _Timer()
            try:
                answer = await opened.model.complete(call.request)
            except LatentError as exc:
                self._log_failure(call, exc)
                await self._wait_after(_discreet(exc, call), attempt, opened)
            else:
                self._log(call, answer.usage, answer.stop, timer.milliseconds())
                return answer
        raise RuntimeError("a retry policy has no attempts")

    @asynccontextmanager
    async def _slot(self, call: Call, opened: OpenModel) -> AsyncIterator[None]:
        """One of the provider's concurrent requests, within its rate. Questions do not wait for jobs."""
        asks = call.purpose == QUESTION
        slots = opened.question_slots if asks else opened.slots
        try:
            async with asyncio.timeout(call.request.seconds):
                await slots.acquire()
        except TimeoutError as exc:
            raise LimitReached(
                f"other requests to the provider of {opened.model.name} took {call.request.seconds:.0f} s: try again later,"
                " or raise its concurrency in the file LLC_PROVIDERS"
            ) from exc
        try:
            try:
                await opened.rate.take(1, urgent=asks, within=call.request.seconds)
            except LimitReached as exc:
                raise LimitReached(
                    f"the limit of {opened.per_minute} requests a minute of the provider of {opened.model.name} is used up:"
                    " try again later, or raise its rate in the file LLC_PROVIDERS",
                    **exc.details,
                ) from exc
            yield
        finally:
            slots.release()

    def _attempts(self) -> Iterable[int]:
        return range(1, self._retry_policy.attempts + 1)

    async def _wait_after(self, error: LatentError, attempt: int, opened: OpenModel) -> None:
        """Wait before the next attempt; raises the error if it would not help."""
        policy = self._retry_policy
        requested = error.details.get("retry_after")
        if requested is not None and isinstance(error, LimitReached | UpstreamOverload):
            await opened.rate.pause(requested)
        if not _may_help(error) or attempt == policy.attempts:
            raise error
        wait = self._jitter(0.0, policy.first_wait * 2 ** (attempt - 1))
        seconds = requested if requested is not None else wait
        if seconds > policy.longest_wait:
            raise error
        await self._sleep(seconds)

    async def _check(self, call: Call) -> None:
        """Permission and budget at this moment."""
        async with self._db.reading() as conn:
            _check_budget(await self._permission(conn, call), call)

    async def _permission(self, conn: Connection, call: Call) -> ModelPermission:
        """The one place that lets a container's content pass: its stored manifest names this model for this purpose."""
        expected = _permitted(call.block, call.purpose)
        found = await model_usage.permission(
            conn,
            container_id=call.container_id,
            purpose=call.purpose,
            job_id=call.job_id or NO_JOB,
        )
        if found is None:
            raise NotFound(f"container '{call.container_id}' no longer exists")
        if not found.block.enabled or found.block.provider != expected:
            raise Forbidden(
                f"the manifest of '{call.container_id}' does not permit {expected} for {call.purpose} now: it was changed"
                " after this work began. Start it again"
            )
        return found

    async def _committed(
        self, call: Call, key: str, opened: OpenModel, answer: Answer
    ) -> CachedAnswer:
        cost = opened.cost(answer.usage)
        row = AnswerRow(
            call.container_id,
            key,
            call.doc_id,
            call.purpose,
            call.prompt_version,
            opened.model.name,
        )
        failpoint("model.before_answer")
        async with self._db.transaction() as conn:
            await self._add(conn, call, opened, answer.usage)
            created_at = await model_answers.store(
                conn,
                row,
                text=answer.text,
                stop=answer.stop.value,
                input_tokens=answer.usage.input_tokens,
                output_tokens=answer.usage.output_tokens,
                cost=cost,
            )
        failpoint("model.after_answer")
        return CachedAnswer(answer, row.model, cost, created_at or datetime.now(UTC), cached=False)

    async def _count(self, calls: Sequence[Call], opened: OpenModel, usage: Usage) -> None:
        async with self._db.transaction() as conn:
            for call, share in zip(calls, _divided(usage, len(calls)), strict=True):
                await self._add(conn, call, opened, share)

    @staticmethod
    async def _add(conn: Connection, call: Call, opened: OpenModel, usage: Usage) -> None:
        await model_usage.add(
            conn,
            job_id=call.job_id or NO_JOB,
            container_id=call.container_id,
            purpose=call.purpose,
            model=opened.model.name,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost=opened.cost(usage),
        )

    def _from(self, stored: StoredAnswer, call: Call) -> CachedAnswer:
        usage = Usage(stored.input_tokens, stored.output_tokens)
        answer = Answer(stored.text, usage, Stop(stored.stop))
        name = _permitted(call.block, call.purpose)
        return CachedAnswer(answer, name, stored.cost, stored.created_at, cached=True)

    @staticmethod
    def _log(call: Call, usage: Usage, stop: Stop | None, milliseconds: int) -> None:
        logger.info(
            "model_called",
            extra={
                **_named(call),
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "stop": stop.value if stop is not None else "closed",
                "ms": milliseconds,
            },
        )

    @staticmethod
    def _log_failure(call: Call, error: LatentError) -> None:
        """Without the error's message: it may quote the server, which may quote the content."""
        status = error.details.get("upstream_status")
        names = {"error": type(error).__name__, "upstream_status": status}
        logger.warning("model_call_failed", extra={**_named(call), **names})


def _divided(usage: Usage, count: int) -> list[Usage]:
    """Equal shares; the first ones have what remains."""
    each = range(count)
    return [
        Usage(
            usage.input_tokens // count + (n < usage.input_tokens % count),
            usage.output_tokens // count + (n < usage.output_tokens % count),
        )
        for n in each
    ]


def answer_key(call: Call) -> str:
    """Of the stored answer."""
    schema = call.request.schema
    version = f"{schema.name} {schema.version}" if schema is not None else ""
    parts = (call.purpose, call.prompt_version, call.block.provider or "", call.input_hash, version)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def prompt_hash(request: Completion) -> str:
    """Of all that the model reads."""
    digest = hashlib.sha256()
    for piece in _pieces(request):
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.hexdigest()


def _pieces(request: Completion) -> Iterator[bytes]:
    yield request.system.encode()
    for part in request.parts:
        yield _bytes(part)


def _bytes(part: Part) -> bytes:
    return part.text.encode() if isinstance(part, TextPart) else part.data


def _permitted(block: ModelBlock, purpose: str) -> str:
    """The name of the model that the block permits."""
    if not block.enabled or block.provider is None:
        raise Forbidden(f"{purpose} permits no language model: its manifest has enabled: false")
    return block.provider


def _check_budget(found: ModelPermission, call: Call) -> None:
    budget = found.budget
    for key, used, limit, unit in (
        ("job_tokens", found.job_tokens, budget.job_tokens, "tokens in this job"),
        ("tokens", found.tokens, budget.tokens, "tokens in this container"),
        ("cost", found.cost, budget.cost, "cost of this container"),
    ):
        if limit is not None and used >= limit and (key != "job_tokens" or call.job_id is not None):
            raise Forbidden(
                f"model_budget.{key} of '{call.container_id}' is {limit:g}, and {used:g} are used ({unit}): what is done stays."
                f" Raise model_budget.{key} in the manifest to go on",
                key=f"model_budget.{key}",
                limit=limit,
                used=used,
            )


def _discreet(error: LatentError, call: Call) -> LatentError:
    """The same error without passages of the request in its message."""
    message = without_quotes(error.message, call.request)
    if message == error.message:
        return error
    discreet = error.copied()
    discreet.message, discreet.args, discreet.__cause__ = message, (message,), None
    return discreet


def _may_help(error: LatentError) -> bool:
    """Whether the same request may be sent again: it was not answered, so it cost nothing."""
    if isinstance(error, LimitReached | UpstreamOverload | ServiceUnreachable | ConnectionClosed):
        return True
    return isinstance(error, UpstreamError) and "upstream_status" in error.details


def _named(call: Call) -> dict[str, object]:
    return {
        "container_id": call.container_id,
        "job_id": call.job_id,
        "purpose": call.purpose,
        "model": call.block.provider,
        "prompt_version": call.prompt_version,
        "prompt_hash": prompt_hash(call.request),
    }


@dataclass(frozen=True, slots=True)
class _Timer:
    _began: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    def milliseconds(self) -> int:
        return round(1000 * (asyncio.get_running_loop().time() - self._began))
