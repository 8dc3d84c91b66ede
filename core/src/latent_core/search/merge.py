"""One ranked list per channel over all containers of a search, and their fusion.

Every container's best hit has rank 1 in its own lists. Fused per container, a container about something else would put
its best hit beside the right one, so each channel is merged over the containers first and fused once:

- BM25 scores compare: their statistics are those of all containers (``latent_core.bm25.scoring``).
- Cosines of one embedding model compare. Those of different models are compared by how far they are above the others
  of their model, in standard deviations.
- Exact matches compare by their number.

A container's weights and method stay its own: its candidates are fused by them, among the candidates of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from latent_core.db.containers import Container
from latent_core.domain.manifest.model import Fusion
from latent_core.search.container_search import ContainerCandidates
from latent_core.search.fuse import FusedCandidate, RankedList, fuse
from latent_core.search.plan import VECTOR
from latent_core.search.ranking import Key, RankedCandidate, best_first

ContainerList = tuple[Container, RankedList[int]]
"""A container and its list of one channel."""


def fused(retrieved: Sequence[ContainerCandidates]) -> list[RankedCandidate]:
    """The candidates of all containers, best first; ties by container, then by chunk_no."""
    lists = merged([(r.plan.container, r.lists) for r in retrieved])
    documents = {r.plan.container.id: r.documents for r in retrieved}
    candidates = [
        RankedCandidate(*f.key, documents[f.key[0]][f.key[1]], f.score, f.score, rrf=f.rrf)
        for how, container_ids in _by_fusion(retrieved)
        for f in _fused(lists, *how)
        if f.key[0] in container_ids
    ]
    return sorted(candidates, key=best_first)


def merged(
    found: Sequence[tuple[Container, Mapping[str, RankedList[int]]]],
) -> dict[str, RankedList[Key]]:
    """One list per channel."""
    channels = sorted({name for _, lists in found for name in lists})
    return {
        name: _together(
            [(container, lists[name]) for container, lists in found if name in lists],
            comparable=name != VECTOR,
        )
        for name in channels
    }


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


def _fused(
    lists: Mapping[str, RankedList[Key]], how: Fusion, channels: Channels
) -> list[FusedCandidate[Key]]:
    return fuse({name: ranked for name, ranked in lists.items() if name in channels}, how)


def _together(found: Sequence[ContainerList], *, comparable: bool) -> RankedList[Key]:
    scores = [np.asarray(ranked.scores, np.float64) for _, ranked in found]
    if not comparable:
        scores = _on_one_scale(found, scores)
    entries = [
        (-score, container.id, chunk_no)
        for (container, ranked), its in zip(found, scores, strict=True)
        for chunk_no, score in zip(ranked.keys, its.tolist(), strict=True)
    ]
    entries.sort()
    return RankedList([(c, n) for _, c, n in entries], [-score for score, _, _ in entries])


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
