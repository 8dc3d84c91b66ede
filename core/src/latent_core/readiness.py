"""Whether a process can do its work: the state of its backing services, read on request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from latent_core.blobs.port import BlobStore
from latent_core.db.capacity import CapacityGuard
from latent_core.db.connection import Database
from latent_core.domain.errors import LatentError, NotFound, Service
from latent_core.telemetry.metrics import Metrics
from latent_core.vectors.port import NO_COLLECTION, VectorIndex
from latent_core.wire.doctor import ReadinessAnswer, ServiceState

logger = logging.getLogger(__name__)

PROBE_SECONDS: Final = 2.0
"""A service that does not answer within this time is down."""


class Readiness:
    """The services of one process. Concurrent requests share one read.

    A gateway is ready while Postgres answers: keyword search needs nothing else. With ``writes`` (a worker, which
    claims jobs) Postgres must also accept writes.
    """

    def __init__(
        self,
        db: Database,
        vectors: VectorIndex,
        blobs: BlobStore,
        capacity: CapacityGuard,
        metrics: Metrics,
        *,
        writes: bool,
    ) -> None:
        self._db = db
        self._vectors = vectors
        self._blobs = blobs
        self._capacity = capacity
        self._metrics = metrics
        self._writes = writes
        self._probes: dict[Service, _Probe] = {
            "postgres": _Probe("postgres", self._postgres),
            "qdrant": _Probe("qdrant", self._qdrant),
            "minio": _Probe("minio", self._minio),
        }
        self._look: asyncio.Task[dict[Service, ServiceState]] | None = None

    async def answer(self) -> tuple[bool, ReadinessAnswer]:
        """Whether the process is ready, and the answer of ``/readyz``."""
        states = await self.states()
        blocking = {"down", "read_only"} if self._writes else {"down"}
        well = set(states.values()) == {"ok"}
        answer = ReadinessAnswer(status="ok" if well else "degraded", services=dict(states))
        return states["postgres"] not in blocking, answer

    async def states(self) -> dict[Service, ServiceState]:
        """The state of each service, after at most ``PROBE_SECONDS``. Also updates the metrics."""
        look = self._look
        if look is None or look.done():
            look = self._look = asyncio.create_task(self._looked(), name="service-probes")
        # A caller that disconnects does not cancel it for the others.
        return await asyncio.shield(look)

    async def _looked(self) -> dict[Service, ServiceState]:
        answers = await asyncio.gather(*(probe.answers() for probe in self._probes.values()))
        up = dict(zip(self._probes, answers, strict=True))
        full, metrics = self._capacity.known_full(), self._metrics
        read_only = up["postgres"] and self._db.read_only
        metrics.service_read_only.labels("postgres").set(read_only)
        for service, answered in up.items():
            metrics.service_up.labels(service).set(answered)
            metrics.service_full.labels(service).set(service in full)
        states: dict[Service, ServiceState] = {
            service: "down" if not answered else "full" if service in full else "ok"
            for service, answered in up.items()
        }
        return states | {"postgres": "read_only"} if read_only else states

    async def _postgres(self) -> None:
        await self._db.ping()
        async with self._db.reading() as conn:
            await self._capacity.look(conn)

    async def _qdrant(self) -> None:
        with suppress(NotFound):
            await self._vectors.count(NO_COLLECTION)

    async def _minio(self) -> None:
        await self._blobs.verify()  # also of a bucket that is lost or belongs to another database


class _Probe:
    """One service. Logs when it stops answering and when it answers again.

    A call may ignore its cancellation for seconds: psycopg then waits for a server that hangs. It is left alone, and no
    second one starts before it has ended.
    """

    def __init__(self, service: Service, call: Callable[[], Awaitable[None]]) -> None:
        self._service = service
        self._call = call
        self._task: asyncio.Task[str | None] | None = None
        self._failures = 0

    async def answers(self) -> bool:
        """Whether the service answers within ``PROBE_SECONDS``."""
        task = self._task
        if task is None or task.done():
            task = self._task = asyncio.create_task(self._run(), name=f"probe-{self._service}")
        await asyncio.wait({task}, timeout=PROBE_SECONDS)
        if not task.done():
            task.cancel()
            cause: str | None = f"no answer within {PROBE_SECONDS:g} s"
        elif task.cancelled():
            cause = "an earlier call was cancelled, because it had no answer"
        else:
            cause = task.result()
        self._note(cause)
        return cause is None

    async def _run(self) -> str | None:
        """Why the service does not answer; None if it does."""
        try:
            await self._call()
        except LatentError as exc:
            return exc.message
        except Exception as exc:  # unexpected: the service counts as down
            logger.exception("probe_failed", extra={"service": self._service})
            return type(exc).__name__
        return None

    def _note(self, cause: str | None) -> None:
        """Callers need no token, so the log has the cause, not the answer."""
        if cause is not None:
            self._failures += 1
            if self._failures == 1:
                logger.warning("service_down", extra={"service": self._service, "cause": cause})
        elif self._failures:
            logger.info(
                "service_up", extra={"service": self._service, "failed_probes": self._failures}
            )
            self._failures = 0
