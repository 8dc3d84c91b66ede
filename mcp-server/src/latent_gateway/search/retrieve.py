"""Retrieve from one container: run its channels, join on what is live, widen until there is enough."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final
from uuid import UUID

import numpy as np

from latent_core.domain.errors import Issue, IssueCode, LatentError
from latent_core.domain.query import ContainerStatus
from latent_core.registry import chunks
from latent_core.registry.chunks import Allowed
from latent_gateway.search.channels import Candidates, bm25_channel, vector_channel
from latent_gateway.search.embed import QueryVectors
from latent_gateway.search.filters import SELECTIVE
from latent_gateway.search.fuse import Ranked
from latent_gateway.search.plan import BM25, DEPTH, MAX_DEPTH, ContainerPlan, Plan
from latent_gateway.search.stores import Stores

logger = logging.getLogger(__name__)

CHANNEL_SHARE: Final = 0.8
"""Of a container's time: the rest is for the join, so that one late channel never costs the other's hits."""


@dataclass
class Retrieved:
    """Live candidates of one container, a list a channel, and how they were found."""

    plan: ContainerPlan
    lists: dict[str, Ranked] = field(default_factory=dict)
    documents: dict[int, UUID] = field(default_factory=dict)
    """Ord to document, of live candidates."""
    status: ContainerStatus = field(
        default_factory=lambda: ContainerStatus(container_id="", ok=True)
    )
    issues: list[Issue] = field(default_factory=list)
    terms: list[str] = field(default_factory=list)
    depth: int = DEPTH

    def add_timing(self, stage: str, seconds: float) -> None:
        timings = self.status.timings_ms
        timings[stage] = round(timings.get(stage, 0.0) + seconds * 1000, 3)


class ContainerSearch:
    """One container's part of one search. ``more()`` may be called again to widen."""

    def __init__(
        self, stores: Stores, plan: Plan, part: ContainerPlan, vectors: QueryVectors
    ) -> None:
        self._stores = stores
        self._plan = plan
        self._part = part
        self._vectors = vectors
        self._deadline = asyncio.get_running_loop().time() + CHANNEL_SHARE * plan.deadline_seconds
        self._allowed: Allowed | None = None
        self._allowed_known = False
        self.result = Retrieved(part)
        self.result.status.container_id = part.container.id
        self.result.depth = DEPTH // 2
        self.result.terms = stores.query_terms(plan.query, part.container.languages)

    @property
    def exhausted(self) -> bool:
        return self.result.status.exhausted or self.result.depth >= MAX_DEPTH

    async def run(self, wanted: int) -> Retrieved:
        """Widen (doubling) until ``wanted`` live candidates are there or nothing is left."""
        self.result.status.rounds = 0
        while not self.exhausted:
            await self.more()
            enough = self._found() >= wanted
            if enough or not self.result.lists:
                break
        return self.result

    async def more(self) -> None:
        """Run every channel once, twice as deep as before."""
        self.result.depth *= 2
        self.result.status.rounds += 1
        await self._limit()
        names = self._part.channels
        answers = await asyncio.gather(*(self._channel(name) for name in names))
        found = {name: c for name, c in zip(names, answers, strict=True) if c is not None}
        await self._join(found)
        self.result.status.ok = bool(found)
        self.result.status.exhausted = all(c.exhausted for c in found.values())

    def _found(self) -> int:
        """Live candidates, by document when the answer shows one hit a document."""
        documents = self.result.documents
        return len(set(documents.values())) if self._plan.dedup else len(documents)

    async def _limit(self) -> None:
        if self._allowed_known or not self._plan.condition:
            return
        async with self._stores.db.transaction() as conn:
            allowed = await chunks.allowed(
                conn, self._part.container.id, self._plan.condition, SELECTIVE
            )
        self._allowed = allowed if allowed.complete else None
        self._allowed_known = True

    async def _channel(self, name: str) -> Candidates | None:
        if self._allowed is not None and not len(self._allowed.ords):
            return Candidates(np.empty(0, np.int64), np.empty(0, np.float64), exhausted=True)
        if name == BM25:
            search = bm25_channel(
                self._stores.keywords,
                self._part.container,
                self.result.terms,
                self.result.depth,
                self._allowed,
                max(0.001, self._deadline - asyncio.get_running_loop().time()),
            )
        else:
            search = self._vector()
        return await self._guarded(name, search)

    async def _vector(self) -> Candidates:
        vector = await self._vectors.of(self._part.container)
        return await vector_channel(
            self._stores.vectors, self._part.container, vector, self.result.depth, self._allowed
        )

    async def _guarded(self, name: str, search: Awaitable[Candidates]) -> Candidates | None:
        """A channel that fails or is late makes the answer partial; it never fails the others."""
        begun = perf_counter()
        try:
            async with asyncio.timeout_at(self._deadline):
                return await search
        except TimeoutError:
            self._fail(
                name,
                IssueCode.TIMEOUT,
                "was not done within its deadline; the answer lacks its candidates",
            )
        except LatentError as error:
            self._fail(name, error.code, error.message)
        finally:
            self.result.add_timing(name, perf_counter() - begun)
        return None

    def _fail(self, channel: str, code: IssueCode, message: str) -> None:
        container = self._part.container.id
        self.result.status.issue = f"{channel}: {message}"
        self.result.issues.append(
            Issue(
                code=code,
                message=f"container '{container}', channel {channel}: {message}",
                details={"container_id": container, "channel": channel},
            )
        )
        logger.warning(
            "channel_failed",
            extra={"container_id": container, "channel": channel, "cause": message},
        )

    async def _join(self, found: Mapping[str, Candidates]) -> None:
        begun = perf_counter()
        ords = (
            np.unique(np.concatenate([c.ords for c in found.values()]))
            if found
            else np.empty(0, np.int64)
        )
        live: dict[int, UUID] = {}
        if len(ords):
            async with self._stores.db.transaction() as conn:
                live = await chunks.live(conn, self._part.container.id, ords, self._plan.condition)
        self.result.documents = live
        self.result.lists = {
            name: _live_only(candidates, live) for name, candidates in found.items()
        }
        self.result.status.candidates = len(ords)
        self.result.status.stale = len(ords) - len(live)
        self.result.add_timing("join", perf_counter() - begun)


def _live_only(candidates: Candidates, live: Mapping[int, UUID]) -> Ranked:
    pairs = [
        (o, s)
        for o, s in zip(candidates.ords.tolist(), candidates.scores.tolist(), strict=True)
        if o in live
    ]
    return Ranked(ords=[o for o, _ in pairs], scores=[s for _, s in pairs])
