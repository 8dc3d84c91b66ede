"""Records searches for the logs of containers that keep one: in memory, then in batches off the path of requests.

Nothing of this goes into the process's own log. Who searched is known only here, for seconds: what a person types in
a search as one types counts as one query.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from latent_core.db import query_log
from latent_core.db.connection import Database
from latent_core.db.query_log import QueryRecord
from latent_core.domain.errors import LatentError
from latent_core.runtime.tasks import ended
from latent_core.search.readable import Readable
from latent_core.wire.search import SearchRequest, SearchResponse

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_BATCHES: Final = 2.0
SETTLE_SECONDS: Final = 5.0
"""A query that is still typed counts once nothing followed it for this long."""
MIN_TYPED_CHARS: Final = 3
MAX_PENDING: Final = 5_000
"""Searches in memory; further ones are not logged."""
SEARCHES_PER_BATCH: Final = 500
MAX_CHARS: Final = 1_000
"""Of a query in the log."""


@dataclass(frozen=True, slots=True)
class PendingSearch:
    caller: str
    records: tuple[QueryRecord, ...]
    typed: bool
    due: float
    """By the loop's clock."""

    @property
    def query(self) -> str:
        return self.records[0].query


PassOn: TypeAlias = Callable[[PendingSearch], None]


class QueryLog:
    """The searches of this process that are not stored yet."""

    def __init__(self, db: Database, pass_on: PassOn | None = None) -> None:
        """``pass_on``: to the process that keeps the log of all, with whom what one types may be spread over others."""
        self._db = db
        self._pass_on = pass_on
        self._pending: list[PendingSearch] = []
        self._dropped = 0
        self._task: asyncio.Task[None] | None = None

    def add(
        self,
        caller: str,
        request: SearchRequest,
        containers: Mapping[str, Readable],
        answer: SearchResponse,
    ) -> None:
        """Note a search for each of its containers that keeps a log. Further pages, pictures and incomplete answers
        without a hit say nothing about the query."""
        query = " ".join(request.query.split())[:MAX_CHARS].strip()
        logged = [c for c in containers.values() if c.manifest.query_log.keep_days is not None]
        incomplete = answer.partial and not answer.hits
        if not logged or not query or request.cursor is not None or incomplete:
            return
        if request.as_you_type and len(query) < MIN_TYPED_CHARS:
            return
        now = asyncio.get_running_loop().time()
        search = PendingSearch(
            caller,
            tuple(_record(c, query, request, len(containers), answer) for c in logged),
            request.as_you_type,
            now + (SETTLE_SECONDS if request.as_you_type else 0.0),
        )
        if self._pass_on is None:
            self._keep(search)
        else:
            self._pass_on(search)

    def receive(self, fields: dict[str, Any]) -> None:
        """Note a search of another process, as JSON."""
        records = tuple(
            QueryRecord(**{**record, "at": datetime.fromisoformat(record["at"])})
            for record in fields.pop("records")
        )
        self._keep(PendingSearch(records=records, **fields))

    def _keep(self, search: PendingSearch) -> None:
        self._replace_typed(search)
        if len(self._pending) >= MAX_PENDING:
            self._dropped += 1
            return
        self._pending.append(search)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_all(), name="query-log")

    async def flush(self) -> None:
        """Store everything, also what is still typed."""
        while self._pending:
            batch = self._pending[:SEARCHES_PER_BATCH]
            await self._store(batch)

    async def close(self) -> None:
        """Store what is left, before the process ends."""
        if self._task is not None:
            await ended(self._task)
        try:
            await self.flush()
        except LatentError as error:
            logger.warning("query_log_not_stored", extra={"cause": error.message})

    def _replace_typed(self, search: PendingSearch) -> None:
        """Drop what the same caller had typed on the way to this query, or before shortening it."""
        for place in range(len(self._pending) - 1, -1, -1):
            before = self._pending[place]
            if before.caller != search.caller:
                continue
            if before.typed and _same_typing(before.query.lower(), search.query.lower()):
                del self._pending[place]
            return

    async def _store_all(self) -> None:
        """Store what is due, until nothing is left."""
        now = asyncio.get_running_loop().time
        while self._pending:
            await asyncio.sleep(SECONDS_BETWEEN_BATCHES)
            try:
                while due := [s for s in self._pending if s.due <= now()][:SEARCHES_PER_BATCH]:
                    await self._store(due)
            except LatentError as error:
                logger.warning("query_log_not_stored", extra={"cause": error.message})
            if self._dropped:
                logger.warning("query_log_overflow", extra={"searches": self._dropped})
                self._dropped = 0

    async def _store(self, batch: list[PendingSearch]) -> None:
        records = [record for search in batch for record in search.records]
        async with self._db.transaction() as conn:
            await query_log.insert(conn, records)
        stored = {id(search) for search in batch}
        self._pending = [search for search in self._pending if id(search) not in stored]


def _same_typing(before: str, now: str) -> bool:
    return now.startswith(before) or before.startswith(now)


def _record(
    container: Readable,
    query: str,
    request: SearchRequest,
    containers: int,
    answer: SearchResponse,
) -> QueryRecord:
    relevances = [hit.relevance for hit in answer.hits if hit.relevance is not None]
    mode = request.requested_mode or container.manifest.retrieval.mode_default
    limits = (request.all_filters, request.must_terms, request.regexes, request.path_like)
    return QueryRecord(
        container_id=container.id,
        at=datetime.now(UTC),
        query=query,
        mode=mode.value,
        filtered=any(limits),
        containers=containers,
        hits=sum(hit.container_id == container.id for hit in answer.hits),
        all_hits=len(answer.hits),
        relevance=max(relevances, default=None),
    )
