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

from benchmarks.installation import BenchmarkInstallation, add, create, ended, quiet
from latent_client import AsyncClient
from latent_core.bm25.analyser import analyse, query_terms, unindexed
from latent_core.bm25.language import detect_language
from latent_core.bm25.scoring import K1, B
from latent_core.db.connection import Database
from latent_core.db.spaces import embedding_cache as embeddings
from latent_core.domain.ids import Sha256
from latent_core.domain.manifest.model import Fusion, FusionMethod, SearchMode
from latent_core.eval.reporting import paired_interval
from latent_core.models.embedding import multilingual
from latent_core.models.embedding.minilm import DIMS, FP32, WINDOW
from latent_core.models.embedding.port import EmbeddingModel
from latent_core.wire.evaluation import Interval
from latent_core.wire.search import SearchRequest

SETS: Final = (
    "cranfield",
    "cisi",
    "cacm",
    "medline",
    "cosqa",
    "lisa",
    "time",
    "adi",
    "multihop-hotpotqa",
    "cookbook-docs",
    "fetaqa-tables",
    "xquad/en",
    "xquad/de",
    "xquad/es",
)
WEIGHTS: Final = (0.25, 0.5, 2.0, 4.0, 8.0)
"""Of the vector channel, against 1 of the keywords, when the best fusion of a container is looked for."""
AT_ONCE: Final = 3
"""Queries; more would wait for each other, and might miss their deadline."""
SEARCHED: Final = 500
"""Queries that are asked with every weight; a set of more is asked with none but the usual ones."""
TOP: Final = 10
MEASURE: Final = ir_measures.parse_measure(f"nDCG@{TOP}")
SPACES: Final = {
    FP32.embedder: EmbeddingModel(FP32.embedder, FP32.version, DIMS, WINDOW).key,
    multilingual.VARIANT.embedder: multilingual.MODEL.key,
}
"""Embedder to the name of its vectors in the cache."""
PREFILL: Final = 2000
VECTORS: Final = """
SELECT content_hash, vector FROM embedding_cache WHERE space = %(space)s ORDER BY content_hash
"""


@dataclass(frozen=True, slots=True)
class SearchJudgedSet:
    name: str
    corpus: Path
    ids: list[str]
    texts: list[str]
    queries: dict[str, str]
    """Those with a judgement."""
    qrels: list[ir_measures.Qrel]


@dataclass(frozen=True, slots=True)
class SearchQuality:
    """nDCG@10 of one set."""

    name: str
    embedder: str
    documents: int
    queries: int
    bm25s: float
    lexical: float
    semantic: float
    hybrid: float
    """Reciprocal rank fusion, as it is set by default."""
    hybrid_dbsf: float | None
    """Distribution-based score fusion; None if it was not asked."""
    hybrid_auto: float
    """What the manifests of new containers name."""
    best: float
    """Of all fusions and weights that were tried."""
    best_fusion: str
    against_better: Interval
    """Hybrid (RRF) less the better of its channels, query by query."""
    auto_against_better: Interval
    """The same for ``auto``."""


