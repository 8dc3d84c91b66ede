"""Quality beside other libraries: judged sets, chunked and embedded by ours, given to each as texts and vectors.

A document's rank is that of its best chunk. Ours has further vectors of long chunks, of which others get the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from benchmarks.compare.environment import GivenFiles, Model, PeerProcess, Peers, model_of
from benchmarks.compare.figures import JudgedFigures, JudgedSet
from benchmarks.compare.modes import OUR_MODES, OURS, OURS_BY_RANKS
from benchmarks.compare.peers.query_model import QueryModel
from benchmarks.installation import BenchmarkInstallation, add, create, ended, quiet
from benchmarks.quality import SPACES, TOP, SearchJudgedSet, mean, ndcg_by_query, search_all
from latent_client import AsyncClient
from latent_core.domain.errors import LatentError
from latent_core.domain.retrieval import Fusion, FusionMethod, SearchMode
from latent_core.eval.reporting import paired_interval
from latent_core.models.embedding.minilm import FP32

CHUNKS_PER_QUERY: Final = 50
"""Enough to hold ten documents."""
CHUNKS: Final = """
SELECT d.external_id, coalesce(c.embed_text, c.embed_head || c.text) AS text, k.vector
FROM chunks c
JOIN documents d ON d.id = c.doc_id AND d.live_generation = c.generation
LEFT JOIN embedding_cache k
  ON k.space = %(space)s
     AND k.content_hash = encode(sha256(convert_to(coalesce(c.embed_text, c.embed_head || c.text), 'UTF8')), 'hex')
WHERE c.container_id = %(container_id)s AND d.deleted_at IS NULL
ORDER BY c.chunk_no
"""


@dataclass(frozen=True, slots=True)
class SharedChunks:
    """Documents, texts and vectors of the chunks of a set, in one order."""

    documents: list[str]
    texts: list[str]
    vectors: NDArray[np.float32]


async def judged_by_all(
    installation: BenchmarkInstallation,
    judged: SearchJudgedSet,
    peers: Peers,
    folder: Path,
) -> JudgedSet:
    """``folder``: an empty one, for what peers store."""
    async with installation.client() as client:
        await create(client, judged.name)
        await ended(client, [await add(client, judged.name, judged.corpus)])
        await quiet(client, judged.name)
        ours: dict[str, list[float]] = {}
        for mode, our_mode in OUR_MODES.items():
            ours[mode] = await _ndcg_of_ours(client, judged, our_mode)
        rrf = Fusion(method=FusionMethod.RRF)
        by_ranks = await _ndcg_of_ours(client, judged, SearchMode.HYBRID, rrf)
    model = await model_of(installation)
    chunks = await _shared_chunks(installation, judged.name, model)
    given = await asyncio.to_thread(GivenFiles.write, folder, chunks.texts, chunks.vectors)
    results = [
        JudgedFigures(OURS, {mode: mean(values) for mode, values in ours.items()}),
        _compared(OURS_BY_RANKS, ours, {"hybrid": by_ranks}),
    ]
    for name in peers.names:
        try:
            async with PeerProcess.running(name, folder / name, model, peers.qdrant) as process:
                theirs = await _by_mode(process, judged, given, chunks.documents)
        except LatentError as error:
            results.append(JudgedFigures(name, reason=error.message))
            print(f"  {judged.name}, {name}: {error.message}", flush=True)
            continue
        results.append(_compared(name, ours, theirs))
        print(f"  {judged.name}, {name}: {results[-1].ndcg}", flush=True)
    return JudgedSet(judged.name, len(judged.ids), len(chunks.texts), len(judged.queries), results)


def _compared(
    name: str, ours: Mapping[str, list[float]], theirs: Mapping[str, list[float]]
) -> JudgedFigures:
    difference = {mode: paired_interval(ours[mode], values) for mode, values in theirs.items()}
    return JudgedFigures(name, {mode: mean(values) for mode, values in theirs.items()}, difference)


async def _ndcg_of_ours(
    client: AsyncClient, judged: SearchJudgedSet, mode: SearchMode, fusion: Fusion | None = None
) -> list[float]:
    """Of each query; ``fusion``: None for that of the container."""
    found = await search_all(client, judged, mode, fusion=fusion, top_k=CHUNKS_PER_QUERY)
    return ndcg_by_query(judged, _first_documents(found))


async def _by_mode(
    process: PeerProcess, judged: SearchJudgedSet, given: GivenFiles, documents: Sequence[str]
) -> dict[str, list[float]]:
    """nDCG of each query, for every mode that the peer has."""
    await process.ask(op="ingest", texts=str(given.texts), vectors=str(given.vectors))
    by_mode: dict[str, list[float]] = {}
    queries = list(judged.queries.values())
    for mode in (await process.ask(op="modes"))["modes"]:
        answer = await process.ask(op="rank", mode=mode, queries=queries, k=CHUNKS_PER_QUERY)
        found = [[documents[position] for position in hits] for hits in answer["hits"]]
        by_mode[mode] = ndcg_by_query(judged, _first_documents(found))
    return by_mode


def _first_documents(found: Sequence[Sequence[str]]) -> list[list[str]]:
    """The first ten different documents of each query."""
    return [list(dict.fromkeys(documents))[:TOP] for documents in found]


async def _shared_chunks(
    installation: BenchmarkInstallation, container: str, model: Model
) -> SharedChunks:
    values = {"container_id": container, "space": SPACES[FP32.embedder]}
    async with (
        installation.database() as database,
        database.transaction() as conn,
        conn.cursor(row_factory=tuple_row, binary=True) as cursor,
    ):
        await cursor.execute(CHUNKS, values)
        rows = await cursor.fetchall()
    return await asyncio.to_thread(_with_vectors, rows, model)


def _with_vectors(rows: Sequence[tuple[str, str, bytes | None]], model: Model) -> SharedChunks:
    """A chunk with more than one vector, which ours has for several windows, gets that of its beginning."""
    embedder: QueryModel | None = None
    vectors: list[NDArray[np.float32]] = []
    for _, text, vector in rows:
        if vector is None:
            embedder = embedder or QueryModel(model.onnx, model.tokenizer)
            vectors.append(embedder.embed(text))
        else:
            vectors.append(np.frombuffer(vector, "<f4"))
    matrix = np.stack(vectors).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return SharedChunks([row[0] for row in rows], [row[1] for row in rows], matrix)
