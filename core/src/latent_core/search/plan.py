"""The plan of a search: which channels run on which containers, how deep and until when."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

import orjson

from latent_core.bm25.completion import OpenWord
from latent_core.bm25.language import CODE
from latent_core.db.conditions import FilterCondition, both
from latent_core.db.containers import Container, Space
from latent_core.domain import cursors
from latent_core.domain.chunk import Modality
from latent_core.domain.errors import Forbidden, Invalid
from latent_core.domain.filters.model import Column, FilterOp, Node, Test, all_of, any_of
from latent_core.domain.manifest.model import (
    OFFERED_MODES,
    Freshness,
    Fusion,
    FusionMethod,
    SearchMode,
    reads_images,
    reads_language,
)
from latent_core.models.embedding.port import Embedder
from latent_core.models.rerank.resolve import Provider
from latent_core.search.constraints import quoted, read_filters
from latent_core.search.exact import ExactQuery, Matcher
from latent_core.search.like import LikeSource
from latent_core.search.rerank import head_size
from latent_core.wire.search import Detail, SearchRequest

DEPTH: Final = 100
"""Candidates per channel in the first round (CONTRACT "Retrieval")."""
MAX_DEPTH: Final = DEPTH * 2**14

VECTOR: Final = "vector"
BM25: Final = "bm25"
EXACT: Final = "exact"
SUMMARIES: Final = "summaries"
EXACT_SECONDS: Final = 2.5
"""A container's deadline when texts must be read: two seconds for its channels."""
HAS_PAGE_IMAGE: Final = any_of(
    [
        Test(Column.PAGE, FilterOp.EXISTS),
        Test(Column.MODALITY, FilterOp.IN, (Modality.IMAGE.value,)),
    ]
)
"""Mode crossmodal, query by words: chunks on a page (which has an image), and images."""
IMAGE_ONLY: Final = Test(Column.MODALITY, FilterOp.IN, (Modality.IMAGE.value,))
"""Mode crossmodal, query by words, if the embedder reads pictures: chunks embedded as pictures."""
ORIGINALS_ONLY: Final = Test(Column.GENERATED, FilterOp.IN, (False,))
"""``generated: false``."""
TEXT_ONLY: Final = Test(Column.MODALITY, FilterOp.IN, (Modality.TEXT.value,))
"""Mode crossmodal, query by picture, if the embedder reads pictures."""

FOREIGN_WEIGHT: Final = 0.01
"""Weight of the vector channel for languages that the embedder was not trained on: hits of the keyword channel keep
their order, and hits found only by vectors follow."""

CODE_WEIGHT: Final = 2.5
"""Weight of the vector channel with method ``auto`` for source code: a question has few words of the code that answers
it. An identifier in a query still leads, since only few chunks have it."""


def is_foreign(container: Container) -> bool:
    """Whether the embedder was not trained on the languages of most of the container's chunks."""
    counts = container.chunks_by_language
    read = sum(
        chunks
        for language, chunks in counts.items()
        if reads_language(container.space.embedder, language)
    )
    return read * 2 < sum(counts.values())


def is_code(container: Container) -> bool:
    """Whether most of the container's chunks are source code."""
    counts = container.chunks_by_language
    return counts.get(CODE, 0) * 2 > sum(counts.values())


