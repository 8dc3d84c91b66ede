"""The plan of a search: which channels run on which containers, how deep and until when."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

import orjson

from latent_core.db.conditions import FilterCondition
from latent_core.db.containers import Container, Space
from latent_core.domain import cursors
from latent_core.domain.chunk import Modality
from latent_core.domain.errors import Forbidden, Invalid
from latent_core.domain.filters.model import Column, FilterOp, Node, Test, any_of
from latent_core.domain.manifest.embedder_name import reads_images, reads_language
from latent_core.domain.manifest.model import OFFERED_MODES, Freshness, Fusion, SearchMode
from latent_core.domain.query import Detail, SearchRequest
from latent_core.models.embedding.port import Embedder
from latent_core.models.rerank.resolve import Provider
from latent_core.search.exact import ExactQuery, Matcher
from latent_core.search.filters import read_filters
from latent_core.search.rerank import head_size

DEPTH: Final = 100
"""Candidates a channel gives at first (CONTRACT "Retrieval")."""
MAX_DEPTH: Final = DEPTH * 2**14

VECTOR: Final = "vector"
BM25: Final = "bm25"
EXACT: Final = "exact"
EXACT_SECONDS: Final = 2.5
"""A container's deadline when texts have to be read: two seconds for its channels."""
HAS_PAGE_IMAGE: Final = any_of(
    [
        Test(Column.PAGE, FilterOp.EXISTS),
        Test(Column.MODALITY, FilterOp.IN, (Modality.IMAGE.value,)),
    ]
)
"""What words find in mode crossmodal: chunks that stand on a page, which is drawn, and images …"""
IMAGE_ONLY: Final = Test(Column.MODALITY, FilterOp.IN, (Modality.IMAGE.value,))
"""… and in a container whose embedder reads pictures: what was embedded as one, or will be."""
TEXT_ONLY: Final = Test(Column.MODALITY, FilterOp.IN, (Modality.TEXT.value,))
"""What a picture finds there."""


FOREIGN_WEIGHT: Final = 0.01
"""Of the vectors of texts in languages that the embedder was not trained on: what words find keeps its order, and
what only vectors find comes after it."""


def is_foreign(container: Container) -> bool:
    """Whether most of a container's texts are in languages that its embedder was not trained on."""
    counts = container.chunks_by_language
    read = sum(
        chunks
        for language, chunks in counts.items()
        if reads_language(container.space.embedder, language)
    )
    return read * 2 < sum(counts.values())


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """A space that is searched in place of the containers' live one, live or not, and what embeds its queries."""

    space: Space
    embedder: Embedder


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """What is done in one container."""

    container: Container
    mode: SearchMode
    channels: tuple[str, ...]
    condition: FilterCondition
    """What the filter and the mode ask of its chunks."""
    pictured: bool = False
    """Only what has an image is looked for."""
    by_picture: bool = False
    """Its vectors are asked with the picture itself."""
    requested_fusion: Fusion | None = None

    @property
    def fusion(self) -> Fusion:
        """As it was asked for or the manifest says; where that leaves the vectors' weight open, and they are those of
        texts that the embedder does not read, they weigh less."""
        how = self.requested_fusion or self.container.manifest.retrieval.fusion
        if VECTOR in how.weights or self.by_picture or not is_foreign(self.container):
            return how
        return how.model_copy(update={"weights": {**how.weights, VECTOR: FOREIGN_WEIGHT}})

    @property
    def freshness(self) -> Freshness:
        return self.container.manifest.retrieval.freshness


