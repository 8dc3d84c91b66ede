"""Metrics of several processes: what grows is added up, and never falls when one ends; gauges are not added blindly."""

from __future__ import annotations

import asyncio

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from latent_gateway.processes.metrics import GroupMetrics, Snapshot, snapshot


class Process:
    """The metrics of one process, sent as JSON."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = {"registry": self.registry}
        self.requests = Counter("requests", "Requests", ["route"], **own)
        self.seconds = Histogram("seconds", "Seconds", buckets=(0.1, 1), **own)
        self.queue = Gauge("latent_queue_jobs", "Jobs", **own)
        self.waiting = Gauge("latent_database_pool_waiting", "Statements", **own)
        self.full = Gauge("latent_service_full", "Full", ["service"], **own)
        self.hangs = False

    async def answer(self) -> Snapshot:
        if self.hangs:
            await asyncio.Event().wait()
        sent: Snapshot = orjson.loads(orjson.dumps(snapshot(self.registry)))
        return sent


async def nothing() -> None:
    return


def group(first: Process, *others: Process) -> GroupMetrics:
    metrics = GroupMetrics(first.registry, nothing)
    for number, one in enumerate(others, start=2):
        metrics.add(number, one.answer)
    return metrics


async def lines(metrics: GroupMetrics) -> dict[str, float]:
    text = (await metrics.refreshed()).decode()
    pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


async def test_counters_and_histograms_are_added_up_and_gauges_of_services_are_not() -> None:
    first, second = Process(), Process()
    first.requests.labels("/a").inc(3)
    second.requests.labels("/a").inc(4)
    second.requests.labels("/b").inc()
    first.seconds.observe(0.05)
    second.seconds.observe(0.5)
    for one in (first, second):
        one.queue.set(7)
        one.waiting.set(2)
    first.full.labels("minio").set(0)
    second.full.labels("minio").set(1)
    found = await lines(group(first, second))
    assert found['requests_total{route="/a"}'] == 7
    assert found['requests_total{route="/b"}'] == 1
    assert found['seconds_bucket{le="0.1"}'] == 1
    assert found['seconds_bucket{le="+Inf"}'] == found["seconds_count"] == 2
    assert found["seconds_sum"] == 0.55
    assert found["latent_queue_jobs"] == 7
    assert found["latent_database_pool_waiting"] == 4
    assert found['latent_service_full{service="minio"}'] == 1


async def test_the_types_and_descriptions_stay() -> None:
    text = (await group(Process(), Process()).text()).decode()
    assert "# HELP requests_total Requests\n# TYPE requests_total counter" in text
    assert "# TYPE seconds histogram" in text
    assert "# TYPE latent_queue_jobs gauge" in text


async def test_sums_do_not_fall_when_a_process_ends_and_another_takes_its_place() -> None:
    first, second, third = Process(), Process(), Process()
    metrics = group(first, second)
    second.requests.labels("/a").inc(5)
    second.waiting.set(9)
    assert (await lines(metrics))['requests_total{route="/a"}'] == 5
    metrics.remove(2)
    found = await lines(metrics)
    assert found['requests_total{route="/a"}'] == 5
    assert found["latent_database_pool_waiting"] == 0
    metrics.add(2, third.answer)
    third.requests.labels("/a").inc(2)
    assert (await lines(metrics))['requests_total{route="/a"}'] == 7
    metrics.remove(2)
    assert (await lines(metrics))['requests_total{route="/a"}'] == 7


async def test_a_process_that_does_not_answer_counts_as_before() -> None:
    first, second = Process(), Process()
    metrics = group(first, second)
    second.requests.labels("/a").inc(5)
    await lines(metrics)
    second.hangs = True
    assert (await lines(metrics))['requests_total{route="/a"}'] == 5