def _vector_weight(container: Container, how: Fusion) -> float | None:
    """By the languages of the container; None where the channels weigh the same."""
    if is_foreign(container):
        return FOREIGN_WEIGHT
    if how.method is FusionMethod.AUTO and is_code(container):
        return CODE_WEIGHT
    return None


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """A space to search instead of the live one, and the embedder for its queries."""

    space: Space
    embedder: Embedder


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """The plan for one container."""

    container: Container
    mode: SearchMode
    channels: tuple[str, ...]
    """None for a container without a live chunk: its embedder is not even looked up."""
    condition: FilterCondition
    """The condition of filter and mode on its chunks."""
    pictured: bool = False
    """Only chunks with an image are searched."""
    by_picture: bool = False
    """The vector channel queries with the picture itself."""
    requested_fusion: Fusion | None = None
    requested_marks: bool | None = None

    @property
    def marks_weak(self) -> bool:
        """Whether hits of a low relevance are marked."""
        if self.requested_marks is not None:
            return self.requested_marks
        return self.container.manifest.retrieval.mark_weak

    @property
    def fusion(self) -> Fusion:
        """The request's fusion, else the manifest's. If it sets no weight for vectors, the container's languages do.

        Between words and pictures cosines stay far below 1, by which ``auto`` would measure them: places count there.
        """
        how = self.requested_fusion or self.container.manifest.retrieval.fusion
        if how.method is FusionMethod.AUTO and (self.by_picture or self._by_words_for_pictures):
            how = how.model_copy(update={"method": FusionMethod.RRF})
        weights = dict(how.weights)
        if SUMMARIES in self.channels:
            weights.setdefault(SUMMARIES, self.container.manifest.summaries.weight)
        weight = None if self.by_picture else _vector_weight(self.container, how)
        if weight is not None:
            weights.setdefault(VECTOR, weight)
        return how if weights == how.weights else how.model_copy(update={"weights": weights})

    @property
    def _by_words_for_pictures(self) -> bool:
        return self.mode is SearchMode.CROSSMODAL and _reads_images(self.container)

    @property
    def freshness(self) -> Freshness:
        return self.container.manifest.retrieval.freshness


