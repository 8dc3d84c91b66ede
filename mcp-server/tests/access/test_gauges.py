"""Probes and gauges: many who ask at once cost one look, and what fails spoils nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from latent_core.db.capacity import CapacityGuard
from latent_core.domain.errors import ServiceUnreachable, StoreFull
from latent_core.stack import Stack
from latent_core.telemetry.metrics import Metrics
from latent_gateway.backend_gauges import Gauges


@dataclass
class Services:
    """All three of a stack, and what each does when it is asked."""

    metrics: Metrics = field(default_factory=Metrics)
    capacity: CapacityGuard = field(
        default_factory=lambda: CapacityGuard(servers=frozenset({"postgres"}))
    )
    probed: list[str] = field(default_factory=list)
    trouble: dict[str, Exception] = field(default_factory=dict)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    db = property(lambda self: self)
    vectors = property(lambda self: self)
    blobs = property(lambda self: self)

    async def _ask(self, name: str) -> None:
        self.probed.append(name)
        await self.answers.wait()
        if name in self.trouble:
            raise self.trouble[name]

    async def ping(self) -> None:
        await self._ask("postgres")

    async def collections(self) -> list[str]:
        await self._ask("qdrant")
        return []

    async def size(self, _: str) -> None:
        await self._ask("minio")

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Any]:
        self.probed.append("gauge")
        raise self.trouble["gauge"]
        yield


def gauges_of(services: Services) -> Gauges:
    return Gauges(cast(Stack, services))


async def test_many_probes_at_once_are_one_look_which_outlives_whoever_hangs_up() -> None:
    services = Services()
    gauges = gauges_of(services)
    asking = [asyncio.create_task(gauges.services()) for _ in range(50)]
    for _ in range(5):
        await asyncio.sleep(0)  # until they have begun
    assert len(services.probed) == 3
    asking[0].cancel()
    services.answers.set()
    message = await asyncio.gather(*asking[1:])
    assert services.probed == ["postgres", "qdrant", "minio"]
    assert all(one == {"postgres": True, "qdrant": True, "minio": True} for one in message)
    await gauges.services()
    assert len(services.probed) == 6  # a later one looks again


async def test_an_error_that_nobody_foresaw_makes_a_service_down_and_no_more() -> None:
    services = Services(trouble={"qdrant": KeyError("odd"), "minio": ServiceUnreachable("gone")})
    services.answers.set()
    message = await gauges_of(services).services()
    assert message == {"postgres": True, "qdrant": False, "minio": False}


async def test_a_gauge_that_cannot_be_read_leaves_the_others_and_the_page() -> None:
    services = Services(trouble={"gauge": RuntimeError("a statement of ours is wrong")})
    services.answers.set()
    await gauges_of(services).refresh()
    assert services.probed.count("gauge") == 3


async def test_a_full_store_is_reported_even_when_it_has_stopped() -> None:
    services = Services(trouble={"postgres": ServiceUnreachable("its log cannot grow")})
    services.answers.set()
    services.capacity.heard(StoreFull("no space left", service="postgres"))
    await gauges_of(services).refresh()
    read = services.metrics.registry.get_sample_value
    assert read("latent_service_full", {"service": "postgres"}) == 1
    assert read("latent_service_full", {"service": "qdrant"}) == 0
