"""Quality beside other libraries: judged sets, chunked and embedded by ours, given to each as texts and vectors.

Every participant ranks the same chunks by the same vectors, so what differs is its ranking of words, its search for
vectors, and its fusion. A document's rank is that of its best chunk.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import ir_measures
import numpy as np
from numpy.typing import NDArray
from psycopg.rows import tuple_row

from benchmarks.compare.environment import Model, PeerProcess, Peers, model_of
from benchmarks.compare.figures import JudgedFigures, JudgedSet
from benchmarks.compare.modes import MODES, OUR_MODES, OURS
from benchmarks.compare.peers.query_model import QueryModel
from benchmarks.installation import BenchmarkInstallation, add, create, ended, quiet
from benchmarks.quality import AT_ONCE, SPACES, TOP, SearchJudgedSet, mean, ndcg_by_query
from latent_client import AsyncClient
from latent_core.domain.errors import LatentError
from latent_core.eval.reporting import paired_interval
from latent_core.models.embedding.minilm import FP32
from latent_core.wire.search import SearchRequest

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
        ours = {mode: await _ours(client, judged, mode) for mode in MODES}
    model = await model_of(installation)
    chunked = await _shared_chunks(installation, judged.name, model)
    results = [JudgedFigures(OURS, {mode: mean(found) for mode, found in ours.items()})]
    for name in peers.names:
        try:
            theirs = await _theirs(name, judged, chunked, model, folder, peers.qdrant)
        except LatentError as error:
            results.append(JudgedFigures(name, reason=error.message))
            continue
        behind = {mode: paired_interval(ours[mode], found) for mode, found in theirs.items()}
        ndcg = {mode: mean(found) for mode, found in theirs.items()}
        results.append(JudgedFigures(name, ndcg, behind))
        print(f"  {judged.name}, {name}: {ndcg}", flush=True)
    return JudgedSet(judged.name, len(judged.ids), len(chunked.texts), len(judged.queries), results)


async def _ours(client: AsyncClient, judged: SearchJudgedSet, mode: str) -> list[float]:
    """nDCG of each query."""
    free = asyncio.Semaphore(AT_ONCE)

    async def ask(text: str) -> list[str]:
        request = SearchRequest(
            containers=[judged.name], query=text, top_k=CHUNKS_PER_QUERY, mode=OUR_MODES[mode]
        )
        async with free:
            answer = await client.search(request)
        if answer.partial:
            raise RuntimeError(f"a search in {judged.name} was partial: {answer.issues}")
        return [str(hit.external_id) for hit in answer.hits]

    found = await asyncio.gather(*map(ask, judged.queries.values()))
    return ndcg_by_query(judged, _run(judged, found))


async def _theirs(
    name: str,
    judged: SearchJudgedSet,
    chunked: SharedChunks,
    model: Model,
    folder: Path,
    qdrant: str,
) -> dict[str, list[float]]:
    lines, rows = folder / f"{judged.name}.jsonl", folder / f"{judged.name}.npy"
    lines.write_text("".join(json.dumps(text) + "\n" for text in chunked.texts), "utf-8")
    np.save(rows, chunked.vectors)
    process = await PeerProcess.start(name, folder / f"{name}-{judged.name}", model, qdrant)
    try:
        await process.ask(op="ingest", texts=str(lines), vectors=str(rows))
        of_mode: dict[str, list[float]] = {}
        for mode in (await process.ask(op="modes"))["modes"]:
            queries = list(judged.queries.values())
            answer = await process.ask(op="rank", mode=mode, queries=queries, k=CHUNKS_PER_QUERY)
            found = [[chunked.documents[one] for one in hits] for hits in answer["hits"]]
            of_mode[mode] = ndcg_by_query(judged, _run(judged, found))
    finally:
        await process.stop()
    return of_mode


def _run(judged: SearchJudgedSet, found: Sequence[Sequence[str]]) -> list[ir_measures.ScoredDoc]:
    """The first ten documents of each query."""
    return [
        ir_measures.ScoredDoc(query, document, float(TOP - place))
        for query, documents in zip(judged.queries, found, strict=True)
        for place, document in enumerate(list(dict.fromkeys(documents))[:TOP])
    ]


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
