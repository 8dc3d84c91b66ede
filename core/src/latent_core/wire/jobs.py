"""Jobs: accepted, listed, requeued."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from latent_core.domain.ids import WireJobId
from latent_core.domain.job import JobGroup, JobView
from latent_core.domain.text import Text
from latent_core.wire.base import Envelope, PagedEnvelope, RequestBody


class JobAccepted(Envelope):
    job_id: WireJobId
    status: Literal["queued"] = "queued"


class JobAnswer(Envelope):
    job: JobView


class JobList(PagedEnvelope):
    jobs: list[JobView]


class JobGroupAnswer(Envelope):
    group: JobGroup


class JobGroupList(PagedEnvelope):
    groups: list[JobGroup]


class RequeueBody(RequestBody):
    container_id: Text
    group_id: Annotated[int, Field(gt=0, lt=2**63)] | None = None
    """Only the failed jobs of this group."""
    cursor: Annotated[Text, Field(max_length=128)] | None = None
    """``next_cursor`` of the answer before: one request requeues only as many jobs as fit into one transaction."""


class RequeueAnswer(PagedEnvelope):
    """The requeued jobs; ``next_cursor`` when there may be more."""

    job_ids: list[WireJobId]
    left: int
    """Jobs that stay failed because a newer job does their work."""
    remaining: int = 0
    """Jobs that the full queue refuses now: retry later with ``next_cursor`` or from the beginning."""
    next_cursor: str | None = None