def read_set(folder: Path) -> SearchJudgedSet:
    documents = list(_records(folder / "corpus.jsonl"))
    qrels = list(_qrels(folder / "qrels.tsv"))
    judged = {qrel.query_id for qrel in qrels}
    return SearchJudgedSet(
        "-".join(folder.parts[-2:]) if folder.parent.name == "xquad" else folder.name,
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


async def quality(
    installation: BenchmarkInstallation,
    judged: SearchJudgedSet,
    cache: Path | None,
    embedder: str = FP32.embedder,
    *,
    defaults_only: bool = False,
) -> SearchQuality:
    """Ingest a set and ask all its queries in every mode. ``cache`` keeps vectors between runs. ``defaults_only``: by no
    fusion but those that containers have."""
    kept = None if cache is None else cache / f"vectors-{embedder}.npz"
    if kept is not None:
        await _load(installation, kept, SPACES[embedder])
    async with installation.client() as client:
        await create(client, judged.name, embedder=embedder)
        await ended(client, [await add(client, judged.name, judged.corpus)])
        await quiet(client, judged.name)
        if kept is not None:
            await _save(installation, kept, SPACES[embedder])
        single = {
            mode: ndcg_by_query(judged, await search_all(client, judged, mode))
            for mode in (SearchMode.LEXICAL, SearchMode.SEMANTIC)
        }
        fused = {
            name: ndcg_by_query(
                judged, await search_all(client, judged, SearchMode.HYBRID, fusion=fusion)
            )
            for name, fusion in _fusions(len(judged.queries), defaults_only=defaults_only)
        }
    better = max(single.values(), key=mean)
    best = max(fused, key=lambda name: mean(fused[name]))
    return SearchQuality(
        name=judged.name,
        embedder=embedder,
        documents=len(judged.ids),
        queries=len(judged.queries),
        bm25s=mean(_ndcg(judged, list(_reference(judged)))),
        lexical=mean(single[SearchMode.LEXICAL]),
        semantic=mean(single[SearchMode.SEMANTIC]),
        hybrid=mean(fused["rrf"]),
        hybrid_dbsf=mean(fused["dbsf"]) if "dbsf" in fused else None,
        hybrid_auto=mean(fused["auto"]),
        best=mean(fused[best]),
        best_fusion=best,
        against_better=paired_interval(fused["rrf"], better),
        auto_against_better=paired_interval(fused["auto"], better),
    )


def _fusions(queries: int, *, defaults_only: bool) -> Iterator[tuple[str, Fusion]]:
    if defaults_only:
        for method in (FusionMethod.RRF, FusionMethod.AUTO):
            yield method.value, Fusion(method=method)
        return
    for method in FusionMethod:
        weights = {"vector": 0.6, "bm25": 0.4} if method is FusionMethod.WEIGHTED else {}
        yield method.value, Fusion(method=method, weights=weights)
        if queries <= SEARCHED and method is not FusionMethod.WEIGHTED:
            for weight in WEIGHTS:
                name = f"{method.value}, vector x {weight:g}"
                yield name, Fusion(method=method, weights={"vector": weight})


async def search_all(
    client: AsyncClient,
    judged: SearchJudgedSet,
    mode: SearchMode,
    *,
    fusion: Fusion | None = None,
    top_k: int = TOP,
) -> list[list[str]]:
    """The documents of the hits of every query, in the order of the queries. Each is sent once, a few at a time."""
    free = asyncio.Semaphore(AT_ONCE)

    async def search(text: str) -> list[str]:
        request = SearchRequest(
            containers=[judged.name], query=text, top_k=top_k, mode=mode, fusion=fusion
        )
        async with free:
            answer = await client.search(request)
        if answer.partial:
            raise RuntimeError(f"a search in {judged.name} was partial: {answer.issues}")
        return [str(hit.external_id) for hit in answer.hits]

    return await asyncio.gather(*map(search, judged.queries.values()))


def _reference(judged: SearchJudgedSet) -> Iterator[ir_measures.ScoredDoc]:
    languages = detected(judged.texts)
    tokens = [
        list(Counter(analyse(text, language).tfs).elements())
        for text, language in zip(judged.texts, languages, strict=True)
    ]
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    index.index(tokens, show_progress=False)
    usual = _usual_stop_words(languages)
    for query, text in judged.queries.items():
        if terms := [t for t in query_terms(text, sorted(set(languages))) if t not in usual]:
            found, scores = index.retrieve([terms], k=TOP, show_progress=False)
            for place, score in zip(found[0], scores[0], strict=True):
                if score > 0:
                    yield ir_measures.ScoredDoc(query, judged.ids[place], float(score))


def detected(texts: Sequence[str]) -> list[str]:
    """The language of each text among the others, as in one container."""
    counts = Counter(map(detect_language, texts))
    return [detect_language(text, counts) for text in texts]


def _usual_stop_words(languages: Sequence[str]) -> set[str]:
    """Terms that half of the texts and more leave out as stop words. Where others index them, bm25s would take
    them for rare; in the container they are counted in the texts that leave them out, too."""
    texts = Counter(languages)
    return {
        term
        for term, silent in unindexed(frozenset(texts)).items()
        if sum(texts[language] for language in silent) * 2 >= len(languages)
    }


def ndcg_by_query(judged: SearchJudgedSet, found: Sequence[Sequence[str]]) -> list[float]:
    """nDCG of each query by its documents, the best one first; 0 for a query without hits."""
    # By place: hits of the same score stand in the order they were given in.
    run = [
        ir_measures.ScoredDoc(query, document, float(-place))
        for query, documents in zip(judged.queries, found, strict=True)
        for place, document in enumerate(documents)
    ]
    return _ndcg(judged, run)


def _ndcg(judged: SearchJudgedSet, run: Sequence[ir_measures.ScoredDoc]) -> list[float]:
    found = {
        one.query_id: float(one.value)
        for one in ir_measures.iter_calc([MEASURE], judged.qrels, run)
    }
    return [found.get(query, 0.0) for query in judged.queries]


def mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


async def _load(installation: BenchmarkInstallation, file: Path, space: str) -> None:
    if not await asyncio.to_thread(file.exists):
        return
    with np.load(file) as kept:
        hashes = [Sha256(one) for one in kept["hashes"].tolist()]
        vectors = kept["vectors"]
    async with installation.database() as database:
        for start in range(0, len(hashes), PREFILL):
            part = slice(start, start + PREFILL)
            async with database.transaction() as conn:
                await embeddings.insert(conn, space, hashes[part], vectors[part])


async def _save(installation: BenchmarkInstallation, file: Path, space: str) -> None:
    async with installation.database() as database:
        rows = await _vectors(database, space)
    await asyncio.to_thread(_write, file, rows)


def _write(file: Path, rows: Sequence[tuple[str, bytes]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"draft-{file.name}")
    np.savez(
        draft,
        hashes=np.array([hash_ for hash_, _ in rows]),
        vectors=np.stack([np.frombuffer(vector, "<f4") for _, vector in rows]),
    )
    draft.rename(file)


async def _vectors(database: Database, space: str) -> list[tuple[str, bytes]]:
    async with (
        database.transaction() as conn,
        conn.cursor(row_factory=tuple_row, binary=True) as cursor,
    ):
        await cursor.execute(VECTORS, {"space": space})
        return list(await cursor.fetchall())
