"""The cosine scale of each container, from a sample of its points."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from typing import Final

import numpy as np

from latent_core.db.containers import Container
from latent_core.domain.errors import LatentError
from latent_core.domain.manifest.model import LOCAL
from latent_core.search.relevance import MINILM_SCALE, CosineScale, cosine_scale
from latent_core.vectors.port import VectorIndex

logger = logging.getLogger(__name__)

SAMPLE: Final = 256
"""Points. Their ids are hashes, so the first ones in the order of ids are a random sample."""
MAX_SCALES: Final = 10_000
WAIT_SECONDS: Final = 1.0
"""How long a search waits for a scale that is not known yet."""
GROWTH: Final = 1.5
"""A container that grew by this factor is sampled again."""

_Key = tuple[str, int]


class CosineScales:
    """Samples each collection once per process, at its first search, and again after it has grown."""

    def __init__(self, vectors: VectorIndex) -> None:
        self._vectors = vectors
        self._scales: OrderedDict[_Key, asyncio.Task[CosineScale | None]] = OrderedDict()

    async def of(self, container: Container) -> CosineScale | None:
        """None if the container has too few points, or could not be sampled in time."""
        key = (container.space.collection(), _growth(container))
        task = self._scales.get(key)
        if task is None:
            task = asyncio.create_task(self._sampled(container))
            task.add_done_callback(lambda done: self._forget_failure(key, done))
            self._scales[key] = task
            if len(self._scales) > MAX_SCALES:
                self._scales.popitem(last=False)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                # Another search may wait for the same scale.
                return await asyncio.shield(task)
        except TimeoutError:
            return usual_scale(container)
        except LatentError:
            return usual_scale(container)

    def _forget_failure(self, key: _Key, done: asyncio.Task[CosineScale | None]) -> None:
        """Let the next search sample again."""
        failure = None if done.cancelled() else done.exception()
        if done.cancelled() or failure is not None:
            self._scales.pop(key, None)
        if failure is not None:
            logger.warning(
                "cosine_scale_failed", extra={"collection": key[0], "cause": str(failure)}
            )

    async def _sampled(self, container: Container) -> CosineScale | None:
        collection = container.space.collection()
        points = await self._vectors.scroll(collection, after=None, limit=SAMPLE)
        found = await self._vectors.vectors(collection, [point.id for point in points])
        sample = [(found[point.id], point.chunk_no) for point in points if point.id in found]
        if not sample:
            return usual_scale(container)
        vectors, chunk_nos = zip(*sample, strict=True)
        return await asyncio.to_thread(
            cosine_scale, np.stack(vectors), np.array(chunk_nos, np.int64), usual_scale(container)
        )


def usual_scale(container: Container) -> CosineScale | None:
    """Of the container's embedder, if it is known."""
    return MINILM_SCALE if container.space.embedder in LOCAL else None


def _growth(container: Container) -> int:
    """Rises by one each time that the container grew by ``GROWTH``."""
    return int(math.log(1 + sum(container.chunks_by_language.values()), GROWTH))
