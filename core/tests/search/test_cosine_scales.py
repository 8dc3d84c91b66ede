"""The cosine scale of a container is sampled once, again after it has grown, and its failure costs no search."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

import numpy as np

from latent_core.db.containers import Container, Space
from latent_core.domain.errors import Unavailable
from latent_core.domain.ids import PointId, SpaceId
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.vector_types import Vector
from latent_core.search.cosine_scales import SAMPLE, CosineScales
from latent_core.search.relevance import MINILM_SCALE
from latent_core.vectors.port import StoredPoint, VectorIndex
from latent_core.wire.containers import ContainerState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class SampledIndex:
    """Random unit vectors, one point per chunk; counts its scrolls."""

    points: int
    fails: bool = False
    scrolls: list[int] = field(default_factory=list)

    async def scroll(
        self, collection: str, *, after: PointId | None, limit: int
    ) -> list[StoredPoint]:
        self.scrolls.append(limit)
        await asyncio.sleep(0)
        if self.fails:
            raise Unavailable("the vector engine does not answer")
        assert collection
        assert after is None
        count = min(limit, self.points)
        return [StoredPoint(PointId(UUID(int=n)), UUID(int=n), 1, n) for n in range(count)]

    async def vectors(self, collection: str, ids: Sequence[PointId]) -> dict[PointId, Vector]:
        assert collection
        rows = np.random.default_rng(3).normal(size=(len(ids), 32)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return dict(zip(ids, rows, strict=True))


def container(chunks: int, embedder: str = "openai/test") -> Container:
    space = Space(SpaceId(1), "notes", embedder, "1", 32)
    manifest = Manifest(id="notes", name="Notes")
    return Container(
        *("notes", manifest, "e", ContainerState.ACTIVE, space, ("english",), NOW, NOW),
        {"english": chunks},
    )


def scales_over(index: SampledIndex) -> CosineScales:
    return CosineScales(cast(VectorIndex, index))


async def test_searches_at_once_share_one_sample_and_later_ones_its_scale() -> None:
    index = SampledIndex(points=1000)
    scales = scales_over(index)
    found = await asyncio.gather(*(scales.of(container(1000)) for _ in range(5)))
    assert len(set(found)) == 1
    assert found[0] is not None
    assert index.scrolls == [SAMPLE]
    assert await scales.of(container(1010)) == found[0]
    assert index.scrolls == [SAMPLE]


async def test_a_container_that_has_doubled_is_sampled_again() -> None:
    index = SampledIndex(points=300)
    scales = scales_over(index)
    await scales.of(container(300))
    await scales.of(container(600))
    assert len(index.scrolls) == 2


async def test_a_failed_sample_gives_the_usual_scale_and_is_tried_again() -> None:
    index = SampledIndex(points=300, fails=True)
    scales = scales_over(index)
    assert await scales.of(container(300)) is None
    assert await scales.of(container(300, "local")) == MINILM_SCALE
    index.fails = False
    sampled = await scales.of(container(300))
    assert sampled is not None
    assert sampled != MINILM_SCALE


async def test_an_empty_collection_has_the_usual_scale_of_its_model() -> None:
    scales = scales_over(SampledIndex(points=0))
    assert await scales.of(container(0)) is None
    other = replace(container(0, "local"), id="other")
    assert await scales_over(SampledIndex(points=0)).of(other) == MINILM_SCALE