@dataclass(frozen=True, slots=True)
class RerankPlan:
    """What is reranked, and by whom."""

    head: int
    """Candidates; 0 for none."""
    max_hits: int
    """Of a reranked answer."""
    provider: Provider


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What is done for one request. ``deadline_seconds`` is each container's own."""

    query: str
    """With the text of the image that is asked by."""
    by_image: bool
    containers: tuple[ContainerPlan, ...]
    filters: dict[str, Any]
    """The filter as it was understood."""
    matcher: Matcher | None
    """What hits must hold as it is written."""
    rerank: RerankPlan
    offset: int
    """Hits of the pages before."""
    top_k: int
    neighbours: int
    detail: Detail
    max_chars: int | None
    explain: bool
    dedup: bool
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
) -> SearchPlan:
    """Plan a search over ``container_ids`` (ids that the principal may read, each once).

    ``image_text`` is what the image of ``image_ref`` says: it is asked for with the query. ``seen``: the
    picture itself is at hand, for embedders that read pictures. ``target``: the space to search.
    """
    exact = _exact(request)
    query = f"{request.query}\n{image_text}".strip() if image_text else request.query
    worded = bool(query.strip())
    if not worded and not exact and request.image_ref is None:
        raise Invalid(
            "the query is empty: give it at least one word, or an image_ref, must_terms, regexes or path_like"
        )
    chosen = [containers[c] for c in container_ids]
    if target is not None:
        chosen = [replace(c, space=target.space) for c in chosen]
    modes = [_mode(request, c) for c in chosen]
    requested_modes = [
        _request_fusion(mode, request, c) for mode, c in zip(modes, chosen, strict=True)
    ]
    filters = read_filters(request.filters, [c.manifest for c in chosen], requested_modes)
    plans = tuple(
        ContainerPlan(
            c,
            mode,
            _channels_of(mode, worded, seen and _reads_images(c), bool(exact)),
            condition,
            pictured=node in (HAS_PAGE_IMAGE, IMAGE_ONLY),
            by_picture=seen and _reads_images(c),
            requested_fusion=request.fusion,
        )
        for c, mode, node, condition in zip(
            chosen, modes, requested_modes, filters.conditions, strict=True
        )
    )
    shown = request.diagnostics
    reranked = _rerank(request, plans) if worded else RerankPlan(0, 0, "none")
    return SearchPlan(
        query=query,
        by_image=bool(image_text),
        containers=plans,
        filters=filters.shown,
        matcher=Matcher(exact) if exact else None,
        rerank=reranked,
        offset=offset_of(request),
        top_k=min(request.top_k, reranked.max_hits) if reranked.head else request.top_k,
        neighbours=request.neighbours,
        detail=request.detail,
        max_chars=request.max_chars,
        explain=request.explain,
        dedup=request.dedup,
        deadline_seconds=max(deadline_seconds, EXACT_SECONDS) if exact else deadline_seconds,
        diagnostics=request.explain
        or (
            any(c.manifest.retrieval.debug.return_diagnostics for c in chosen)
            if shown is None
            else shown
        ),
    )


def _rerank(request: SearchRequest, plans: Sequence[ContainerPlan]) -> RerankPlan:
    """The longest head any of the containers asks for, by the reranker of the first that does."""
    asking = [
        (head_size(p.mode, p.container.manifest.retrieval.rerank, request.requested_rerank_k), p)
        for p in plans
    ]
    container_ids = [(size, p.container.manifest.retrieval.rerank) for size, p in asking if size]
    if not container_ids:
        return RerankPlan(0, 0, "none")
    return RerankPlan(
        max(size for size, _ in container_ids),
        max(how.top_k_out for _, how in container_ids),
        container_ids[0][1].provider,
    )


def _exact(request: SearchRequest) -> ExactQuery:
    return ExactQuery(
        tuple(dict.fromkeys(request.must_terms)),
        tuple(dict.fromkeys(request.regexes)),
        request.path_like,
        request.ignore_case,
    )


def _reads_images(container: Container) -> bool:
    return reads_images(container.space.embedder)


def _mode(request: SearchRequest, container: Container) -> SearchMode:
    """An image alone asks for what goes with it, in words or pictures."""
    if request.mode is not None:
        return request.mode
    if request.image_ref is not None and not request.query.strip():
        return SearchMode.HYBRID if _reads_images(container) else SearchMode.CROSSMODAL
    return container.manifest.retrieval.mode_default


def _request_fusion(mode: SearchMode, request: SearchRequest, container: Container) -> Node | None:
    """Words find pictures in mode crossmodal; a picture finds words, wherever they stand. Of vectors of both in one
    space those of the other kind are always further off: they are asked for alone."""
    if mode is not SearchMode.CROSSMODAL:
        return None
    if not _reads_images(container):
        return HAS_PAGE_IMAGE if request.image_ref is None else None
    return IMAGE_ONLY if request.image_ref is None else TEXT_ONLY


def require_offered(mode: SearchMode) -> None:
    """``Forbidden`` for a mode that a search would refuse, whatever it asks for."""
    _channels(mode)


def _channels_of(mode: SearchMode, worded: bool, seen: bool, exact: bool) -> tuple[str, ...]:
    """None for an image without words, by which nothing can be found where nobody can look at it."""
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
                f"mode '{mode.value}' is not offered yet; use {', '.join(OFFERED_MODES)}",
                mode=mode.value,
            )
        case _:
            assert_never(mode)


MAX_OFFSET: Final = 1000
"""Hits that may be paged through; a better question finds more."""
_OWN: Final = frozenset({"cursor", "diagnostics", "explain"})
"""What may differ between the pages of one answer."""


def offset_of(request: SearchRequest) -> int:
    """Where the page begins; ``Invalid`` for a cursor that is not one of this question."""
    if request.cursor is None:
        return 0
    offset, _, digest = cursors.decode(request.cursor).partition(":")
    if not offset.isdecimal() or len(offset) > 4 or digest != _digest(request):
        raise Invalid("the cursor belongs to another question: begin again without it")
    return int(offset)


def cursor_at(request: SearchRequest, offset: int) -> str | None:
    """None beyond what may be paged through."""
    return cursors.encode(f"{offset}:{_digest(request)}") if offset <= MAX_OFFSET else None


def _digest(request: SearchRequest) -> str:
    requested_modes = request.model_dump(mode="json", exclude=set(_OWN))
    return hashlib.sha256(orjson.dumps(requested_modes, option=orjson.OPT_SORT_KEYS)).hexdigest()[
        :12
    ]
