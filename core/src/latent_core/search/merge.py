"""One ranked list per channel over all containers of a search, and their fusion.

Every container's best hit has rank 1 in its own lists. Fused per container, a container about something else would put
its best hit beside the right one, so each channel is merged over the containers first and fused once:

- BM25 scores compare: their statistics are those of all containers (``latent_core.bm25.scoring``).
- Cosines of one embedding model compare. Those of different models are compared on the scales of their models, from two
  unrelated texts to the most alike ones (``latent_core.search.cosine_scales``).
- Exact matches compare by their number.

A container's weights and method stay its own: its candidates are fused by them, among the candidates of all. That decides
which places they take together. Among themselves they keep the order that they have when their container is searched
alone: a container about libraries knows better than all containers together what tells its texts apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import inf, nextafter
from statistics import fmean
from typing import Final

import numpy as np
from numpy.typing import NDArray

from latent_core.domain.manifest.model import Fusion
from latent_core.search.container_search import ContainerCandidates
from latent_core.search.fuse import FusedCandidate, RankedList, fuse, scores_of
from latent_core.search.plan import SUMMARIES, VECTOR
from latent_core.search.ranking import Key, RankedCandidate, best_first
from latent_core.search.relevance import CosineScale

MIN_SPAN: Final = 1e-3
"""Of a scale."""
CHUNK_BITS: Final = 40
"""Of a chunk_no: more than a container ever numbers."""


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
    merger = ListMerger(retrieved)
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


def merged(retrieved: Sequence[ContainerCandidates]) -> dict[str, RankedList[Key]]:
    """One list per channel."""
    merger = ListMerger(retrieved)
    return {name: merger.decoded(merger.together(name)) for name in merger.channels}


class ListMerger:
    """Merges the lists of containers. Its keys are single numbers, since a search has about a thousand: the number of
    the container, in the order of their ids, before the chunk_no."""

    def __init__(self, retrieved: Sequence[ContainerCandidates]) -> None:
        self._found = sorted(retrieved, key=lambda r: r.plan.container.id)
        self._numbers = {r.plan.container.id: n for n, r in enumerate(self._found)}
        self.channels = sorted({name for r in retrieved for name in r.lists})

    def number(self, container_id: str) -> int:
        return self._numbers[container_id]

    def owners(self, codes: Collection[int]) -> NDArray[np.int64]:
        """The number of the container of each code."""
        return np.fromiter(codes, np.int64, len(codes)) >> CHUNK_BITS

    def together(self, channel: str) -> RankedList[int]:
        """The list of a channel over all containers, by scores that compare."""
        parts = [r for r in self._found if channel in r.lists]
        scores = np.concatenate(_comparable(parts, channel))
        codes = np.concatenate(
            [
                np.array(r.lists[channel].keys, np.int64)
                + (self.number(r.plan.container.id) << CHUNK_BITS)
                for r in parts
            ]
        )
        order = np.lexsort((codes, -scores))
        return RankedList(codes[order].tolist(), scores[order].tolist())

    def decoded(self, ranked: RankedList[int]) -> RankedList[Key]:
        ids = [r.plan.container.id for r in self._found]
        keys = [(ids[code >> CHUNK_BITS], code & (1 << CHUNK_BITS) - 1) for code in ranked.keys]
        return RankedList(keys, ranked.scores)


Channels = frozenset[str]


def _by_fusion(
    retrieved: Sequence[ContainerCandidates],
) -> list[tuple[tuple[Fusion, Channels], set[str]]]:
    """The containers of each way to fuse: by a fusion, over the channels that answered."""
    ways: list[tuple[tuple[Fusion, Channels], set[str]]] = []
    summarised = [r.plan.fusion for r in retrieved if SUMMARIES in r.lists]
    weight = max((how.weights.get(SUMMARIES, 1.0) for how in summarised), default=0.0)
    for r in retrieved:
        how = r.plan.fusion, frozenset(r.lists)
        if weight and SUMMARIES not in r.lists:
            how = _with_no_summary(*how, weight)
        for known, container_ids in ways:
            if known == how:
                container_ids.add(r.plan.container.id)
                break
        else:
            ways.append((how, {r.plan.container.id}))
    return ways


def _with_no_summary(how: Fusion, channels: Channels, weight: float) -> tuple[Fusion, Channels]:
    """For a container without summaries, among others with: its candidates count as those of theirs whose summary does
    not match."""
    weights = {**how.weights, SUMMARIES: weight}
    return how.model_copy(update={"weights": weights}), channels | {SUMMARIES}


def _comparable(parts: Sequence[ContainerCandidates], channel: str) -> list[NDArray[np.float64]]:
    """The scores of each list, so that they compare with those of the others."""
    lists = [r.lists[channel] for r in parts]
    scores = [
        np.asarray(its.scores if its.common is None else its.common, np.float64) for its in lists
    ]
    return (
        _on_one_scale(parts, scores) if channel == VECTOR and len(models_of(parts)) > 1 else scores
    )


Model = tuple[str, str]
"""Embedder and version."""


def models_of(parts: Sequence[ContainerCandidates]) -> dict[Model, list[int]]:
    """The embedding models of containers, each with the places of its containers in ``parts``."""
    found: dict[Model, list[int]] = {}
    for n, r in enumerate(parts):
        space = r.plan.container.space
        found.setdefault((space.embedder, space.lineage), []).append(n)
    return found


def _on_one_scale(
    parts: Sequence[ContainerCandidates], scores: Sequence[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    """Cosines of several models: how near they are between two unrelated texts and the most alike ones of their model,
    on the scale of the model that has most of them, since ``auto`` reads how near to 1 they are."""
    models = models_of(parts)
    lengths = {model: sum(len(scores[n]) for n in places) for model, places in models.items()}
    reference = min(models, key=lambda model: (-lengths[model], model))
    scales = {
        model: _scale([parts[n] for n in places], [scores[n] for n in places])
        for model, places in models.items()
    }
    low, high = scales[reference].unrelated, scales[reference].alike
    mapped = list(scores)
    for model, places in models.items():
        for n in places if model != reference else ():
            mapped[n] = np.minimum(low + scales[model].nearness(scores[n]) * (high - low), 1.0)
    return mapped


def _scale(
    parts: Sequence[ContainerCandidates], scores: Sequence[NDArray[np.float64]]
) -> CosineScale:
    """The scale of a model: the mean over its containers. Of one without a scale, too few texts to have one, the cosines
    lie between the lowest of its list and that of equal texts."""
    known = [r.cosine_scale for r in parts if r.cosine_scale is not None]
    if not known:
        lowest = min((float(its.min()) for its in scores if len(its)), default=0.0)
        return CosineScale(min(lowest, 1.0 - MIN_SPAN), 1.0)
    return CosineScale(
        fmean(scale.unrelated for scale in known), fmean(scale.alike for scale in known)
    )
