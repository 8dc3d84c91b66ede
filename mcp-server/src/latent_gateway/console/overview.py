"""The first page: the containers that may be read, what they hold and how they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

from fastapi import Query, Response

from latent_core.db import containers
from latent_core.db.connection import Connection
from latent_core.domain.job import JobState
from latent_core.queue import admin
from latent_core.search.readable import Readable
from latent_core.wire.containers import ContainerSizes
from latent_gateway.auth import access
from latent_gateway.console.console_session import SignedIn
from latent_gateway.console.routing import pages
from latent_gateway.console.view import page
from latent_gateway.context import Shared

router = pages()

SHOWN: Final = 30
"""Containers a page: each is counted anew."""
JOBS_COUNTED: Final = 500
"""Of all containers together; more are told as so many or more."""


@dataclass(frozen=True, slots=True)
class ContainerHealth:
    """What jobs say of a container."""

    open: int
    failed: int
    pending: int
    """Documents that were accepted and are not searchable yet."""

    @property
    def word(self) -> str:
        if self.failed:
            return "failures"
        return "working" if self.open or self.pending else "well"


@dataclass(frozen=True, slots=True)
class Card:
    """A container as the first page shows it."""

    container: Readable
    sizes: ContainerSizes
    last: datetime | None
    health: ContainerHealth


@router.get("/")
async def overview(
    shared: Shared, session: SignedIn, start: Annotated[int, Query(ge=0, le=1_000_000)] = 0
) -> Response:
    """Containers in the order of their ids."""
    async with shared.stack.db.reading() as conn:
        readable = await access.all_readable(conn, session.principal)
        shown = readable[start : start + SHOWN]
        cards = await _cards(conn, shown)
    following = start + SHOWN if start + SHOWN < len(readable) else None
    return page(
        "overview.html",
        session,
        cards=cards,
        total=len(readable),
        following=following,
    )


async def _cards(conn: Connection, shown: Sequence[Readable]) -> list[Card]:
    found = await jobs_of(conn, [c.id for c in shown])
    cards = []
    for container in shown:
        sizes, last = await containers.sizes(conn, container.id)
        cards.append(Card(container, sizes, last, health(found, container.id, sizes)))
    return cards


async def jobs_of(conn: Connection, ids: Sequence[str]) -> Counter[tuple[str, bool]]:
    """How many jobs are open (True) or have failed (False), by container."""
    if not ids:
        return Counter()
    states = (JobState.QUEUED, JobState.RUNNING, JobState.FAILED)
    found = await admin.list_jobs(conn, container_ids=ids, states=states, limit=JOBS_COUNTED)
    return Counter((job.container_id, job.state is not JobState.FAILED) for job in found.jobs)


def health(
    found: Counter[tuple[str, bool]], container_id: str, sizes: ContainerSizes
) -> ContainerHealth:
    return ContainerHealth(
        open=found[container_id, True],
        failed=found[container_id, False],
        pending=sizes.pending_documents,
    )
