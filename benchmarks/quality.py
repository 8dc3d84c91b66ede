"""Retrieval quality on judged sets, through the whole system: ingested as JSONL corpora, asked over HTTP.

A set is a folder with ``corpus.jsonl`` (_id, title, text), ``queries.jsonl`` (_id, text) and ``qrels.tsv``
(query, document, grade). The reference for the keyword channel is bm25s (Lucene's variant, same k1 and b) over
whole documents, with the terms of our own analyser.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import bm25s
import ir_measures
import numpy as np
from psycopg.rows import tuple_row

from benchmarks.installation import Installation, add, create, ended, quiet
from latent_client import AsyncClient
from latent_core.domain.ids import Sha256
from latent_core.domain.manifest import Manifest, SearchMode
from latent_core.domain.query import SearchRequest
from latent_core.embedding.minilm import DIMS, FP32, WINDOW
from latent_core.embedding.port import EmbeddingModel
from latent_core.keywords.analyser import analyse, query_terms
from latent_core.keywords.language import detect_language
from latent_core.keywords.scoring import K1, B
from latent_core.registry import embeddings
from latent_core.registry.connection import Database

SETS: Final = ("cranfield", "cisi", "cacm", "medline", "cosqa")
TOP: Final = 10
MEASURE: Final = ir_measures.parse_measure(f"nDCG@{TOP}")
SPACE: Final = EmbeddingModel(FP32.embedder, FP32.version, DIMS, WINDOW).key
KEPT: Final = "vectors-local.npz"
PREFILL: Final = 2000
VECTORS: Final = """
SELECT content_hash, vector FROM embedding_cache WHERE space = %(space)s ORDER BY content_hash
"""


@dataclass(frozen=True, slots=True)
class JudgedSet:
    name: str
    corpus: Path
    ids: list[str]
    texts: list[str]
    queries: dict[str, str]
    """Those with a judgement."""
    qrels: list[ir_measures.Qrel]


@dataclass(frozen=True, slots=True)
class Quality:
    """nDCG@10 of one set."""

    name: str
    documents: int
    queries: int
    bm25s: float
    lexical: float
    semantic: float
    hybrid: float
    """Reciprocal rank fusion, as it is set by default."""
    hybrid_dbsf: float
    """Distribution-based score fusion, by the manifest."""


def read_set(folder: Path) -> JudgedSet:
    documents = list(_records(folder / "corpus.jsonl"))
    qrels = list(_qrels(folder / "qrels.tsv"))
    judged = {qrel.query_id for qrel in qrels}
    return JudgedSet(
        folder.name,
        folder / "corpus.jsonl",
        [document["_id"] for document in documents],
        [f"{document.get('title') or ''}\n{document['text']}" for document in documents],
        {q["_id"]: q["text"] for q in _records(folder / "queries.jsonl") if q["_id"] in judged},
        qrels,
    )


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="\n") as lines:
        yield from map(json.loads, lines)


def _qrels(path: Path) -> Iterator[ir_measures.Qrel]:
    with path.open(encoding="utf-8", newline="\n") as lines:
        next(lines)
        for line in lines:
            query, document, grade = line.rstrip("\n").split("\t")
            yield ir_measures.Qrel(query, document, max(0, int(float(grade))))


async def quality(installation: Installation, judged: JudgedSet, cache: Path | None) -> Quality:
    """Ingest a set and ask all its queries in every mode. ``cache`` keeps vectors between runs."""
    if cache is not None:
        await _load(installation, cache)
    async with installation.client() as client:
        await create(client, judged.name)
        await ended(client, [await add(client, judged.name, judged.corpus)])
        await quiet(client, judged.name)
        if cache is not None:
            await _save(installation, cache)
        scores = {
            mode: _ndcg(judged, await _asked(client, judged, mode))
            for mode in (SearchMode.LEXICAL, SearchMode.SEMANTIC, SearchMode.HYBRID)
        }
        await _fuse_by_dbsf(client, judged.name)
        dbsf = _ndcg(judged, await _asked(client, judged, SearchMode.HYBRID))
    return Quality(
        name=judged.name,
        documents=len(judged.ids),
        queries=len(judged.queries),
        bm25s=_ndcg(judged, list(_reference(judged))),
        lexical=scores[SearchMode.LEXICAL],
        semantic=scores[SearchMode.SEMANTIC],
        hybrid=scores[SearchMode.HYBRID],
        hybrid_dbsf=dbsf,
    )


async def _asked(
    client: AsyncClient, judged: JudgedSet, mode: SearchMode
) -> list[ir_measures.ScoredDoc]:
    run = []
    for query_id, text in judged.queries.items():
        request = SearchRequest(containers=[judged.name], query=text, top_k=TOP, mode=mode)
        answer = await client.search(request)
        if answer.partial:
            raise RuntimeError(f"a search in {judged.name} was partial: {answer.issues}")
        for place, hit in enumerate(answer.hits):
            # By place: hits of the same score stand in the order they were given in.
            run.append(ir_measures.ScoredDoc(query_id, str(hit.external_id), float(TOP - place)))
    return run


async def _fuse_by_dbsf(client: AsyncClient, container: str) -> None:
    described = await client.describe(container)
    keys = Manifest.model_validate(described.manifest).model_dump(exclude_unset=True)
    keys["retrieval"] = {"fusion": {"method": "dbsf"}}
    await client.update(Manifest.model_validate(keys), if_match=described.etag)


def _reference(judged: JudgedSet) -> Iterator[ir_measures.ScoredDoc]:
    languages = [detect_language(text) for text in judged.texts]
    tokens = [
        list(Counter(analyse(text, language).tfs).elements())
        for text, language in zip(judged.texts, languages, strict=True)
    ]
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    index.index(tokens, show_progress=False)
    for query, text in judged.queries.items():
        if terms := query_terms(text, sorted(set(languages))):
            found, scores = index.retrieve([terms], k=TOP, show_progress=False)
            for place, score in zip(found[0], scores[0], strict=True):
                if score > 0:
                    yield ir_measures.ScoredDoc(query, judged.ids[place], float(score))


def _ndcg(judged: JudgedSet, run: Sequence[ir_measures.ScoredDoc]) -> float:
    return round(float(ir_measures.calc_aggregate([MEASURE], judged.qrels, run)[MEASURE]), 4)


async def _load(installation: Installation, cache: Path) -> None:
    file = cache / KEPT
    if not file.exists():
        return
    with np.load(file) as kept:
        hashes = [Sha256(one) for one in kept["hashes"].tolist()]
        vectors = kept["vectors"]
    async with installation.database() as database:
        for start in range(0, len(hashes), PREFILL):
            part = slice(start, start + PREFILL)
            async with database.transaction() as conn:
                await embeddings.insert(conn, SPACE, hashes[part], vectors[part])


async def _save(installation: Installation, cache: Path) -> None:
    async with installation.database() as database:
        rows = await _vectors(database)
    await asyncio.to_thread(_write, cache, rows)


def _write(cache: Path, rows: Sequence[tuple[str, bytes]]) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    draft = cache / f"draft-{KEPT}"
    np.savez(
        draft,
        hashes=np.array([hash_ for hash_, _ in rows]),
        vectors=np.stack([np.frombuffer(vector, "<f4") for _, vector in rows]),
    )
    draft.rename(cache / KEPT)


async def _vectors(database: Database) -> list[tuple[str, bytes]]:
    async with (
        database.transaction() as conn,
        conn.cursor(row_factory=tuple_row, binary=True) as cursor,
    ):
        await cursor.execute(VECTORS, {"space": SPACE})
        return list(await cursor.fetchall())
