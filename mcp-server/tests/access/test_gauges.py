"""Gauges of the gateway: what fails spoils nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from latent_core.stack import Stack
from latent_core.telemetry.metrics import Metrics
from latent_core.wire.doctor import ServiceState
from latent_gateway.backend_gauges import Gauges


@dataclass
class BrokenStack:
    """A stack whose database fails every statement."""

    postgres: ServiceState = "ok"
    metrics: Metrics = field(default_factory=Metrics)
    reads: int = 0

    db = property(lambda self: self)
    readiness = property(lambda self: self)

    async def states(self) -> dict[str, ServiceState]:
        return {"postgres": self.postgres}

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Any]:
        self.reads += 1
        raise RuntimeError("a statement of ours is wrong")
        yield


@pytest.mark.parametrize(("postgres", "reads"), [("ok", 4), ("read_only", 4), ("down", 0)])
async def test_a_gauge_that_cannot_be_read_leaves_the_others_and_the_page(
    postgres: ServiceState, reads: int
) -> None:
    stack = BrokenStack(postgres)
    await Gauges(cast(Stack, stack)).refresh()
    assert stack.reads == reads