@dataclass(frozen=True, slots=True)
class RerankPlan:
    """Size of the head and the provider of the reranker."""

    head: int
    """Candidates; 0 for none."""
    max_hits: int
    """Limit of a reranked answer."""
    provider: Provider


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The plan for one request. ``deadline_seconds`` applies to each container separately."""

    query: str
    """Includes the text of the query image."""
    written: str
    """What a person wrote of the query."""
    open_word: OpenWord | None
    """The last word, which is still being typed."""
    finished: str
    """The query without it."""
    by_image: bool
    like: LikeSource | None
    containers: tuple[ContainerPlan, ...]
    filters: dict[str, Any]
    """The filter as parsed."""
    matcher: Matcher | None
    """The exact query that every hit must match."""
    rerank: RerankPlan
    offset: int
    """Number of hits on earlier pages."""
    top_k: int
    neighbours: int
    detail: Detail
    max_chars: int | None
    explain: bool
    dedup: bool
    include_superseded: bool
    passages: int
    """Limit of hits per document, with dedup."""
    min_score: float | None
    """The lowest relevance of a hit."""
    deadline_seconds: float
    diagnostics: bool


def make_plan(
    request: SearchRequest,
    containers: Mapping[str, Container],
    container_ids: Sequence[str],
    deadline_seconds: float,
    image_text: str = "",
    *,
    seen: bool = False,
    target: SearchTarget | None = None,
    like: LikeSource | None = None,
    offered: Callable[[Provider], bool] = lambda _: True,
) -> SearchPlan:
    """Plan a search over ``container_ids`` (ids that the principal may read, each once).

    ``image_text``: the text of the image of ``image_ref``; it is added to the query. ``seen``: the picture itself is
    available, for embedders that read pictures. ``target``: the space to search. ``like``: the text that results
    resemble. ``offered``: whether there is such a reranker.
    """
    exact = _exact(request)
    query = _joined(request.query, image_text)
    open_word = OpenWord.of(request.query) if request.as_you_type else None
    worded = bool(query.strip())
    if not worded and not exact and request.image_ref is None and like is None:
        raise Invalid(
            "The query is empty. Give at least one word, or image_ref, like, must_terms, regexes or path_like."
        )
    chosen = [containers[c] for c in container_ids]
    if target is not None:
        chosen = [replace(c, space=target.space) for c in chosen]
    plans, filters = _container_plans(
        request, chosen, worded=worded or like is not None, seen=seen, exact=bool(exact)
    )
    if like is not None:
        plans = tuple(replace(p, condition=both(p.condition, like.others)) for p in plans)
    reranked = _rerank(request, plans, offered) if worded else RerankPlan(0, 0, "none")
    return SearchPlan(
        query=query,
        written=request.query,
        open_word=open_word,
        finished=_joined(request.query[: open_word.start], image_text) if open_word else query,
        by_image=bool(image_text),
        like=like,
        containers=plans,
        filters=filters,
        matcher=Matcher(exact) if exact else None,
        rerank=reranked,
        offset=offset_of(request),
        top_k=min(request.top_k, reranked.max_hits) if reranked.head else request.top_k,
        neighbours=request.neighbours,
        detail=request.detail,
        max_chars=request.max_chars,
        explain=request.explain,
        dedup=request.dedup,
        include_superseded=request.include_superseded,
        passages=request.passages,
        min_score=request.min_score,
        deadline_seconds=max(deadline_seconds, EXACT_SECONDS) if exact else deadline_seconds,
        diagnostics=_shows_diagnostics(request, chosen),
    )


def _joined(written: str, image_text: str) -> str:
    return f"{written}\n{image_text}".strip() if image_text else written


def _container_plans(
    request: SearchRequest,
    chosen: Sequence[Container],
    *,
    worded: bool,
    seen: bool,
    exact: bool,
) -> tuple[tuple[ContainerPlan, ...], dict[str, Any]]:
    """The plan per container, and the parsed filter."""
    modes = [_mode(request, c) for c in chosen]
    for mode in modes:
        require_offered(mode)  # of containers without a channel, too: an empty one has none
    nodes = [_mode_filter(mode, request, c) for mode, c in zip(modes, chosen, strict=True)]
    own = [_with_originals(node, request, c) for node, c in zip(nodes, chosen, strict=True)]
    filters = read_filters(request.all_filters, [c.manifest for c in chosen], own)
    fusions = _fusions(request, chosen)
    channels_of = [
        (
            *_channels_of(mode, worded, seen and _reads_images(c), exact),
            *((SUMMARIES,) if _searches_summaries(request, mode, c, fusion) else ()),
        )
        for mode, c, fusion in zip(modes, chosen, fusions, strict=True)
    ]
    plans = tuple(
        ContainerPlan(
            c,
            mode,
            () if c.is_empty else channels,
            condition,
            pictured=node in (HAS_PAGE_IMAGE, IMAGE_ONLY),
            by_picture=seen and _reads_images(c),
            requested_fusion=fusion,
            requested_marks=request.mark_weak,
        )
        for c, mode, channels, node, condition, fusion in zip(
            chosen,
            modes,
            channels_of,
            nodes,
            filters.conditions,
            fusions,
            strict=True,
        )
    )
    return plans, filters.shown


def _searches_summaries(
    request: SearchRequest, mode: SearchMode, container: Container, fusion: Fusion
) -> bool:
    """Whether the query is words in any form. An exact term, a quote, an image or a text to resemble is compared with
    originals only."""
    own = container.manifest.summaries
    return (
        container.has_summaries
        and request.generated
        and own.enabled
        and fusion.weights.get(SUMMARIES, own.weight) > 0
        and mode is not SearchMode.CROSSMODAL
        and bool(request.query.strip())
        and not (_exact(request) or quoted(request.query))
        and request.image_ref is None
        and request.like is None
    )


def _fusions(request: SearchRequest, chosen: Sequence[Container]) -> list[Fusion]:
    """The fusion of each container. Scores of different methods do not compare, so containers with different ones are
    fused by the method of the contract."""
    if request.fusion is not None:
        return [request.fusion] * len(chosen)
    own = [c.manifest.retrieval.fusion for c in chosen]
    if len({how.method for c, how in zip(chosen, own, strict=True) if not c.is_empty}) < 2:
        return own
    return [how.model_copy(update={"method": Fusion().method}) for how in own]


def _shows_diagnostics(request: SearchRequest, chosen: Sequence[Container]) -> bool:
    if request.explain or request.diagnostics is not None:
        return request.explain or bool(request.diagnostics)
    return any(c.manifest.retrieval.debug.return_diagnostics for c in chosen)


def _rerank(
    request: SearchRequest, plans: Sequence[ContainerPlan], offered: Callable[[Provider], bool]
) -> RerankPlan:
    """The longest head of all containers, with the provider of the first container that reranks.

    A container whose manifest requests a reranker that is not there does not degrade a search that covers others,
    too, unless the request itself names mode rerank.
    """
    asking = [
        (head_size(p.mode, p.container.manifest.retrieval.rerank, request.requested_rerank_k), p)
        for p in plans
        if not p.container.is_empty
    ]
    heads = [(size, p.container.manifest.retrieval.rerank) for size, p in asking if size]
    there = [(size, how) for size, how in heads if offered(how.provider)]
    if there or (len(heads) < len(asking) and request.requested_mode is not SearchMode.RERANK):
        heads = there
    if not heads:
        return RerankPlan(0, 0, "none")
    return RerankPlan(
        max(size for size, _ in heads),
        max(how.top_k_out for _, how in heads),
        heads[0][1].provider,
    )


def _exact(request: SearchRequest) -> ExactQuery:
    return ExactQuery(
        tuple(dict.fromkeys(request.must_terms)),
        tuple(dict.fromkeys(request.regexes)),
        request.path_like,
        request.ignore_case,
    )


def _reads_images(container: Container) -> bool:
    return reads_images(container.space.embedder, container.space.version)


def _mode(request: SearchRequest, container: Container) -> SearchMode:
    """The requested mode; for an image without words, the mode that finds related words and pictures."""
    if request.requested_mode is not None:
        return request.requested_mode
    if request.image_ref is not None and not request.query.strip():
        return SearchMode.HYBRID if _reads_images(container) else SearchMode.CROSSMODAL
    return container.manifest.retrieval.mode_default


def _mode_filter(mode: SearchMode, request: SearchRequest, container: Container) -> Node | None:
    """The modality that mode crossmodal searches: pictures for a query in words, texts for a picture. In one space,
    vectors of the other modality are always more distant, so they are searched separately."""
    if mode is not SearchMode.CROSSMODAL:
        return None
    if not _reads_images(container):
        return HAS_PAGE_IMAGE if request.image_ref is None else None
    return IMAGE_ONLY if request.image_ref is None else TEXT_ONLY


def _with_originals(node: Node | None, request: SearchRequest, container: Container) -> Node | None:
    """``node`` and, if the request excludes what models wrote, that; without any of it there is nothing to exclude."""
    if request.generated or not container.has_generated:
        return node
    return ORIGINALS_ONLY if node is None else all_of([node, ORIGINALS_ONLY])


def require_offered(mode: SearchMode) -> None:
    """``Forbidden`` for a mode that no search supports."""
    _channels(mode)


def _channels_of(mode: SearchMode, worded: bool, seen: bool, exact: bool) -> tuple[str, ...]:
    """No channel for an image without words, unless the container's embedder reads pictures."""
    known = _channels(mode)
    if not worded:
        known = tuple(channel for channel in known if channel == VECTOR and seen)
    return (*known, *((EXACT,) if exact else ()))


