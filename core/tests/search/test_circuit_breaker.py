"""Circuit breakers: a service that does not answer is skipped, probed in the background and used again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from latent_core.domain.errors import NotFound, ServiceUnreachable, UpstreamError
from latent_core.search.circuit_breaker import FAILURES, CircuitBreaker, CircuitOpen
from latent_core.search.time_budget import TimeBudget
from tests.support.queue import until

SHORT = 0.01
PAUSE = 0.001


class Service:
    """Answers, or does not."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: Exception | None = None
        self.frozen = False

    async def call(self, _: TimeBudget) -> str:
        self.calls += 1
        if self.frozen:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return "answer"


@pytest.fixture
async def breaker() -> AsyncIterator[CircuitBreaker]:
    made = CircuitBreaker("qdrant", pause_seconds=PAUSE)
    yield made
    await made.close()


async def search(breaker: CircuitBreaker, service: Service, seconds: float = SHORT) -> str:
    return await breaker.run(service.call, TimeBudget.start(seconds), object())


async def opened(breaker: CircuitBreaker, service: Service) -> None:
    service.frozen = True
    for _ in range(FAILURES):
        with pytest.raises(TimeoutError):
            await search(breaker, service)
    assert breaker.is_open


async def test_a_frozen_service_is_skipped_after_three_searches_and_used_again_when_it_answers(
    breaker: CircuitBreaker,
) -> None:
    service = Service()
    await opened(breaker, service)
    with pytest.raises(CircuitOpen, match=r"qdrant has not answered .* \(no answer within"):
        await search(breaker, service)
    service.frozen = False
    await until(lambda: not breaker.is_open)
    assert await search(breaker, service) == "answer"


async def test_an_open_circuit_calls_the_service_only_in_the_background(
    breaker: CircuitBreaker,
) -> None:
    service = Service()
    service.error = ServiceUnreachable("refused")
    for _ in range(FAILURES):
        with pytest.raises(ServiceUnreachable):
            await search(breaker, service)
    before = service.calls
    for _ in range(100):  # without a turn of the event loop, so that no probe runs between
        with pytest.raises(CircuitOpen):
            await search(breaker, service)
    assert service.calls == before


async def test_one_answer_between_the_failures_keeps_the_circuit_closed(
    breaker: CircuitBreaker,
) -> None:
    service = Service()
    for _ in range(2 * FAILURES):
        service.frozen = True
        with pytest.raises(TimeoutError):
            await search(breaker, service)
        service.frozen = False
        await search(breaker, service)
    assert not breaker.is_open


async def test_failures_of_one_search_in_many_containers_count_once(
    breaker: CircuitBreaker,
) -> None:
    service, one = Service(), object()
    service.frozen = True
    calls = [breaker.run(service.call, TimeBudget.start(SHORT), one) for _ in range(20)]
    await asyncio.gather(*calls, return_exceptions=True)
    assert not breaker.is_open


async def test_a_service_that_answers_with_errors_is_not_skipped(breaker: CircuitBreaker) -> None:
    service = Service()
    service.error = UpstreamError("500")
    for _ in range(2 * FAILURES):
        with pytest.raises(UpstreamError):
            await search(breaker, service)
    assert not breaker.is_open


async def test_calls_that_alone_are_slow_keep_the_circuit_open_for_no_longer_than_a_probe(
    breaker: CircuitBreaker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    slow, quick = Service(), Service()
    slow.frozen = True
    for _ in range(FAILURES):
        with pytest.raises(TimeoutError):
            await breaker.run(slow.call, TimeBudget.start(SHORT), object(), quick.call)
    await until(lambda: not breaker.is_open)
    assert await search(breaker, quick) == "answer"
    assert not caplog.records


async def test_a_probe_whose_collection_is_gone_closes_the_circuit(breaker: CircuitBreaker) -> None:
    service = Service()
    await opened(breaker, service)
    service.error, service.frozen = NotFound("gone"), False
    await until(lambda: not breaker.is_open)


async def test_a_search_that_is_cancelled_by_its_client_is_no_failure(
    breaker: CircuitBreaker,
) -> None:
    service = Service()
    service.frozen = True
    for _ in range(2 * FAILURES):
        task = asyncio.create_task(search(breaker, service, seconds=30.0))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert not breaker.is_open


async def test_a_deadline_of_an_outer_block_counts_like_its_own(breaker: CircuitBreaker) -> None:
    service = Service()
    service.frozen = True
    for _ in range(FAILURES):
        budget = TimeBudget.start(SHORT)
        with pytest.raises(TimeoutError):
            async with budget.limit():
                await breaker.run(service.call, budget, object())
    assert breaker.is_open


async def test_one_log_line_when_a_service_goes_and_one_when_it_returns(
    breaker: CircuitBreaker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    service = Service()
    await opened(breaker, service)
    for _ in range(50):
        with pytest.raises(CircuitOpen):
            await search(breaker, service)
    await until(lambda: service.calls > FAILURES)  # a probe, which is not answered either
    service.frozen = False
    await until(lambda: not breaker.is_open)
    lines = [record for record in caplog.records if record.name.endswith("circuit_breaker")]
    assert [line.message for line in lines] == ["circuit_opened", "circuit_closed"]
    assert vars(lines[1])["skipped"] == 50
