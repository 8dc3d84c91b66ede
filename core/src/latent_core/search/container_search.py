"""Retrieve from one container: run its channels, join on live documents, widen until there are enough candidates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Final
from uuid import UUID

import numpy as np

from latent_core.bm25.literal import LiteralPhrase
from latent_core.bm25.phrases import Phrases
from latent_core.db.documents import chunks, documents
from latent_core.db.documents.chunks import AllowedChunks
from latent_core.domain.errors import Issue, IssueCode, LatentError, TimedOut
from latent_core.runtime.tasks import all_or_first_failure
from latent_core.search.circuit_breaker import UNANSWERED
from latent_core.search.constraints import (
    SELECTIVE,
    STUBBORN,
    Constraint,
    constraints_of,
    quoted,
)
from latent_core.search.embed import QueryVectors
from latent_core.search.exact import Match, Matcher, Matches
from latent_core.search.fuse import RankedList
from latent_core.search.keywords import QueryKeywords
from latent_core.search.live_join import LiveJoin
from latent_core.search.plan import (
    BM25,
    EXACT,
    SUMMARIES,
    VECTOR,
    ContainerPlan,
    SearchPlan,
    is_foreign,
)
from latent_core.search.readable import SearchStores
from latent_core.search.relevance import CosineScale, WordScale
from latent_core.search.rounds import (
    NO_CHUNKS,
    ChannelCandidates,
    Round,
    SearchScope,
    VectorCandidates,
    bm25_channel,
    vector_channel,
)
from latent_core.search.summaries import for_documents, summary_candidates
from latent_core.search.time_budget import ContainerBudget
from latent_core.vectors.port import NO_COLLECTION
from latent_core.wire.search import ContainerStatus

STUBBORN_ROUND: Final = 3


@dataclass
class ContainerCandidates:
    """Live candidates of one container, one list per channel, and how they were found."""

    plan: ContainerPlan
    lists: dict[str, RankedList[int]] = field(default_factory=dict)
    documents: dict[int, UUID] = field(default_factory=dict)
    """Document of each live candidate, by chunk_no."""
    status: ContainerStatus = field(
        default_factory=lambda: ContainerStatus(container_id="", ok=True)
    )
    issues: list[Issue] = field(default_factory=list)
    terms: list[str] = field(default_factory=list)
    matches: dict[int, Match] = field(default_factory=dict)
    """Exact matches of each chunk, by chunk_no."""
    path_like: str | None = None
    matcher: Matcher | None = None
    """Of the exact query."""
    phrases: tuple[LiteralPhrase, ...] = ()
    """The quoted phrases of the query."""
    words: WordScale | None = None
    """Of the BM25 scores."""
    cosine_scale: CosineScale | None = None
    """Of its cosines, if those of another embedding model are compared with them."""
    ends: dict[str, float] = field(default_factory=dict)
    """The last score of each list that goes on; no candidate missing in it has more."""

    def add_timing(self, stage: str, seconds: float) -> None:
        timings = self.status.timings_ms
        timings[stage] = round(timings.get(stage, 0.0) + seconds * 1000, 3)


class ContainerSearch:
    """One container's part of one search. ``run`` may be called again to widen."""

    def __init__(
        self,
        stores: SearchStores,
        plan: SearchPlan,
        part: ContainerPlan,
        vectors: QueryVectors,
        keywords: QueryKeywords,
        joins: LiveJoin | None = None,
        spent: float = 0.0,
    ) -> None:
        """``joins``: shared with the searches of other containers. ``spent``: seconds of its deadline that have already
        passed."""
        self._joins = joins
        self._stores = stores
        self._plan = plan
        self._part = part
        self._vectors = vectors
        self._keywords = keywords
        self._budget = ContainerBudget.start(plan.deadline_seconds, spent=spent)
        self._constraints, self._exact_constraint = constraints_of(
            part.container.id,
            part.container.languages,
            plan.query,
            plan.matcher,
            stores.phrases,
            stores.exact,
        )
        self._round = Round()
        self._nearest_by_depth: dict[int, asyncio.Task[VectorCandidates]] = {}
        self.result = ContainerCandidates(
            part,
            path_like=plan.matcher.query.path_like if plan.matcher else None,
            matcher=plan.matcher,
            phrases=Phrases.of(quoted(plan.query), ()).literal,
        )
        self.result.status.container_id = part.container.id
        self.result.terms = keywords.words.in_texts(part.container.id)

    @property
    def finished(self) -> bool:
        """Further rounds find nothing new: every channel is exhausted or stopped."""
        return self._round.is_last

    async def run(self, needed: int) -> ContainerCandidates:
        """Double the depth until there are ``needed`` live candidates or no channel has more."""
        self._round = replace(self._round, number=0)
        self.result.status.rounds = 0
        while not self.finished:
            self._keep(await self._next(self._round))
            if self._distinct() >= needed:
                break
            this = self._round
            if this.is_last and self.result.status.stale and not this.is_repeat:
                # A publication may have committed between the channels and the join: their candidates are then dead,
                # and they missed the new generation. One repeat is enough: what is stale after it waits for a purge.
                self._round = replace(this, is_repeat=True)
                self.restart_round()
            else:
                self._round = await self._widened(this, needed)
                self.result.status.exhausted = self._round.exhausted
        return self.result

    @property
    def scope(self) -> SearchScope | None:
        """What was searched; None if it is not known, because time ran out before the constraints were checked."""
        exact = self._exact_constraint
        return None if exact is not None and exact.matches.late else self._round.scope

    def restart_round(self) -> bool:
        """Make the next round query every channel again; without time for it, report that hits may be missing.

        Needed when a document was live at the join and replaced before hydration: the channels missed its new generation.
        """
        if self._budget.widening.is_over:
            self._report(
                IssueCode.TIMEOUT,
                "Documents changed during the search; some hits may be missing.",
            )
            return False
        self._keywords.renew(self._part.container.id)
        self._nearest_by_depth.clear()
        self._round = self._round.again()
        self.result.status.exhausted = False
        return True

    async def _next(self, last: Round) -> Round:
        """Query every channel that may have more, twice as deep as before; earlier candidates stay."""
        self.result.status.rounds = last.number + 1
        deeper = replace(last, number=last.number + 1, depth=2 * last.depth)
        scope = await self._scope(deeper)
        deeper = replace(deeper, scope=scope)
        names = deeper.open_channels(self._part.channels)
        judged: dict[int, UUID | None] = {}

        async def ask(name: str) -> tuple[str, ChannelCandidates | None]:
            """Join a channel's candidates while the other channel is still running."""
            candidates = await self._candidates(name, deeper.depth, scope)
            if candidates is not None:
                await self._join(candidates, scope, judged)
            return name, candidates

        answers = await all_or_first_failure(ask(name) for name in names)
        found = {**last.found, **{name: c for name, c in answers if c is not None}}
        for earlier in found.values():  # of channels that were not queried again or failed now
            await self._join(earlier, scope, judged)
        failed = last.failed | {name for name, c in answers if c is None}
        this = replace(deeper, found=found, failed=failed, judged=judged)
        return replace(
            this,
            exhausted=self._is_all(found),
            stopped=not this.open_channels(self._part.channels),
        )

    def _is_all(self, found: Mapping[str, ChannelCandidates]) -> bool:
        if self._exact_constraint is not None and not self._exact_constraint.matches.complete:
            return False
        return set(found) == set(self._part.channels) and all(c.exhausted for c in found.values())

    def _keep(self, this: Round) -> None:
        """Copy what is known after a round into the result."""
        self._round = this
        live = this.live
        self.result.documents = live
        self.result.terms = self._keywords.words.in_texts(self._part.container.id)
        lists = {name: _live_only(c, live) for name, c in this.found.items()}
        self.result.lists = for_documents(lists, live, self._part.fusion)
        words = this.found.get(BM25)
        self.result.words = words.words if words is not None else None
        self.result.ends = {
            name: float(c.scores[-1])
            for name, c in this.found.items()
            if not c.exhausted and len(c.scores)
        }
        status = self.result.status
        status.ok = bool(this.found) or self._part.container.is_empty
        status.exhausted = this.exhausted
        status.candidates = len(this.judged)
        status.stale = len(this.judged) - len(live)

    def _distinct(self) -> int:
        """Live candidates, by document when the answer shows one hit per document."""
        live = self.result.documents
        return len(set(live.values())) if self._plan.dedup else len(live)

    async def _widened(self, this: Round, needed: int) -> Round:
        """``this``, marked as the last round when widening cannot help: all documents of the container are found, or
        the time for widening is over. (A few long documents can fill every list.)"""
        if this.is_last:
            return this
        if self._plan.dedup:
            async with self._stores.db.reading() as conn:
                live_count = await documents.live_count(
                    conn, self._part.container.id, needed, superseded=self._plan.include_superseded
                )
            this = replace(this, exhausted=self._distinct() >= live_count)
        if not this.is_last and self._budget.widening.is_over:
            this = replace(this, stopped=True)
            self._report(
                IssueCode.TIMEOUT,
                "Time ran out before all requested hits were found; there may be more.",
            )
        return this

    async def _scope(self, this: Round) -> SearchScope:
        """The scope of the previous round. The first round computes it; a later one again if a broad filter rejects too much."""
        if this.scope is None:
            return await self._constrained(await self._filtered(SELECTIVE))
        if this.scope.is_broad and this.number == STUBBORN_ROUND:
            again = await self._filtered(STUBBORN)
            return replace(again, candidate_checks=this.scope.candidate_checks)
        return this.scope

    async def _filtered(self, limit: int) -> SearchScope:
        """The chunks that a selective filter allows. A broad or slow filter is checked on the candidates instead."""
        if not self._part.condition:
            return SearchScope()
        begun = perf_counter()
        scope = SearchScope()
        with suppress(TimeoutError, TimedOut):
            async with self._budget.filter.limit(), self._stores.db.reading() as conn:
                allowed = await chunks.allowed(
                    conn,
                    self._part.container.id,
                    self._part.condition,
                    limit,
                    collection_id=self._part.container.space.collection_id,
                )
            scope = SearchScope(
                allowed if allowed.complete else None, is_broad=not allowed.complete
            )
        self.result.add_timing("filter", perf_counter() - begun)
        return scope

    async def _constrained(self, scope: SearchScope) -> SearchScope:
        """Restrict the scope to chunks that meet the constraints. A constraint that cannot list its chunks is checked on
        the candidates."""
        if not self._constraints:
            return scope
        begun = perf_counter()
        among = None if scope.allowed is None else scope.allowed.chunk_nos
        after: list[Constraint] = []
        for constraint in self._constraints:
            named = await constraint.all(among, self._budget.channels.remaining())
            if named is None:
                after.append(constraint)
            else:
                among = named
        if len(after) < len(self._constraints) and among is not None:
            async with self._stores.db.reading() as conn:
                allowed = await chunks.points_of(
                    conn,
                    self._part.container.id,
                    among,
                    collection_id=self._part.container.space.collection_id,
                )
            scope = SearchScope(allowed)
        if self._exact_constraint is not None:
            self.result.matches = self._exact_constraint.matches.by_chunk_no
        self.result.add_timing("constraints", perf_counter() - begun)
        return replace(scope, candidate_checks=tuple(after))

    async def _candidates(
        self, name: str, depth: int, scope: SearchScope
    ) -> ChannelCandidates | None:
        if scope.is_empty:
            return ChannelCandidates(np.empty(0, np.int64), np.empty(0, np.float64), exhausted=True)
        if name == EXACT:
            return self._matching()
        if name == BM25:
            search = bm25_channel(
                self._keywords,
                self._part.container,
                depth,
                scope.allowed,
                self._budget.channels.remaining(),
            )
        elif name == SUMMARIES:
            search = self._summaries(depth, scope.allowed)
        else:
            search = self._originals(depth, scope.allowed)
        return await self._guarded(name, search)

    def _matching(self) -> ChannelCandidates:
        """All matches of the exact constraint."""
        matches = (
            self._exact_constraint.matches
            if self._exact_constraint is not None
            else Matches(complete=True)
        )
        if matches.late:
            self._report(
                IssueCode.TIMEOUT,
                "Time ran out before all chunks were read; some matches may be missing.",
                EXACT,
            )
        ranked = matches.ranked()
        return ChannelCandidates(
            np.array([m.chunk_no for m in ranked], np.int64),
            np.array([m.count for m in ranked], np.float64),
            exhausted=True,
        )

    async def _originals(self, depth: int, allowed: AllowedChunks | None) -> ChannelCandidates:
        return (await self._nearest(depth, allowed)).originals

    async def _summaries(self, depth: int, allowed: AllowedChunks | None) -> ChannelCandidates:
        """By the answer of the vector engine to the vector channel, if that has one, and by keywords."""
        container = self._part.container
        near: ChannelCandidates | None = None
        scale: CosineScale | None = None
        by_words = BM25 in self._part.channels and is_foreign(container)
        if VECTOR in self._part.channels and not by_words:
            with suppress(LatentError, TimeoutError):  # reported by the vector channel
                near = (await self._nearest(depth, allowed)).summaries
                scale = await self._stores.cosine_scales.of(container)
        words = await self._keywords.best_summaries(
            container.id, depth, self._budget.channels.remaining()
        )
        return summary_candidates(near, words, depth, scale)

    async def _nearest(self, depth: int, allowed: AllowedChunks | None) -> VectorCandidates:
        """One search of the vector engine for the vector channel and that of summaries, if both are searched."""
        if SUMMARIES not in self._part.channels:
            return await self._search_vectors(depth, allowed)
        task = self._nearest_by_depth.get(depth)
        if task is None:
            task = asyncio.create_task(self._search_in_time(depth, allowed))
            # Both channels may have given up before it fails.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._nearest_by_depth[depth] = task
        return await asyncio.shield(task)

    async def _search_in_time(self, depth: int, allowed: AllowedChunks | None) -> VectorCandidates:
        async with self._budget.channels.limit():
            return await self._search_vectors(depth, allowed)

    async def _search_vectors(self, depth: int, allowed: AllowedChunks | None) -> VectorCandidates:
        container, index = self._part.container, self._stores.vectors
        vector = await self._vectors.of(container)
        summaries = NO_CHUNKS
        if container.has_summaries:
            summaries = await self._keywords.summaries(
                container.id, self._budget.channels.remaining()
            )
        return await self._stores.breakers.of("qdrant").run(
            lambda _: vector_channel(index, container, vector, depth, allowed, summaries),
            self._budget.channels,
            self._plan,
            lambda _: index.count(NO_COLLECTION),
        )

    async def _guarded(
        self, name: str, search: Awaitable[ChannelCandidates]
    ) -> ChannelCandidates | None:
        """Candidates of a channel, or None if it fails or is late: the answer is then partial, and other channels go on."""
        begun = perf_counter()
        try:
            async with self._budget.channels.limit():
                found = await search
        except TimeoutError:
            late = "The deadline passed before it finished; its candidates are missing."
            self._report(IssueCode.TIMEOUT, late, name)
        except LatentError as error:
            self._report(error.code, error.message, name)
            if not isinstance(error, UNANSWERED):  # which the circuit breaker logs once
                self._stores.channel_outages.failed(name, self._part.container.id, error)
        else:
            self._stores.channel_outages.succeeded(name)
            return found
        finally:
            self.result.add_timing(name, perf_counter() - begun)
        return None

    def _report(self, code: IssueCode, message: str, channel: str | None = None) -> None:
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

    async def _join(
        self, found: ChannelCandidates, scope: SearchScope, judged: dict[int, UUID | None]
    ) -> None:
        """Add each chunk_no to ``judged`` with its document, or None if it is not visible. Known ones are not read
        again: ``judged`` belongs to one round."""
        begun = perf_counter()
        unknown = [chunk_no for chunk_no in found.chunk_nos.tolist() if chunk_no not in judged]
        if not unknown:
            return
        live = await self._visible(unknown)
        live = await self._meeting_constraints(live, scope)
        judged.update((chunk_no, live.get(chunk_no)) for chunk_no in unknown)
        self.result.add_timing("join", perf_counter() - begun)

    async def _visible(self, chunk_nos: list[int]) -> dict[int, UUID]:
        """Those that are visible and pass the filter, each with its document."""
        container_id, condition = self._part.container.id, self._part.condition
        if self._joins is not None and condition.where is None:
            return await self._joins.of(container_id, chunk_nos)
        async with self._stores.db.reading() as conn:
            return await chunks.live(
                conn,
                container_id,
                np.array(chunk_nos, dtype=np.int64),
                condition,
                superseded=self._plan.include_superseded,
            )

    async def _meeting_constraints(
        self, live: dict[int, UUID], scope: SearchScope
    ) -> dict[int, UUID]:
        """Chunks that meet the constraints that had no list of chunks; none when time runs out."""
        try:
            for constraint in scope.candidate_checks if live else ():
                chunk_nos = np.array(list(live), np.int64)
                kept = await constraint.passing(chunk_nos, self._budget.channels.remaining())
                live = {chunk_no: doc_id for chunk_no, doc_id in live.items() if chunk_no in kept}
        except TimedOut as error:
            self._report(error.code, error.message)
            return {}
        return live


def _live_only(candidates: ChannelCandidates, live: Mapping[int, UUID]) -> RankedList[int]:
    kept = [n for n, chunk_no in enumerate(candidates.chunk_nos.tolist()) if chunk_no in live]
    common = candidates.common
    return RankedList(
        candidates.chunk_nos[kept].tolist(),
        candidates.scores[kept].tolist(),
        None if common is None else common[kept].tolist(),
    )
