"""Retrieve from one container: run its channels, join on what is live, widen until there is enough."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final
from uuid import UUID

import numpy as np

from latent_core.domain.errors import Issue, IssueCode, LatentError, TimedOut
from latent_core.domain.query import ContainerStatus
from latent_core.registry import chunks, documents
from latent_core.registry.chunks import Allowed
from latent_core.search.channels import Candidates, bm25_channel, vector_channel
from latent_core.search.constraints import Constraint, constraints_of
from latent_core.search.embed import QueryVectors
from latent_core.search.exact import Match, Matches
from latent_core.search.filters import SELECTIVE, STUBBORN
from latent_core.search.fuse import Ranked
from latent_core.search.plan import BM25, DEPTH, EXACT, MAX_DEPTH, ContainerPlan, Plan
from latent_core.search.stores import SearchStores
from latent_core.together import all_or_first_failure

logger = logging.getLogger(__name__)

CHANNEL_SHARE: Final = 0.8
"""Of a container's time: the rest is for the join, so that one late channel never costs the other's hits."""
WIDEN_SHARE: Final = 0.5
"""Of a container's time: after it no search begins that goes deeper."""
LIMIT_SHARE: Final = 0.3
"""Of a container's time: after it a filter that has not named its chunks counts as broad."""
STUBBORN_ROUND: Final = 3


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
    matches: dict[int, Match] = field(default_factory=dict)
    """Ord to what it holds of what was asked for as it is written."""
    path_like: str | None = None

    def add_timing(self, stage: str, seconds: float) -> None:
        timings = self.status.timings_ms
        timings[stage] = round(timings.get(stage, 0.0) + seconds * 1000, 3)


