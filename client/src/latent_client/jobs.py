"""Calls for jobs: list, cancel, requeue, follow and wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Final

from latent_client.streams import JobEvents, JobNews
from latent_client.transport import ClientCalls
from latent_client.waiting import HOUR, JobWait, OnWait
from latent_core.domain.errors import RateLimited
from latent_core.domain.job import JobGroup, JobState, JobView
from latent_core.wire.jobs import (
    JobAnswer,
    JobGroupAnswer,
    JobGroupList,
    JobList,
    RequeueAnswer,
)

FEW_JOBS: Final = 2
"""Up to this number, jobs are fetched one by one."""


class JobCalls(ClientCalls):
    """Calls of ``AsyncClient`` for jobs."""

    async def jobs(
        self,
        *,
        container_id: str | None = None,
        states: Collection[JobState] = (),
        group_id: int | str | None = None,
    ) -> AsyncIterator[JobView]:
        """Jobs, newest first, by default in all states; with ``group_id`` those of one group."""
        status = sorted(state.value for state in states) or None
        group = None if group_id is None else str(group_id)
        async for page in self._pages(
            JobList, "/v1/jobs", container_id=container_id, status=status, group_id=group
        ):
            for job in page.jobs:
                yield job

    async def job_groups(
        self, *, container_id: str | None = None, states: Collection[JobState] = ()
    ) -> AsyncIterator[JobGroup]:
        """What people requested, newest first, with the numbers of jobs; by default in all states."""
        status = sorted(state.value for state in states) or None
        async for page in self._pages(
            JobGroupList, "/v1/job-groups", container_id=container_id, status=status
        ):
            for group in page.groups:
                yield group

    async def job_group(self, group_id: int | str) -> JobGroup:
        answer = await self._transport.ask(JobGroupAnswer, "GET", f"/v1/job-groups/{group_id}")
        return answer.group

    async def job(self, job_id: int | str) -> JobView:
        return (await self._transport.ask(JobAnswer, "GET", f"/v1/jobs/{job_id}")).job

    async def cancel(self, job_id: int | str) -> JobView:
        return (await self._transport.ask(JobAnswer, "POST", f"/v1/jobs/{job_id}/cancel")).job

    async def requeue(self, job_id: int | str) -> JobView:
        return (await self._transport.ask(JobAnswer, "POST", f"/v1/jobs/{job_id}/requeue")).job

    async def requeue_failed(
        self, container_id: str, *, group_id: int | str | None = None
    ) -> RequeueAnswer:
        """Requeue the failed jobs of a container, or of one group in it, except refreshes, until the queue is full. Raises ``RateLimited`` if
        the queue accepts none."""
        job_ids: list[int] = []
        left, cursor = 0, None
        while True:
            body: dict[str, str | int] = {"container_id": container_id}
            body |= {"cursor": cursor} if cursor else {}
            body |= {"group_id": int(group_id)} if group_id is not None else {}
            try:
                requeued = await self._transport.ask(
                    RequeueAnswer, "POST", "/v1/requeue", json=body, repeatable=True
                )
            except RateLimited as full:
                if not job_ids:
                    raise
                remaining = int(full.details.get("remaining", 0))
                requeued = RequeueAnswer(
                    job_ids=[], left=0, remaining=remaining, partial=True, issues=[full.issue()]
                )
            job_ids, left, cursor = (
                job_ids + requeued.job_ids,
                left + requeued.left,
                requeued.next_cursor,
            )
            if cursor is None or requeued.remaining:
                return requeued.model_copy(update={"job_ids": job_ids, "left": left})

    async def events(
        self, job_id: int | str, *, timeout_seconds: float = 24 * HOUR
    ) -> AsyncIterator[JobNews]:
        """Events of a job until its final state. Raises ``TimedOut`` if the job does not end in time."""
        async for event in JobEvents(self._transport, int(job_id), timeout_seconds):
            yield event

    async def wait(
        self,
        job_ids: Iterable[int | str],
        on_progress: OnWait | None = None,
        *,
        timeout_seconds: float = HOUR,
    ) -> list[JobView]:
        """Wait until all jobs are in a final state. ``TimedOut`` names the jobs that are still open."""
        return await JobWait(self._some_jobs, [int(job_id) for job_id in job_ids], on_progress).run(
            timeout_seconds
        )

    async def _some_jobs(self, job_ids: Sequence[int]) -> list[JobView]:
        """A few jobs are fetched one by one, and so are jobs without a container, which no listing contains."""
        listed: list[JobView] = []
        if len(job_ids) > FEW_JOBS:
            query = {"job_id": [str(job_id) for job_id in job_ids]}
            listed = (await self._transport.ask(JobList, "GET", "/v1/jobs", query=query)).jobs
        found = {job.job_id: job for job in listed}
        rest = [job_id for job_id in job_ids if job_id not in found]
        found |= {job.job_id: job for job in await asyncio.gather(*map(self.job, rest))}
        return [found[job_id] for job_id in job_ids]