def _channels(mode: SearchMode) -> tuple[str, ...]:
    match mode:
        case SearchMode.SEMANTIC:
            return (VECTOR,)
        case SearchMode.LEXICAL:
            return (BM25,)
        case SearchMode.HYBRID | SearchMode.RERANK | SearchMode.CROSSMODAL:
            return (BM25, VECTOR)
        case SearchMode.MULTIVECTOR:
            raise Forbidden(
                f"Mode '{mode.value}' is not available yet. Use {', '.join(OFFERED_MODES)}.",
                mode=mode.value,
            )
        case _:
            assert_never(mode)


MAX_OFFSET: Final = 1000
"""Limit of hits across all pages."""
_OWN: Final = frozenset({"cursor", "diagnostics", "explain", "facets"})
"""Fields that may differ between the pages of one answer."""


def offset_of(request: SearchRequest) -> int:
    """Where the page begins; ``Invalid`` for a cursor of another query."""
    if request.cursor is None:
        return 0
    offset, _, digest = cursors.decode(request.cursor).partition(":")
    if not offset.isdecimal() or len(offset) > 4 or digest != _digest(request):
        raise Invalid("The cursor belongs to another query. Start again without a cursor.")
    return int(offset)


def cursor_at(request: SearchRequest, offset: int) -> str | None:
    """The cursor for ``offset``; None beyond ``MAX_OFFSET``."""
    return cursors.encode(f"{offset}:{_digest(request)}") if offset <= MAX_OFFSET else None


def _digest(request: SearchRequest) -> str:
    fields = request.model_dump(mode="json", exclude=set(_OWN)) | {"mode": request.requested_mode}
    return hashlib.sha256(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]
