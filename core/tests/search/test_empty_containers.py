"""Containers without a live chunk: no channel, no embedder, no part in how others are searched."""

from __future__ import annotations

from datetime import UTC, datetime

from latent_core.db.containers import Container, Space
from latent_core.domain.ids import SpaceId
from latent_core.domain.manifest.model import Fusion, FusionMethod, Manifest, Rerank, Retrieval
from latent_core.search.plan import SearchPlan, make_plan
from latent_core.wire.containers import ContainerState
from latent_core.wire.search import SearchRequest

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def container(name: str, how: Retrieval, *, is_empty: bool) -> Container:
    space = Space(SpaceId(1), name, "local", "1", 3)
    manifest = Manifest(id=name, name=name, retrieval=how)
    active = ContainerState.ACTIVE
    return Container(name, manifest, "e", active, space, (), NOW, NOW, is_empty=is_empty)


def planned(*containers: Container) -> SearchPlan:
    by_id = {one.id: one for one in containers}
    request = SearchRequest(query="lamp", must_terms=["lamp"], top_k=5)
    return make_plan(request, by_id, list(by_id), 2.0, offered=lambda _: False)


def test_an_empty_container_is_searched_by_no_channel() -> None:
    full = container("full", Retrieval(), is_empty=False)
    empty = container("empty", Retrieval(), is_empty=True)
    plan = planned(full, empty)
    assert [part.channels for part in plan.containers] == [("bm25", "vector", "exact"), ()]


def test_an_empty_container_changes_neither_fusion_nor_reranker_of_others() -> None:
    auto = Fusion(method=FusionMethod.AUTO)
    full = container("full", Retrieval(fusion=auto), is_empty=False)
    reranked = Retrieval(fusion=Fusion(), rerank=Rerank(enabled=True, provider="local"))
    plan = planned(full, container("empty", reranked, is_empty=True))
    assert plan.containers[0].fusion == auto
    assert plan.rerank.head == 0
