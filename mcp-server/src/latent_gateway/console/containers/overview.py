"""The first page: the containers that the user may read, their contents and their health."""

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
from latent_core.domain.token import Scope
from latent_core.queue import admin
from latent_core.search.readable import Readable
from latent_core.wire.containers import ContainerSizes
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import page
from latent_gateway.context import Shared

router = pages()

SHOWN: Final = 30
"""Containers per page: each is counted on every request."""
JOBS_COUNTED: Final = 500
"""Of all containers together; above it, the page shows this number with a plus."""


@dataclass(frozen=True, slots=True)
class ContainerHealth:
    """The jobs of a container, summarised."""

    open: int
    failed: int
    pending: int
    """Documents that are accepted and not searchable yet."""

    @property
    def word(self) -> str:
        if self.failed:
            return "failures"
        return "working" if self.open or self.pending else "well"


@dataclass(frozen=True, slots=True)
class Card:
    """A container on the first page."""

    container: Readable
    sizes: ContainerSizes
    last: datetime | None
    health: ContainerHealth


@router.get("/")
async def overview(
    shared: Shared, session: SignedIn, start: Annotated[int, Query(ge=0, le=1_000_000)] = 0
) -> Response:
    """Containers, ordered by id."""
    async with shared.stack.db.reading() as conn:
        readable = await access.all_readable(conn, session.principal)
        shown = readable[start : start + SHOWN]
        cards = await _cards(conn, shown)
    following = start + SHOWN if start + SHOWN < len(readable) else None
    return page(
        "containers/overview.html",
        session,
        cards=cards,
        total=len(readable),
        following=following,
        may_create=Scope.CREATE in session.principal.scopes,
    )


async def _cards(conn: Connection, shown: Sequence[Readable]) -> list[Card]:
    found = await jobs_of(conn, [c.id for c in shown])
    cards = []
    for container in shown:
        sizes, last = await containers.sizes(conn, container.id)
        cards.append(Card(container, sizes, last, health(found, container.id, sizes)))
    return cards


async def jobs_of(conn: Connection, ids: Sequence[str]) -> Counter[tuple[str, bool]]:
    """Numbers of open (True) and failed (False) jobs by container."""
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
