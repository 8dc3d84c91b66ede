"""Drift adapters: how long they take, and how much of a full re-embed they recover.

    python benchmarks/drift.py [--chunks 20000] [--dims 384] [--json FILE]
    python benchmarks/drift.py --old FILE.npy --new FILE.npy     vectors of one text a row, by two real models

The made-up pair is a rotation of clustered vectors, off centre, with noise: what a retrained model of the same
family may look like, and kinder than two models that have nothing in common. Recall is that of the new model's ten
nearest; "kept" is the old model left as it is. Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from latent_core.models.embedding.drift import DriftAdapter, ForwardMap

SHARE: Final = 0.05
QUERIES: Final = 10_000
HELD: Final = 200
DEPTH: Final = 10
TRAIN_SECONDS: Final = 2.0
MAP_MS: Final = 100.0
QUERY_US: Final = 60.0
QUERY_DIMS: Final = 768
SINGLE_QUERIES: Final = 2_000
NOISES: Final = (0.1, 0.3, 0.6)
"""Length of the noise against that of the vector."""

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RecoveredRecall:
    """recall@10 against a full re-embed."""

    pair: str
    query_to_old: float
    forward: float
    kept: float | None
    """None where the widths differ: the old model's own questions are not known."""


@dataclass(frozen=True, slots=True)
class Times:
    chunks: int
    dims: int
    pairs: int
    train_seconds: float
    forward_train_seconds: float
    map_ms: float
    """``QUERIES`` at once."""
    query_us: float
    """One query of ``QUERY_DIMS``: the median of ``SINGLE_QUERIES``."""


def unit(rows: NDArray[Any]) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def made_up(chunks: int, dims: int, noise: float, seed: int = 7) -> tuple[Array, Array]:
    """Old and new vectors of as many chunks and ``HELD`` questions behind them."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(200, dims)) * np.linspace(2.0, 0.2, dims)
    which = rng.integers(0, len(topics), chunks)
    passages = topics[which] + 0.6 * rng.normal(size=(chunks, dims)) + rng.normal(size=dims)
    near = passages[rng.integers(0, chunks, HELD)]
    old = unit(np.concatenate([passages, near + 0.3 * rng.normal(size=(HELD, dims))]))
    rotation = np.linalg.qr(rng.normal(size=(dims, dims)))[0]
    spread = noise / np.sqrt(dims)
    new = (
        old @ rotation
        + 0.2 * unit(rng.normal(size=(1, dims)))
        + spread * rng.normal(size=old.shape)
    )
    return old, unit(new)


def recall(truth: Array, found: Array) -> float:
    true_neighbours = np.argpartition(-truth, DEPTH, axis=1)[:, :DEPTH]
    given = np.argpartition(-found, DEPTH, axis=1)[:, :DEPTH]
    return (
        float(
            np.mean(
                [len(np.intersect1d(a, b)) for a, b in zip(true_neighbours, given, strict=True)]
            )
        )
        / DEPTH
    )


def recovered(name: str, old: Array, new: Array) -> RecoveredRecall:
    """The last ``HELD`` rows ask; a sample of the others is learnt from."""
    chunks = len(old) - HELD
    size = max(round(SHARE * chunks), 3 * max(old.shape[1], new.shape[1]))
    picked = np.random.default_rng(1).permutation(chunks)[:size]
    adapter = DriftAdapter.train(old[picked], new[picked])
    forward = ForwardMap.train(old[picked], new[picked])
    questions_old, questions_new = old[chunks:], new[chunks:]
    truth = questions_new @ new[:chunks].T
    return RecoveredRecall(
        name,
        query_to_old=round(recall(truth, adapter.adapt_queries(questions_new) @ old[:chunks].T), 4),
        forward=round(recall(truth, questions_new @ forward.apply(old[:chunks]).T), 4),
        kept=round(recall(truth, questions_old @ old[:chunks].T), 4),
    )


def timed(chunks: int, dims: int) -> Times:
    old, new = made_up(chunks, dims, 0.3)
    size = round(SHARE * chunks)
    begun = perf_counter()
    adapter = DriftAdapter.train(old[:size], new[:size])
    trained = perf_counter() - begun
    begun = perf_counter()
    ForwardMap.train(old[:size], new[:size])
    forward = perf_counter() - begun
    queries = np.resize(new, (QUERIES, dims))
    adapter.adapt_queries(queries[:100])
    begun = perf_counter()
    adapter.adapt_queries(queries)
    return Times(
        chunks,
        dims,
        size,
        round(trained, 3),
        round(forward, 3),
        round((perf_counter() - begun) * 1000, 1),
        round(single_query_us(QUERY_DIMS), 1),
    )


def single_query_us(dims: int) -> float:
    old, new = made_up(2 * dims, dims, 0.3)
    adapter = DriftAdapter.train(old, new)
    times = []
    for query in np.resize(new, (SINGLE_QUERIES, dims)):
        begun = perf_counter()
        adapter.adapt_query(query)
        times.append(perf_counter() - begun)
    return float(np.median(times)) * 1e6


def main() -> int:
    given = arguments()
    times = timed(given.chunks, given.dims)
    pairs = [
        recovered(f"rotated, noise {noise:g}", *made_up(given.chunks, given.dims, noise))
        for noise in NOISES
    ]
    if given.old and given.new:
        pairs.append(recovered("two models", unit(np.load(given.old)), unit(np.load(given.new))))
    print(
        f"training on {times.pairs} of {times.chunks} x {times.dims}: {times.train_seconds} s "
        f"(forward {times.forward_train_seconds} s); {QUERIES} queries mapped in {times.map_ms} ms; "
        f"one query of {QUERY_DIMS} in {times.query_us} us"
    )
    for one in pairs:
        print(
            f"{one.pair:<20} query to old {one.query_to_old:.3f}  forward {one.forward:.3f}  kept {one.kept:.3f}"
        )
    if given.json:
        result = {"times": asdict(times), "recovered": [asdict(one) for one in pairs]}
        given.json.write_text(json.dumps(result, indent=1), encoding="utf-8")
    met = (
        times.train_seconds < TRAIN_SECONDS and times.map_ms < MAP_MS and times.query_us < QUERY_US
    )
    return 0 if met else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="time and recovery of drift adapters")
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--dims", type=int, default=384)
    parser.add_argument("--old", type=Path, help="vectors by the old model; the last 200 rows ask")
    parser.add_argument("--new", type=Path, help="the same texts by the new one")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
