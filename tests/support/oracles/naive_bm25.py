"""BM25 as its formula reads, over plain dicts: what the keyword index is held against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from latent_core.bm25.packing import ChunkTerms

K1 = 1.2
B = 0.75


class NaiveBM25:
    """The live chunks of one container."""

    def __init__(self, chunks: Iterable[ChunkTerms] = ()) -> None:
        self.chunks = {chunk.chunk_no: chunk for chunk in chunks}

    def publish(self, chunks: Iterable[ChunkTerms]) -> None:
        self.chunks |= {chunk.chunk_no: chunk for chunk in chunks}

    def mark_dead(self, chunk_nos: Iterable[int]) -> None:
        for chunk_no in chunk_nos:
            del self.chunks[chunk_no]

    def copy(self) -> NaiveBM25:
        return NaiveBM25(self.chunks.values())

    def search(
        self, terms: Sequence[str], k: int, allowed: Collection[int] | None = None
    ) -> list[tuple[int, float]]:
        """(chunk_no, score), best first, equal scores by chunk_no."""
        if not self.chunks:
            return []
        average = sum(c.length for c in self.chunks.values()) / len(self.chunks)
        scores: dict[int, float] = {}
        for term, count in Counter(terms).items():
            holders = [c for c in self.chunks.values() if term in c.tfs]
            idf = math.log(1 + (len(self.chunks) - len(holders) + 0.5) / (len(holders) + 0.5))
            for chunk in holders:
                tf = float(chunk.tfs[term])
                # In the index's order of operations: what is equal there is equal here, to the last bit.
                norm = chunk.length * (K1 * B / average) + K1 * (1 - B) + tf
                scores[chunk.chunk_no] = scores.get(chunk.chunk_no, 0.0) + tf * (count * idf) / norm
        found = [(o, s) for o, s in scores.items() if allowed is None or o in allowed]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:k]
