"""The plan of a search: which channels run on which containers, how deep and until when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from latent_core.domain.errors import Forbidden, Invalid
from latent_core.domain.manifest import SearchMode
from latent_core.domain.query import SearchRequest
from latent_core.registry.chunks import Condition
from latent_core.registry.containers import Container
from latent_gateway.search.filters import parse_filters

DEPTH: Final = 100
"""Candidates a channel gives at first (CONTRACT "Retrieval")."""
MAX_DEPTH: Final = DEPTH * 2**14

VECTOR: Final = "vector"
BM25: Final = "bm25"


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """What is done in one container."""

    container: Container
    mode: SearchMode
    channels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done for one request. ``deadline_seconds`` is each container's own."""

    query: str
    containers: tuple[ContainerPlan, ...]
    condition: Condition
    top_k: int
    dedup: bool
    deadline_seconds: float
    diagnostics: bool


def make_plan(
    request: SearchRequest,
    containers: Mapping[str, Container],
    wanted: Sequence[str],
    deadline_seconds: float,
) -> Plan:
    """Plan a search over ``wanted`` (ids that the principal may read, each once)."""
    if not request.query.strip():
        raise Invalid("the query is empty: give it at least one word")
    if request.image_ref is not None:
        raise Forbidden("search by image is not offered yet; describe the picture in words")
    chosen = [containers[c] for c in wanted]
    plans = tuple(
        _container_plan(c, request.mode or c.manifest.retrieval.mode_default) for c in chosen
    )
    shown = request.diagnostics
    return Plan(
        query=request.query,
        containers=plans,
        condition=parse_filters(request.filters),
        top_k=request.top_k,
        dedup=request.dedup,
        deadline_seconds=deadline_seconds,
        diagnostics=any(c.manifest.retrieval.debug.return_diagnostics for c in chosen)
        if shown is None
        else shown,
    )


def _container_plan(container: Container, mode: SearchMode) -> ContainerPlan:
    return ContainerPlan(container, mode, _channels(mode))


def _channels(mode: SearchMode) -> tuple[str, ...]:
    match mode:
        case SearchMode.SEMANTIC:
            return (VECTOR,)
        case SearchMode.LEXICAL:
            return (BM25,)
        case SearchMode.HYBRID:
            return (BM25, VECTOR)
        case SearchMode.MULTIVECTOR | SearchMode.CROSSMODAL | SearchMode.RERANK:
            raise Forbidden(
                f"mode '{mode.value}' is not offered yet; use hybrid, semantic or lexical",
                mode=mode.value,
            )
        case _:
            assert_never(mode)
