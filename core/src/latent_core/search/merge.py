"""One ranked list per channel over all containers of a search, and their fusion.

Every container's best hit has rank 1 in its own lists. Fused per container, a container about something else would put
its best hit beside the right one, so each channel is merged over the containers first and fused once:

- BM25 scores compare: their statistics are those of all containers (``latent_core.bm25.scoring``).
- Cosines of one embedding model compare. Those of different models are compared by how far they are above the others
  of their model, in standard deviations.
- Exact matches compare by their number.

A container's weights and method stay its own: its candidates are fused by them, among the candidates of all. That decides
which places they take together. Among themselves they keep the order that they have when their container is searched
alone: a container about libraries knows better than all containers together what tells its texts apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf, nextafter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from latent_core.db.containers import Container
from latent_core.domain.manifest.model import Fusion
from latent_core.search.container_search import ContainerCandidates
from latent_core.search.fuse import FusedCandidate, RankedList, fuse, scores_of
from latent_core.search.plan import VECTOR
from latent_core.search.ranking import Key, RankedCandidate, best_first

CHUNK_BITS: Final = 40
"""Of a chunk_no: more than a container ever numbers."""

ContainerList = tuple[Container, RankedList[int]]
"""A container and its list of one channel."""


def fused(retrieved: Sequence[ContainerCandidates]) -> list[RankedCandidate]:
    """The candidates of all containers, best first; ties by container, then by chunk_no."""
    places = _among_all(retrieved) if len(retrieved) > 1 else {}
    candidates = [
        RankedCandidate(r.plan.container.id, one.key, r.documents[one.key], score, score, 0.0, rrf)
        for r in retrieved
        for one, (score, rrf) in _placed(
            fuse(r.lists, r.plan.fusion), places.get(r.plan.container.id)
        )
    ]
    return sorted(candidates, key=best_first)


Place = tuple[float, float]
"""Score and tie-break."""


def _among_all(retrieved: Sequence[ContainerCandidates]) -> dict[str, list[Place]]:
    """The scores of each container's candidates among those of all, highest first."""
    merger = ListMerger([(r.plan.container, r.lists) for r in retrieved])
    lists = {name: merger.together(name) for name in merger.channels}
    places: dict[str, list[Place]] = {}
    for (how, channels), container_ids in _by_fusion(retrieved):
        answered = {name: ranked for name, ranked in lists.items() if name in channels}
        scores, rrf = scores_of(answered, how)
        values = np.array([[score, rrf[code]] for code, score in scores.items()]).reshape(-1, 2)
        owners = merger.owners(scores)
        for container_id in container_ids:
            its = values[owners == merger.number(container_id)]
            places[container_id] = its[np.lexsort((-its[:, 1], -its[:, 0]))].tolist()
    return places


def _placed(
    own: Sequence[FusedCandidate[int]], places: Sequence[Place] | None
) -> Iterator[tuple[FusedCandidate[int], Place]]:
    """A container's candidates in their own order, on the places that they have together among all."""
    if places is None:
        yield from ((one, (one.score, one.rrf)) for one in own)
        return
    last, last_rrf, last_own = inf, inf, inf
    for one, (score, rrf) in zip(own, places, strict=True):
        if one.score != last_own and score < last:
            last, last_rrf = score, rrf
        else:  # Equal ones stay equal, since the display then sorts by age; the first one stays first.
            last_rrf = min(rrf, nextafter(last_rrf, -inf))
        last_own = one.score
        yield one, (last, last_rrf)


def merged(
    found: Sequence[tuple[Container, Mapping[str, RankedList[int]]]],
) -> dict[str, RankedList[Key]]:
    """One list per channel."""
    merger = ListMerger(found)
    return {name: merger.decoded(merger.together(name)) for name in merger.channels}


class ListMerger:
    """Merges the lists of containers. Its keys are single numbers, since a search has about a thousand: the number of
    the container, in the order of their ids, before the chunk_no."""

    def __init__(self, found: Sequence[tuple[Container, Mapping[str, RankedList[int]]]]) -> None:
        self._found = sorted(found, key=lambda one: one[0].id)
        self._numbers = {container.id: n for n, (container, _) in enumerate(self._found)}
        self.channels = sorted({name for _, lists in found for name in lists})

    def number(self, container_id: str) -> int:
        return self._numbers[container_id]

    def owners(self, codes: Collection[int]) -> NDArray[np.int64]:
        """The number of the container of each code."""
        return np.fromiter(codes, np.int64, len(codes)) >> CHUNK_BITS

    def together(self, channel: str) -> RankedList[int]:
        """The list of a channel over all containers, by scores that compare."""
        parts = [(c, lists[channel]) for c, lists in self._found if channel in lists]
        scores = np.concatenate(_comparable(parts, channel))
        codes = np.concatenate(
            [
                np.array(ranked.keys, np.int64) + (self.number(c.id) << CHUNK_BITS)
                for c, ranked in parts
            ]
        )
        order = np.lexsort((codes, -scores))
        return RankedList(codes[order].tolist(), scores[order].tolist())

    def decoded(self, ranked: RankedList[int]) -> RankedList[Key]:
        ids = [container.id for container, _ in self._found]
        keys = [(ids[code >> CHUNK_BITS], code & (1 << CHUNK_BITS) - 1) for code in ranked.keys]
        return RankedList(keys, ranked.scores)


Channels = frozenset[str]


def _by_fusion(
    retrieved: Sequence[ContainerCandidates],
) -> list[tuple[tuple[Fusion, Channels], set[str]]]:
    """The containers of each way to fuse: by a fusion, over the channels that answered."""
    ways: list[tuple[tuple[Fusion, Channels], set[str]]] = []
    for r in retrieved:
        how = r.plan.fusion, frozenset(r.lists)
        for known, container_ids in ways:
            if known == how:
                container_ids.add(r.plan.container.id)
                break
        else:
            ways.append((how, {r.plan.container.id}))
    return ways


def _comparable(parts: Sequence[ContainerList], channel: str) -> list[NDArray[np.float64]]:
    """The scores of each list, so that they compare with those of the others."""
    scores = [
        np.asarray(ranked.scores if ranked.common is None else ranked.common, np.float64)
        for _, ranked in parts
    ]
    return _on_one_scale(parts, scores) if channel == VECTOR else scores


def _on_one_scale(found: Sequence[ContainerList], scores: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Cosines as they are if all are of one embedding model; else by how far they stand out of their model's list, on
    the scale of the model that has most of them, since ``auto`` reads how near to 1 they are."""
    models = [(c.space.embedder, c.space.lineage) for c, _ in found]
    if len(set(models)) < 2:
        return list(scores)
    values = {
        model: np.concatenate([scores[n] for n, one in enumerate(models) if one == model])
        for model in set(models)
    }
    reference = values[min(values, key=lambda model: (-len(values[model]), model))]
    return [
        _mean(reference) + _sigma(reference) * _deviations(its, values[model])
        for its, model in zip(scores, models, strict=True)
    ]


def _deviations(its: np.ndarray, among: np.ndarray) -> np.ndarray:
    sigma = _sigma(among)
    return (its - _mean(among)) / sigma if sigma else np.zeros(len(its))


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0


def _sigma(values: np.ndarray) -> float:
    return float(values.std()) if len(values) > 1 else 0.0