class ContainerSearch:
    """One container's part of one search. ``more()`` may be called again to widen."""

    def __init__(
        self,
        stores: SearchStores,
        plan: Plan,
        part: ContainerPlan,
        vectors: QueryVectors,
        waited: float = 0.0,
    ) -> None:
        """``waited``: seconds of its time that are spent already."""
        self._stores = stores
        self._plan = plan
        self._part = part
        self._vectors = vectors
        now, left = asyncio.get_running_loop().time(), plan.deadline_seconds - waited
        self._deadline = now - waited + CHANNEL_SHARE * plan.deadline_seconds
        self._widen_until = min(self._deadline, now + WIDEN_SHARE * left)
        self._limit_until = min(self._deadline, now + LIMIT_SHARE * left)
        self._allowed: Allowed | None = None
        self._limited = False
        self._broad = False
        self._constraints, self._holding = constraints_of(
            part.container.id,
            part.container.languages,
            plan.query,
            plan.matcher,
            stores.phrases,
            stores.exact,
        )
        self._asked_after: list[Constraint] = []
        self._found: dict[str, Candidates] = {}
        self._failed: set[str] = set()
        self._stopped = False
        self._again = False
        self.result = Retrieved(
            part, path_like=plan.matcher.query.path_like if plan.matcher else None
        )
        self.result.status.container_id = part.container.id
        self.result.depth = DEPTH // 2
        self.result.terms = stores.query_terms(plan.query, part.container.languages)

    @property
    def finished(self) -> bool:
        """Nothing more will be found: all is known, or what is not is out of reach."""
        return self._stopped or self.result.status.exhausted

    async def run(self, wanted: int) -> Retrieved:
        """Widen (doubling) until ``wanted`` live candidates are there or there is no more to be had."""
        self.result.status.rounds = 0
        while not self.finished:
            await self.more()
            if self._distinct() >= wanted:
                break
            if self._overtaken():
                self._again = True
                self.look_again()
            else:
                await self._judge(wanted)
        return self.result

    def _overtaken(self) -> bool:
        """Whether a publication may have come between the channels and the join: what they found is gone, and
        what took its place they did not see. Once is enough; afterwards it is points that wait for their purge."""
        return self.finished and self.result.status.stale > 0 and not self._again

    def look_again(self) -> bool:
        """Have the next run ask every channel, as deep as before, if there is time; else it is said that something
        may lack. For what was live at the join and gone when it was to be shown: a channel did not see what took
        its place."""
        if asyncio.get_running_loop().time() > self._widen_until:
            self._tell(
                IssueCode.TIMEOUT,
                "documents changed meanwhile, and there was no time to look again; hits may lack",
            )
            return False
        self._stopped = self._limited = self._broad = False
        self._allowed = None  # the chunks that pass are others now
        self._asked_after.clear()
        self._found.clear()
        self.result.status.exhausted = False
        self.result.depth //= 2
        return True

    async def more(self) -> None:
        """Ask every channel that may know more once again, twice as deep; what was found before stays."""
        self.result.depth *= 2
        self.result.status.rounds += 1
        if not self._limited:
            self._limited = True
            await self._limit(SELECTIVE)
            await self._constrain()
        elif self._broad and self.result.status.rounds == STUBBORN_ROUND:
            await self._limit(STUBBORN)
        asked = self._open_channels()
        judged: dict[int, UUID | None] = {}
        await all_or_first_failure(self._channel(name, judged) for name in asked)
        for earlier in self._found.values():  # of channels that were not asked again, or failed now
            await self._join(earlier, judged)
        self._keep_live(judged)
        status = self.result.status
        status.ok = bool(self._found)
        status.exhausted = set(self._found) == set(self._part.channels) and all(
            c.exhausted for c in self._found.values()
        )
        if self._holding is not None and not self._holding.matches.complete:
            status.exhausted = False
        self._stopped = not self._open_channels()

    def _open_channels(self) -> list[str]:
        """Channels that answered so far and did not give all they have."""
        if self.result.depth > MAX_DEPTH:
            return []
        return [
            name
            for name in self._part.channels
            if name not in self._failed
            and not (name in self._found and self._found[name].exhausted)
        ]

    def _distinct(self) -> int:
        """Live candidates, by document when the answer shows one hit a document."""
        live = self.result.documents
        return len(set(live.values())) if self._plan.dedup else len(live)

    async def _judge(self, wanted: int) -> None:
        """Whether widening can still bring what lacks. A few long documents fill every list; once all of
        them are found there is nothing to look for, and what costs too much time is left."""
        if self._stopped or self.result.status.exhausted:
            return
        if self._plan.dedup:
            async with self._stores.db.reading() as conn:
                there = await documents.live_count(conn, self._part.container.id, wanted)
            self.result.status.exhausted = self._distinct() >= there
        if not self.finished and asyncio.get_running_loop().time() > self._widen_until:
            self._stopped = True
            self._tell(
                IssueCode.TIMEOUT, "fewer hits than asked for were found in time; there may be more"
            )

    async def _limit(self, most: int) -> None:
        """Learn which chunks a selective filter lets through. One that is broad, or takes long to say, is
        asked of the candidates instead."""
        if not self._part.condition:
            return
        begun = perf_counter()
        with suppress(TimeoutError, TimedOut):
            async with asyncio.timeout_at(self._limit_until), self._stores.db.reading() as conn:
                allowed = await chunks.allowed(
                    conn,
                    self._part.container.id,
                    self._part.condition,
                    most,
                    stored_in=self._part.container.space.stored_in,
                )
            self._allowed = allowed if allowed.complete else None
            self._broad = not allowed.complete
        self.result.add_timing("filter", perf_counter() - begun)

    async def _constrain(self) -> None:
        """Narrow what is looked for to the chunks that meet the constraints; those that cannot name theirs are
        asked of the candidates."""
        if not self._constraints:
            return
        begun = perf_counter()
        among = None if self._allowed is None else self._allowed.ords
        narrowed = False
        for constraint in self._constraints:
            found = await constraint.all(among, self._time_left())
            if found is None:
                self._asked_after.append(constraint)
            else:
                among, narrowed = found, True
        if narrowed and among is not None:
            self._broad = False
            async with self._stores.db.reading() as conn:
                self._allowed = await chunks.points_of(
                    conn,
                    self._part.container.id,
                    among,
                    stored_in=self._part.container.space.stored_in,
                )
        if self._holding is not None:
            self.result.matches = self._holding.matches.by_ord
        self.result.add_timing("constraints", perf_counter() - begun)

    def _time_left(self) -> float:
        """Until the channels' deadline."""
        return max(0.001, self._deadline - asyncio.get_running_loop().time())

    async def _channel(self, name: str, judged: dict[int, UUID | None]) -> None:
        """Find candidates and join them on what is live, while the other channel is still at work."""
        candidates = await self._candidates(name)
        if candidates is not None:
            self._found[name] = candidates
            await self._join(candidates, judged)

    async def _candidates(self, name: str) -> Candidates | None:
        if self._allowed is not None and not len(self._allowed.ords):
            return Candidates(np.empty(0, np.int64), np.empty(0, np.float64), exhausted=True)
        if name == EXACT:
            return self._matching()
        if name == BM25:
            search = bm25_channel(
                self._stores.keywords,
                self._part.container,
                self.result.terms,
                self.result.depth,
                self._allowed,
                self._time_left(),
            )
        else:
            search = self._vector()
        return await self._guarded(name, search)

    def _matching(self) -> Candidates:
        """What the exact constraint found, all of it at once."""
        matches = self._holding.matches if self._holding is not None else Matches(complete=True)
        if matches.late:
            self._tell(IssueCode.TIMEOUT, "not all chunks could be read in time", EXACT)
        ranked = matches.ranked()
        return Candidates(
            np.array([m.ord for m in ranked], np.int64),
            np.array([m.count for m in ranked], np.float64),
            exhausted=True,
        )

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
        self._failed.add(channel)
        self._tell(code, message, channel)
        logger.warning(
            "channel_failed",
            extra={
                "container_id": self._part.container.id,
                "channel": channel,
                "cause": message,
            },
        )

    def _tell(self, code: IssueCode, message: str, channel: str | None = None) -> None:
        container = self._part.container.id
        where = f"container '{container}'" + (f", channel {channel}" if channel else "")
        self.result.status.issue = message
        self.result.issues.append(
            Issue(
                code=code,
                message=f"{where}: {message}",
                details={"container_id": container, "channel": channel},
            )
        )

    async def _join(self, found: Candidates, judged: dict[int, UUID | None]) -> None:
        """Note for each ord its document, or None when it is not visible. What ``judged`` knows is not asked
        again: it is of one round, the next begins anew."""
        begun = perf_counter()
        unknown = [ord_ for ord_ in found.ords.tolist() if ord_ not in judged]
        if not unknown:
            return
        ords = np.array(unknown, dtype=np.int64)
        async with self._stores.db.reading() as conn:
            live = await chunks.live(conn, self._part.container.id, ords, self._part.condition)
        live = await self._meeting_constraints(live)
        judged.update((ord_, live.get(ord_)) for ord_ in unknown)
        self.result.add_timing("join", perf_counter() - begun)

    async def _meeting_constraints(self, live: dict[int, UUID]) -> dict[int, UUID]:
        """Those that meet what could not be named beforehand; what cannot be checked in time is not shown."""
        try:
            for constraint in self._asked_after if live else ():
                kept = await constraint.passing(np.array(list(live), np.int64), self._time_left())
                live = {ord_: doc_id for ord_, doc_id in live.items() if ord_ in kept}
        except TimedOut as error:
            self._tell(error.code, error.message)
            return {}
        return live

    def _keep_live(self, judged: Mapping[int, UUID | None]) -> None:
        live = {ord_: doc_id for ord_, doc_id in judged.items() if doc_id is not None}
        self.result.documents = live
        self.result.lists = {
            name: _live_only(candidates, live) for name, candidates in self._found.items()
        }
        self.result.status.candidates = len(judged)
        self.result.status.stale = len(judged) - len(live)


def _live_only(candidates: Candidates, live: Mapping[int, UUID]) -> Ranked:
    pairs = [
        (o, s)
        for o, s in zip(candidates.ords.tolist(), candidates.scores.tolist(), strict=True)
        if o in live
    ]
    return Ranked(ords=[o for o, _ in pairs], scores=[s for _, s in pairs])
