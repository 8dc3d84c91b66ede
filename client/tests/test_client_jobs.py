"""Watching and waiting for jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings, strategies as st

from latent_client import AsyncClient
from latent_client.streams import read_events
from latent_client.waiting import WaitProgress
from latent_core.domain.errors import NotFound, TimedOut
from latent_core.domain.job import JobState
from tests.support.fake_gateway.gateway import FakeGateway


async def test_a_jobs_history_is_followed_to_its_end(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.hold_jobs = True
    job = gateway.put("notes", "file:///a", b"text")
    seen: list[str] = []
    async for news in client.events(job.job_id, timeout_seconds=10):
        seen.append(news.event)
        if news.event == "progress":
            gateway.finish(job.job_id)
    assert seen == ["queued", "progress", "done", "end"]


@pytest.mark.parametrize("cut", range(5))
async def test_a_stream_that_breaks_off_is_taken_up_without_loss_or_repetition(
    cut: int, client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.hold_jobs = True
    job = gateway.put("notes", "file:///a", b"text")
    for step in range(3):
        gateway.note(job.job_id, f"step-{step}", note_text="a\u2028b\nc")
    gateway.finish(job.job_id)
    gateway.events_before_cut = cut
    news = [n async for n in client.events(job.job_id, timeout_seconds=10)]
    assert [n.event for n in news] == ["queued", "step-0", "step-1", "step-2", "done", "end"]
    assert news[1].details == {"note_text": "a\u2028b\nc"}
    assert news[-1].job is not None
    assert news[-1].job.state is JobState.DONE
    assert gateway.events_before_cut is None


async def test_a_job_that_does_not_end_is_left_at_the_deadline(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.hold_jobs = True
    job = gateway.put("notes", "file:///a", b"text")
    with pytest.raises(TimedOut, match="it continues"):
        async for _ in client.events(job.job_id, timeout_seconds=0.2):
            pass


async def test_the_history_of_an_unknown_job_is_not_found(client: AsyncClient) -> None:
    with pytest.raises(NotFound):
        async for _ in client.events(77):
            pass


async def test_jobs_are_waited_for_in_the_order_given(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.hold_jobs = True
    ids = [gateway.put("notes", f"file:///{n}", b"text").job_id for n in range(30)]
    reports: list[WaitProgress] = []

    def some_end(progress: WaitProgress) -> None:
        reports.append(progress)
        open_jobs = [i for i in ids if gateway.jobs[i].state is JobState.QUEUED]
        for job_id in open_jobs[:13]:
            gateway.finish(job_id)

    views = await client.wait([*reversed(ids), ids[0]], some_end, timeout_seconds=10)
    assert [view.job_id for view in views] == list(reversed(ids))
    assert [p.done for p in reports] == [0, 13, 26, 30]
    assert all(p.total == 30 for p in reports)


async def test_many_jobs_are_polled_in_one_request(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    ids = [gateway.put("notes", f"file:///{n}", b"text").job_id for n in range(200)]
    before = len(gateway.requests)
    views = await client.wait(ids, timeout_seconds=10)
    assert [view.job_id for view in views] == ids
    assert len(gateway.requests) - before <= 10


async def test_jobs_that_do_not_end_are_named_at_the_deadline(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.hold_jobs = True
    ids = [gateway.put("notes", f"file:///{n}", b"text").job_id for n in range(9)]
    gateway.finish(ids[5])
    with pytest.raises(TimedOut, match=r"8 of 9 jobs .* \(1, 2, 3, 4, 5 …\)") as caught:
        await client.wait(ids, timeout_seconds=0.2)
    assert ids[5] not in caught.value.details["open_jobs"]


async def test_waiting_for_no_job_ends_at_once(client: AsyncClient, gateway: FakeGateway) -> None:
    assert await client.wait([]) == []
    assert not gateway.requests


async def _pieces(data: bytes, sizes: list[int]) -> AsyncIterator[bytes]:
    start = 0
    for size in sizes:
        yield data[start : start + size]
        start += size
    yield data[start:]


_TEXT = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(_TEXT, st.lists(_TEXT, min_size=1, max_size=3)), max_size=5),
    st.lists(st.integers(0, 9), max_size=40),
    st.sampled_from(["\n", "\r\n"]),
)
def test_events_are_the_same_however_the_stream_is_cut_into_pieces(
    events: list[tuple[str, list[str]]], sizes: list[int], end: str
) -> None:
    lines: list[str] = [": a comment"]
    for name, data in events:
        lines += [f"event: x{name}", f"id: {name}", *(f"data: {d}" for d in data), ""]
    source = "".join(line + end for line in [*lines, "data: cut off"]).encode()

    async def read() -> list[tuple[str, str, str | None]]:
        return [(e.event, e.data, e.id) async for e in read_events(_pieces(source, sizes))]

    expected = [(f"x{name}", "\n".join(data), name) for name, data in events]
    assert asyncio.run(read()) == expected
