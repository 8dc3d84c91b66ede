"""Metrics of what a process uses up: connections to the database, and free space on its disk. Read at each scrape."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override


class ResourceCollector(Collector):
    """``pool`` gives the counters of ``psycopg_pool``; ``folder`` is on the disk of the local stores."""

    def __init__(self, pool: Callable[[], Mapping[str, int]], folder: Path) -> None:
        self._pool = pool
        self._folder = folder

    @override
    def collect(self) -> Iterable[Metric]:
        yield from self._connections()
        yield from self._disk()

    def _connections(self) -> Iterable[Metric]:
        pool = self._pool()  # a counter is missing until its first event
        size, idle = pool.get("pool_size", 0), pool.get("pool_available", 0)
        connections = GaugeMetricFamily(
            "latent_database_pool_connections",
            "Connections of this process to the database",
            labels=["state"],
        )
        connections.add_metric(["idle"], idle)
        connections.add_metric(["used"], max(0, size - idle))
        yield connections
        yield GaugeMetricFamily(
            "latent_database_pool_max_connections",
            "Maximum number of those connections",
            pool.get("pool_max", 0),
        )
        yield GaugeMetricFamily(
            "latent_database_pool_waiting",
            "Statements that wait for a free connection",
            pool.get("requests_waiting", 0),
        )
        yield CounterMetricFamily(
            "latent_database_pool_wait_seconds",
            "Seconds that statements waited for a free connection",
            pool.get("requests_wait_ms", 0) / 1000,
        )
        yield CounterMetricFamily(
            "latent_database_pool_timeouts",
            "Statements that got no connection in time, or whose caller gave up",
            pool.get("requests_errors", 0),
        )

    def _disk(self) -> Iterable[Metric]:
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:  # the folder is gone; the other metrics are still of use
            return
        yield GaugeMetricFamily(
            "latent_disk_free_bytes", "Free space on the disk of the data directory", disk.free
        )
        yield GaugeMetricFamily(
            "latent_disk_size_bytes", "Size of the disk of the data directory", disk.total
        )
