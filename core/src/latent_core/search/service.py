"""One search from request to answer: plan → retrieve → fuse → dedup → hydrate → render."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence, Set
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import deadline
from latent_core.db.containers import Container
from latent_core.db.documents import duplicates
from latent_core.domain.chunk import Modality
from latent_core.domain.errors import Issue, IssueCode
from latent_core.runtime.tasks import all_or_first_failure
from latent_core.search.container_search import ContainerCandidates, ContainerSearch
from latent_core.search.diagnose import diagnose
from latent_core.search.embed import FixedEmbedder, QueryImage, QueryVectors
from latent_core.search.facets import FacetCounts, FacetField, count_facets, facet_fields
from latent_core.search.hydrate import HydratedRows, hydrate
from latent_core.search.judge import judge
from latent_core.search.keywords import QueryKeywords
from latent_core.search.like import LikeSource
from latent_core.search.limiter import SearchLimiter, SearchSlot, fit
from latent_core.search.live_join import LiveJoin
from latent_core.search.merge import fused, models_of
from latent_core.search.plan import (
    BM25,
    SUMMARIES,
    VECTOR,
    ContainerPlan,
    SearchPlan,
    SearchTarget,
    cursor_at,
    make_plan,
)
from latent_core.search.query_words import query_words, without_half_word
from latent_core.search.ranking import (
    RERANK_SECONDS,
    Group,
    RankedCandidate,
    SearchOrder,
    collapse,
    copies,
    group,
    in_display_order,
)
from latent_core.search.readable import Readable, SearchStores
from latent_core.search.render import LinkSigner, render, with_neighbours
from latent_core.search.thin_text import demote_thin, is_suspect, is_thin
from latent_core.search.time_budget import (
    CHANNELS,
    GRACE_SECONDS,
    JOIN_GRACE_SECONDS,
    PAGE_SECONDS,
    REMOTE_EMBEDDING,
    TimeBudget,
)
from latent_core.telemetry.metrics import Metrics, SearchStage
from latent_core.wire.search import (
    DEFAULT_RERANK_K,
    Diagnostics,
    Hit,
    SearchRequest,
    SearchResponse,
)

SLACK: Final = 5
"""Extra candidates, because some may vanish between join and hydration."""
MAX_ROUNDS: Final = 12
COPIES_AHEAD: Final = 50
"""Documents after a page whose texts are compared with those of the page, if there are several containers."""
TOTAL: Final[SearchStage] = "total"
"""Stage label of the whole search, from plan to answer."""


class StageTimings:
    """Milliseconds per stage."""

    def __init__(self) -> None:
        self._first = self._begun = perf_counter()
        self.stages: dict[str, float] = {}

    def lap(self, stage: SearchStage) -> None:
        now = perf_counter()
        self.stages[stage] = round(self.stages.get(stage, 0.0) + (now - self._begun) * 1000, 3)
        self._begun = now

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return perf_counter() - self._first


@dataclass
class HitPage:
    """The hits of one page, and where the next one begins."""

    documents: list[list[Hit]] = field(default_factory=list)
    """The hits of each document, the best one first; one hit each without dedup."""
    positions: dict[UUID, int] = field(default_factory=dict)
    """Position of each chunk in its document, by chunk id."""
    next_offset: int | None = None
    vanished: set[str] = field(default_factory=set)
    """Containers with a hit that vanished before hydration."""
    has_thin: bool = False
    """A thin text is shown that would lose its place."""
    issues: list[Issue] = field(default_factory=list)
    """Of ``min_score``."""

    @property
    def hits(self) -> list[Hit]:
        return [hit for hits in self.documents for hit in hits]


@dataclass
class SearchService:
    """Answers searches over containers that the principal may read."""

    stores: SearchStores
    links: LinkSigner
    deadline_seconds: float
    metrics: Metrics
    limiter: SearchLimiter

    async def search(
        self,
        request: SearchRequest,
        readable: Mapping[str, Readable],
        image: QueryImage | None = None,
        target: SearchTarget | None = None,
        like: LikeSource | None = None,
        *,
        corrects: bool = True,
    ) -> SearchResponse:
        """Answer a request. ``image``: the resolved ``image_ref``. ``target``: the space to search if not the live one.
        ``like``: the resolved ``like``. ``corrects``: whether misspelt words are replaced."""
        timings = StageTimings()
        plan = make_plan(
            request,
            readable,
            list(readable),
            self.deadline_seconds,
            image.text if image is not None else "",
            seen=image is not None and image.picture is not None,
            target=target,
            like=like,
            offered=self.stores.rerankers.offered,
        )
        fields = facet_fields(request.facets, [c.manifest for c in readable.values()])
        if image is not None and not any(part.channels for part in plan.containers):
            return _with_image(SearchResponse(), image)
        with deadline(plan.deadline_seconds):
            words = await query_words(self.stores, plan, corrects=corrects)
        plan = without_half_word(plan, words)
        seen = image.picture if image is not None else None
        embedders = self.stores.embedders if target is None else FixedEmbedder(target.embedder)
        vectors = QueryVectors(
            embedders,
            self.stores.queries,
            self.stores.breakers,
            TimeBudget.start(plan.deadline_seconds).share(CHANNELS),
            words.embedded,
            seen,
            like,
        )
        timings.lap("plan")
        order = SearchOrder(self.stores, plan)
        worded = [part.container.id for part in _with_channel(plan, BM25)]
        summarised = [c.id for c in _by_meaning(plan) if c.has_summaries]
        summarised += [part.container.id for part in _with_channel(plan, SUMMARIES)]
        keywords = QueryKeywords(self.stores, words, worded, set(summarised))
        several = len(plan.containers) > 1
        joins = LiveJoin(self.stores.db, superseded=plan.include_superseded) if several else None
        try:
            waited = await vectors.from_remote(
                _by_meaning(plan), REMOTE_EMBEDDING * plan.deadline_seconds
            )
            async with self.limiter.slot(exact=plan.matcher is not None) as slot:
                timings.lap("turn")
                searches = [
                    ContainerSearch(self.stores, plan, part, vectors, keywords, joins, waited)
                    for part in plan.containers
                ]
                with deadline(_postgres_seconds(plan, order)):
                    page, retrieved = await self._rounds(plan, searches, order, timings, slot)
                facets = await self._facets(fields, plan, searches, timings)
        finally:
            if joins is not None:
                await joins.close()
            await keywords.close()
            await vectors.close()
        timings.stages["embed"] = round(vectors.milliseconds, 3)
        if order.milliseconds:
            timings.stages["rerank"] = order.milliseconds
        answer = _answer(request, plan, order, page, retrieved, timings)
        answer = _with_issues(answer, [one.issue() for one in keywords.words.corrections])
        answer = _with_issues(answer, [order.hint] if order.hint else [])
        if facets is not None:
            answer = _with_facets(answer, facets)
        if image is not None:
            answer = _with_image(answer, image)
        self._measure(retrieved, timings)
        return answer

    async def _facets(
        self,
        fields: Mapping[str, FacetField],
        plan: SearchPlan,
        searches: Sequence[ContainerSearch],
        timings: StageTimings,
    ) -> FacetCounts | None:
        if not fields:
            return None
        counts = await count_facets(self.stores, plan, searches, fields)
        timings.lap("facets")
        return counts

    def _measure(self, retrieved: Sequence[ContainerCandidates], timings: StageTimings) -> None:
        self.metrics.candidates.inc(sum(r.status.candidates for r in retrieved))
        self.metrics.stale.inc(sum(r.status.stale for r in retrieved))
        for stage, spent in timings.stages.items():
            self.metrics.search_seconds.labels(stage).observe(spent / 1000)
        self.metrics.search_seconds.labels(TOTAL).observe(timings.total)

    async def _rounds(
        self,
        plan: SearchPlan,
        searches: Sequence[ContainerSearch],
        order: SearchOrder,
        timings: StageTimings,
        slot: SearchSlot,
    ) -> tuple[HitPage, list[ContainerCandidates]]:
        """Retrieve and hydrate until the page is full or no candidates remain (DESIGN §7.2)."""
        needed = max(plan.offset + plan.top_k + SLACK, plan.rerank.head)
        page = HitPage()
        retrieved: list[ContainerCandidates] = []
        for _ in range(MAX_ROUNDS):
            retrieved = await asyncio.gather(*(_bounded(s, needed, plan) for s in searches))
            timings.lap("retrieve")
            await self._scaled(retrieved)
            candidates = await _ordered(order, retrieved, slot, plan.deadline_seconds)
            judged = await judge(self.stores.cosine_scales, retrieved, candidates, plan.min_score)
            timings.lap("fuse")
            page = await self._demoting_page(plan, judged.candidates, retrieved)
            page.issues = judged.issues(plan.min_score)
            timings.lap("hydrate")
            if _restart_changed(searches, page.vanished):
                continue
            if len(page.documents) >= plan.top_k or judged.nothing_beyond:
                break
            if all(s.finished for s in searches):
                break
            needed *= 2
        if plan.neighbours:
            page.documents = await with_neighbours(
                self.stores.db, page.documents, page.positions, plan.neighbours
            )
        return page, retrieved

    async def _scaled(self, retrieved: Sequence[ContainerCandidates]) -> None:
        """Give containers of different embedding models the scales by which their cosines compare."""
        measured = [r for r in retrieved if VECTOR in r.lists]
        if len(models_of(measured)) > 1:
            scales = self.stores.cosine_scales
            found = await all_or_first_failure([scales.of(r.plan.container) for r in measured])
            for r, scale in zip(measured, found, strict=True):
                r.cosine_scale = scale

    async def _demoting_page(
        self,
        plan: SearchPlan,
        candidates: Sequence[RankedCandidate],
        retrieved: Sequence[ContainerCandidates],
    ) -> HitPage:
        """The page, with thin texts after all others. A reranker has read the texts itself."""
        containers = {r.plan.container.id: r.plan.container for r in retrieved}
        if plan.offset and not plan.rerank.head:
            candidates = await demote_thin(self.stores.db, candidates, containers)
        page = await self._page(plan, _grouped(plan, candidates), retrieved)
        if page.has_thin and not plan.offset and not plan.rerank.head:
            candidates = await demote_thin(self.stores.db, candidates, containers)
            page = await self._page(plan, _grouped(plan, candidates), retrieved)
        return page

    async def _page(
        self, plan: SearchPlan, groups: Sequence[Group], retrieved: Sequence[ContainerCandidates]
    ) -> HitPage:
        """The best groups that are still visible, rendered; the next groups replace those that vanished.

        Duplicates of all groups are read only when a shown group repeats another candidate, or on a later page, since
        earlier pages may have collapsed groups.
        """
        documents = {r.plan.container.id: r.documents for r in retrieved}
        page = HitPage()
        # A text and the one that supersedes it are often alike, and who requests both wants to see both.
        start, collapsed = plan.offset, not plan.dedup or plan.include_superseded
        ready: HydratedRows | None = None
        if len(documents) > 1 and not collapsed:
            groups, ready = await self._without_copies(plan, groups)
        if start and not collapsed:
            groups = collapse(groups, await self._repeated(plan, groups, documents))
            collapsed = True
        while len(page.documents) < plan.top_k and start < len(groups):
            head = groups[start : start + plan.top_k - len(page.documents)]
            found, ready = ready or await hydrate(self.stores.db, head), None
            if not collapsed and _repeats(found, documents):
                groups = collapse(groups, await self._repeated(plan, groups, documents))
                page = HitPage(vanished=page.vanished)
                start, collapsed = plan.offset, True
                continue
            start += len(head)
            page.documents += render(head, found, retrieved, self.links)
            page.vanished |= {g.best.container_id for g in head if found.chunk(g.best) is None}
            page.positions |= {row.id: row.position for row in found.chunks.values()}
            page.has_thin |= _shows_thin(head, found, retrieved)
        page.next_offset = start if start < len(groups) else None
        return page

    async def _without_copies(
        self, plan: SearchPlan, groups: Sequence[Group]
    ) -> tuple[Sequence[Group], HydratedRows | None]:
        """The groups, copies of a text under the best of them, and the rows of the page's groups if there are no copies,
        as is usual: they are read at the same time."""
        head = groups[plan.offset : plan.offset + plan.top_k]
        both: list[Coroutine[Any, Any, Any]] = [
            self._copies(plan, groups),
            hydrate(self.stores.db, head),
        ]
        copied, rows = await all_or_first_failure(both)
        return (collapse(groups, copied), None) if copied else (groups, rows)

    async def _copies(self, plan: SearchPlan, groups: Sequence[Group]) -> dict[UUID, UUID]:
        """Documents whose best chunk has the text of a better one in another container, as far as a page can show them:
        copies rank close to each other, and every page looks further ahead than the one before it."""
        groups = groups[: plan.offset + COPIES_AHEAD + plan.top_k]
        keys = [(g.best.container_id, g.best.chunk_no) for g in groups]
        async with self.stores.db.reading() as conn:
            return copies(groups, await duplicates.content_hashes(conn, keys))

    async def _repeated(
        self, plan: SearchPlan, groups: Sequence[Group], documents: Mapping[str, Mapping[int, UUID]]
    ) -> dict[UUID, UUID]:
        """Each document whose best chunk repeats a candidate of another document, with that document.

        Without the vector channel only identical texts count as duplicates, not texts of the same meaning.
        """
        repeated: dict[UUID, UUID] = {}
        by_meaning = {container.id for container in _by_meaning(plan)}
        for container_id, among in documents.items():
            best = {
                g.best.chunk_no: g.best.doc_id
                for g in groups
                if g.best.container_id == container_id
            }
            async with self.stores.db.reading() as conn:
                originals = await duplicates.originals(
                    conn, container_id, list(best), to_the_letter=container_id not in by_meaning
                )
            repeated |= {
                best[chunk_no]: among[original]
                for chunk_no, original in originals.items()
                if original in among and among[original] != best[chunk_no]
            }
        return repeated


def _grouped(plan: SearchPlan, candidates: Sequence[RankedCandidate]) -> list[Group]:
    head = plan.offset + plan.top_k
    return group(candidates, by_document=plan.dedup, passages=plan.passages, head=head)


def _shows_thin(
    groups: Sequence[Group], found: HydratedRows, retrieved: Sequence[ContainerCandidates]
) -> bool:
    lengths = {r.plan.container.id: r.plan.container.average_length for r in retrieved}
    return any(
        is_thin(row.text, row.language, lengths[one.container_id])
        for g in groups
        for one in (g.best, *g.passages)
        if is_suspect(one)
        and (row := found.chunk(one)) is not None
        and row.modality == Modality.TEXT.value
    )


def _repeats(found: HydratedRows, documents: Mapping[str, Mapping[int, UUID]]) -> bool:
    """Whether one of these chunks repeats a candidate of another document."""
    return any(
        row.original is not None
        and documents[container_id].get(row.original, row.doc_id) != row.doc_id
        for (container_id, _), row in found.chunks.items()
    )


def _postgres_seconds(plan: SearchPlan, order: SearchOrder) -> float:
    """Until Postgres counts as away for a search: no channel replaces it. A remote reranker, and the slot after it,
    have times of their own."""
    rerank = RERANK_SECONDS + plan.deadline_seconds if order.asks_reranker else 0.0
    return plan.deadline_seconds + GRACE_SECONDS + PAGE_SECONDS + rerank


async def _bounded(search: ContainerSearch, needed: int, plan: SearchPlan) -> ContainerCandidates:
    try:
        async with TimeBudget.start(plan.deadline_seconds + GRACE_SECONDS).limit():
            with deadline(plan.deadline_seconds + JOIN_GRACE_SECONDS):
                return await search.run(needed)
    except TimeoutError:
        result, container = search.result, search.result.plan.container.id
        result.status.ok = False
        result.issues.append(
            Issue(
                code=IssueCode.TIMEOUT,
                message=f"Container '{container}' did not answer within {plan.deadline_seconds:g} s.",
                details={"container_id": container},
            )
        )
        return result


def _by_meaning(plan: SearchPlan) -> list[Container]:
    """Containers with the vector channel."""
    return [part.container for part in _with_channel(plan, VECTOR)]


def _with_channel(plan: SearchPlan, channel: str) -> list[ContainerPlan]:
    return [part for part in plan.containers if channel in part.channels]


async def _ordered(
    order: SearchOrder,
    retrieved: Sequence[ContainerCandidates],
    slot: SearchSlot,
    slot_seconds: float,
) -> list[RankedCandidate]:
    """The ranked candidates. While a remote reranker works, the search holds no slot; afterwards it waits up to
    ``slot_seconds`` for one."""
    candidates = fused(retrieved)
    if not order.asks_reranker:
        return await order.of(candidates)
    async with slot.released(slot_seconds):
        return await order.of(candidates)


def _restart_changed(searches: Sequence[ContainerSearch], vanished: Set[str]) -> bool:
    """Restart searches whose documents changed between join and hydration; whether there are any. Otherwise a document
    that is replaced at that moment would be missing in both its versions."""
    again = [s.restart_round() for s in searches if s.result.status.container_id in vanished]
    return any(again)


def _answer(
    request: SearchRequest,
    plan: SearchPlan,
    order: SearchOrder,
    page: HitPage,
    retrieved: Sequence[ContainerCandidates],
    timings: StageTimings,
) -> SearchResponse:
    fitted = fit(in_display_order(plan, page.documents), plan.detail, plan.max_chars)
    timings.lap("render")
    issues = [issue for r in retrieved for issue in r.issues]
    if order.issue is not None:
        issues.append(order.issue)
    partial = bool(issues)
    issues += page.issues
    if not fitted.hits and not issues:
        issues.append(
            Issue(code=IssueCode.NO_HITS, message="Nothing in these containers matches the query.")
        )
    if request.requested_rerank_k not in (None, DEFAULT_RERANK_K) and not plan.rerank.head:
        message = "rerank_k has no effect: the mode is not 'rerank', and no container's manifest enables reranking."
        issues.append(Issue(code=IssueCode.POLICY, message=message))
    diagnostics: Diagnostics | None = (
        diagnose(plan, order, retrieved, page.hits, timings.stages) if plan.diagnostics else None
    )
    return SearchResponse(
        hits=fitted.hits,
        truncated=fitted.truncated,
        next_cursor=_next_cursor(request, plan, page, fitted.documents, retrieved),
        diagnostics=diagnostics,
        partial=partial,
        issues=issues,
        timings=timings.stages,
        exhausted=[r.plan.container.id for r in retrieved if r.status.exhausted],
    )


def _with_image(answer: SearchResponse, image: QueryImage) -> SearchResponse:
    """The answer with the issue and timing of the query image."""
    return answer.model_copy(
        update={
            "issues": [*([image.issue] if image.issue is not None else []), *answer.issues],
            "partial": answer.partial or image.partial,
            "timings": {**answer.timings, "image": image.milliseconds},
        }
    )


def _with_issues(answer: SearchResponse, notes: Sequence[Issue]) -> SearchResponse:
    """The answer with issues that do not make it partial."""
    return answer.model_copy(update={"issues": [*answer.issues, *notes]}) if notes else answer


def _with_facets(answer: SearchResponse, counts: FacetCounts) -> SearchResponse:
    """The answer with its facets; partial if a container was not counted."""
    return answer.model_copy(
        update={
            "facets": counts.facets,
            "issues": [*answer.issues, *counts.issues],
            "partial": answer.partial or bool(counts.issues),
        }
    )


def _next_cursor(
    request: SearchRequest,
    plan: SearchPlan,
    page: HitPage,
    shown: int,
    retrieved: Sequence[ContainerCandidates],
) -> str | None:
    """The cursor of the next page, which begins with documents that did not fit (``shown`` of them did); None when all
    were shown."""
    if shown < len(page.documents):
        return cursor_at(request, plan.offset + shown)
    if page.next_offset is not None:
        return cursor_at(request, page.next_offset)
    more = shown == plan.top_k and not all(r.status.exhausted for r in retrieved)
    return cursor_at(request, plan.offset + shown) if more else None
