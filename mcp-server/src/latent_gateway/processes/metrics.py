"""The metrics of all processes of a gateway, added up by the first one, whichever of them is asked (ADR 0069)."""

from __future__ import annotations

import asyncio
import logging
import operator
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

logger = logging.getLogger(__name__)

Snapshot: TypeAlias = list[list[Any]]
"""Of each metric: name, type, documentation, and samples as name, labels and value."""

SampleKey: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""Its name and labels."""

ANSWER_SECONDS: Final = 1.0
"""Without an answer in time, a process counts with its last one."""
_GROWING: Final = frozenset({"counter", "histogram", "summary"})
_SUMMED: Final = frozenset(
    {
        "latent_database_pool_connections",
        "latent_database_pool_max_connections",
        "latent_database_pool_waiting",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
    }
)
"""Gauges of what a process uses. Most others describe services, which are the same for all: the first process reads them."""
_HIGHEST: Final = frozenset({"latent_service_full", "latent_service_read_only"})
"""Gauges of what a process has met: one that has met it is enough."""


def snapshot(registry: CollectorRegistry) -> Snapshot:
    """The values of a process, as JSON."""
    return [
        [one.name, one.type, one.documentation, [[s.name, s.labels, s.value] for s in one.samples]]
        for one in registry.collect()
    ]


class GroupMetrics:
    """Of the first process; further ones are ``add``-ed while they run."""

    def __init__(self, registry: CollectorRegistry, refresh: Callable[[], Awaitable[None]]) -> None:
        self._registry = registry
        self._refresh = refresh
        self._sources: dict[int, Callable[[], Awaitable[Snapshot]]] = {}
        self._last: dict[int, Snapshot] = {}
        self._ended: Snapshot = []
        """Counters of processes that ended: without them sums would fall, which Prometheus takes for a restart."""

    def add(self, number: int, source: Callable[[], Awaitable[Snapshot]]) -> None:
        self._sources[number] = source

    def remove(self, number: int) -> None:
        """The process has ended."""
        self._sources.pop(number, None)
        last = [one for one in self._last.pop(number, []) if one[1] in _GROWING]
        self._ended = _sum(self._ended, [last])

    async def refreshed(self) -> bytes:
        """The sums, with gauges of the services read now."""
        await self._refresh()
        return await self.text()

    async def text(self) -> bytes:
        """The sums in Prometheus's text format."""
        await asyncio.gather(*(self._ask(number) for number in list(self._sources)))
        others = [self._ended, *self._last.values()]
        return _text(_sum(snapshot(self._registry), others))

    async def _ask(self, number: int) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await self._sources[number]()
        except (TimeoutError, EOFError) as exc:
            cause = str(exc) or "too slow"
            logger.warning("metrics_not_read", extra={"number": number, "cause": cause})
        else:
            if number in self._sources:
                self._last[number] = answer


def _sum(first: Snapshot, others: Sequence[Snapshot]) -> Snapshot:
    """Gauges that are not of a process are those of ``first``."""
    kinds: dict[str, tuple[str, str]] = {}
    values: dict[str, dict[SampleKey, float]] = {}
    for name, kind, documentation, samples in first:
        kinds[name] = kind, documentation
        values[name] = {_key(sample): sample[2] for sample in samples}
    for name, kind, documentation, samples in chain.from_iterable(others):
        if kind not in _GROWING and name not in _SUMMED | _HIGHEST:
            continue
        kinds.setdefault(name, (kind, documentation))
        total = values.setdefault(name, {})
        add = max if name in _HIGHEST else operator.add
        for sample in samples:
            key = _key(sample)
            total[key] = add(total[key], sample[2]) if key in total else sample[2]
    return [
        [name, *kinds[name], [[key[0], dict(key[1]), value] for key, value in samples.items()]]
        for name, samples in values.items()
    ]


def _key(sample: Sequence[Any]) -> SampleKey:
    return sample[0], tuple(sample[1].items())


def _text(summed: Snapshot) -> bytes:
    registry = CollectorRegistry()
    registry.register(_SummedCollector(summed))
    return generate_latest(registry)


class _SummedCollector(Collector):
    def __init__(self, summed: Snapshot) -> None:
        self._summed = summed

    @override
    def collect(self) -> Iterable[Metric]:
        for name, kind, documentation, samples in self._summed:
            metric = Metric(name, documentation, kind)
            for sample_name, labels, value in samples:
                metric.add_sample(sample_name, labels, value)
            yield metric
