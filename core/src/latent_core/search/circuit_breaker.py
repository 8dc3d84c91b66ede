"""Circuit breakers: a search skips a service that does not answer, instead of waiting for it until its deadline.

When the calls of ``FAILURES`` searches in a row are not answered, the circuit opens, and the service is probed in the
background until it answers: at once, since only these calls may be slow, then after each pause. An answer with an error
is an answer: it concerns one request, not the service.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from latent_core.domain.errors import LatentError, ServiceUnreachable, TimedOut
from latent_core.search.time_budget import TimeBudget

logger = logging.getLogger(__name__)

T = TypeVar("T")
Call = Callable[[TimeBudget], Awaitable[T]]

FAILURES: Final = 3
PROBE_PAUSE_SECONDS: Final = 1.0
UNANSWERED: Final = (TimeoutError, TimedOut, ServiceUnreachable)
"""Errors of a service that did not answer a call."""


class CircuitOpen(ServiceUnreachable):
    """The service was skipped, because earlier calls were not answered."""


class CircuitBreaker:
    """The circuit of one service in one process."""

    def __init__(self, service: str, *, pause_seconds: float = PROBE_PAUSE_SECONDS) -> None:
        self._service = service
        self._pause_seconds = pause_seconds
        self._failed_searches: list[object] = []
        self._skipped = 0
        self._opened_at = 0.0
        self._cause = ""
        self._probe: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._probe is not None and not self._probe.done()

    async def run(
        self,
        call: Call[T],
        budget: TimeBudget,
        search: object,
        probe: Call[object] | None = None,
    ) -> T:
        """The result of ``call``. ``CircuitOpen`` at once while the circuit is open; ``TimeoutError`` when ``budget``
        is over. ``search`` identifies the search: its failures in several containers count once. ``probe``: a cheap
        call of the same service; default ``call``."""
        probe = probe or call
        if self.is_open:
            self._skipped += 1
            raise CircuitOpen(
                f"{self._service} has not answered for {time.monotonic() - self._opened_at:.0f} s and is skipped "
                f"until it answers ({self._cause})"
            )
        try:
            async with budget.limit():
                answer = await call(budget)
        except UNANSWERED as error:
            self._failed(probe, budget.seconds, search, error)
            raise
        except asyncio.CancelledError:
            if budget.is_over:  # the deadline of an outer block, at the same time as ours
                self._failed(probe, budget.seconds, search, TimeoutError())
            raise
        except LatentError:
            self._failed_searches.clear()
            raise
        self._failed_searches.clear()
        return answer

    async def close(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
            with suppress(asyncio.CancelledError):
                await self._probe

    def _failed(
        self, probe: Call[object], seconds: float, search: object, error: Exception
    ) -> None:
        if not any(search is earlier for earlier in self._failed_searches):
            self._failed_searches.append(search)
        if len(self._failed_searches) < FAILURES or self.is_open:
            return
        self._skipped, self._opened_at = 0, time.monotonic()
        self._cause = str(error) or f"no answer within {seconds:g} s"
        self._probe = asyncio.create_task(self._probing(probe, seconds, self._cause))

    async def _probing(self, probe: Call[object], seconds: float, cause: str) -> None:
        """Call ``probe`` until it is answered within ``seconds``; then close the circuit. A circuit that the first one
        closes is not worth a line in the log."""
        answered = await _is_answered(probe, seconds)
        if not answered:
            logger.warning(
                "circuit_opened",
                extra={
                    "service": self._service,
                    "searches": len(self._failed_searches),
                    "cause": cause,
                },
            )
            while not answered:
                await asyncio.sleep(self._pause_seconds)
                answered = await _is_answered(probe, seconds)
            logger.info(
                "circuit_closed",
                extra={
                    "service": self._service,
                    "skipped": self._skipped,
                    "seconds": round(time.monotonic() - self._opened_at, 1),
                },
            )
        self._probe = None
        self._failed_searches.clear()


async def _is_answered(probe: Call[object], seconds: float) -> bool:
    budget = TimeBudget.start(seconds)
    try:
        async with budget.limit():
            await probe(budget)
    except UNANSWERED:
        return False
    except LatentError:  # an answer, such as that there is no such collection
        return True
    return True


class CircuitBreakers:
    """The circuits of one process, by the name of the service."""

    def __init__(self, *, pause_seconds: float = PROBE_PAUSE_SECONDS) -> None:
        self._pause_seconds = pause_seconds
        self._breakers: dict[str, CircuitBreaker] = {}

    def of(self, service: str) -> CircuitBreaker:
        if service not in self._breakers:
            self._breakers[service] = CircuitBreaker(service, pause_seconds=self._pause_seconds)
        return self._breakers[service]

    async def close(self) -> None:
        for breaker in self._breakers.values():
            await breaker.close()
