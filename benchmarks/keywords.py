"""The keyword index: quality against bm25s on judged sets, latency on synthetic text.

    python benchmarks/keywords.py --data FOLDER     judged sets: corpus.jsonl, queries.jsonl, qrels.tsv
    python benchmarks/keywords.py --chunks 10000 100000

Both may be given; ``--json FILE`` keeps the numbers. Without ``--dsn`` a Postgres of its own is
started in a temporary folder; with it, the schema is made there and the containers are removed after use.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import bm25s
import ir_measures
import numpy as np
from numpy.typing import NDArray

from latent_core.bm25 import postings
from latent_core.bm25.analyser import analyse, query_terms
from latent_core.bm25.bm25 import PostgresKeywordIndex
from latent_core.bm25.compaction import RULES, compact, needed
from latent_core.bm25.language import detect_language
from latent_core.bm25.packing import ChunkTerms
from latent_core.db.connection import Database
from latent_core.db.migrate import migrate
from latent_core.runtime.data_directory import DataDirectory
from latent_core.runtime.postgres import EmbeddedPostgres

TOP: Final = 10
CANDIDATES: Final = 100
TIMEOUT: Final = 30.0
BATCH: Final = 500
MEASURE: Final = ir_measures.parse_measure("nDCG@10")

# Zipf-Mandelbrot, its head cut off as stop words are; a third of a text repeats what it has said.
VOCABULARY: Final = 300_000
HEAD: Final = 100
MEAN_LENGTH: Final = 110
REPEATED: Final = 0.3
QUERIES: Final = 200
WARM_UP: Final = 20


@dataclass(frozen=True, slots=True)
class KeywordJudgedSet:
    name: str
    ids: list[str]
    texts: list[str]
    queries: dict[str, str]
    qrels: list[ir_measures.Qrel]


@dataclass(frozen=True, slots=True)
class KeywordQuality:
    name: str
    documents: int
    queries: int
    ours: float
    bm25s: float


@dataclass(frozen=True, slots=True)
class KeywordLatency:
    chunks: int
    state: str
    terms: int
    p50_ms: float
    p95_ms: float
    rows: float
    """Posting rows read, on average."""
    matched: float


def _judged_sets(folder: Path) -> Iterator[KeywordJudgedSet]:
    for corpus in sorted(folder.rglob("corpus.jsonl")):
        home = corpus.parent
        documents = list(_records(corpus))
        yield KeywordJudgedSet(
            name=str(home.relative_to(folder)),
            ids=[document["_id"] for document in documents],
            texts=[f"{document.get('title') or ''}\n{document['text']}" for document in documents],
            queries={query["_id"]: query["text"] for query in _records(home / "queries.jsonl")},
            qrels=list(_qrels(home / "qrels.tsv")),
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


async def _quality(database: Database, judged: KeywordJudgedSet) -> KeywordQuality:
    counts = Counter(map(detect_language, judged.texts))
    languages = [detect_language(text, counts) for text in judged.texts]
    analysed = [
        analyse(text, language) for text, language in zip(judged.texts, languages, strict=True)
    ]
    entries = [
        ChunkTerms(chunk_no, found.length, found.tfs, language)
        for chunk_no, (found, language) in enumerate(zip(analysed, languages, strict=True))
    ]
    given_queries = {
        query: query_terms(text, sorted(set(languages))) for query, text in judged.queries.items()
    }
    container = judged.name.replace("/", "-")
    await _publish(database, container, entries)
    await compact(database, container, _go_on)
    ours = [scored async for scored in _ours(database, container, judged.ids, given_queries)]
    theirs = list(_bm25s(judged.ids, entries, given_queries))
    await _drop(database, container)
    return KeywordQuality(
        judged.name,
        len(entries),
        len({qrel.query_id for qrel in judged.qrels}),
        _ndcg(judged, ours),
        _ndcg(judged, theirs),
    )


def _ndcg(judged: KeywordJudgedSet, run: list[ir_measures.ScoredDoc]) -> float:
    return float(ir_measures.calc_aggregate([MEASURE], judged.qrels, run)[MEASURE])


async def _ours(
    database: Database, container: str, ids: Sequence[str], given_queries: dict[str, list[str]]
) -> AsyncIterator[ir_measures.ScoredDoc]:
    index = PostgresKeywordIndex(database)
    for query, terms in given_queries.items():
        hits = await index.search(container, terms, CANDIDATES, timeout_seconds=TIMEOUT)
        for chunk_no, score in zip(hits.chunk_nos, hits.scores, strict=True):
            yield ir_measures.ScoredDoc(query, ids[chunk_no], float(score))


def _bm25s(
    ids: Sequence[str], entries: Sequence[ChunkTerms], given_queries: dict[str, list[str]]
) -> Iterator[ir_measures.ScoredDoc]:
    tokens = [list(Counter(entry.tfs).elements()) for entry in entries]
    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    index.index(tokens, show_progress=False)
    for query, terms in given_queries.items():
        if not terms:
            continue
        found, scores = index.retrieve([terms], k=min(CANDIDATES, len(ids)), show_progress=False)
        for place, score in zip(found[0], scores[0], strict=True):
            if score > 0:
                yield ir_measures.ScoredDoc(query, ids[place], float(score))


def _synthetic(chunks: int, seed: int = 7) -> Iterator[NDArray[np.int64]]:
    """Terms (ranks) of each chunk."""
    random = np.random.default_rng(seed)
    reach = np.cumsum(1.0 / (np.arange(VOCABULARY) + HEAD))
    for _ in range(chunks):
        length = max(8, int(random.lognormal(np.log(MEAN_LENGTH), 0.4)))
        terms = np.searchsorted(reach, random.random(length) * reach[-1]).astype(np.int64)
        again = np.flatnonzero(random.random(length) < REPEATED)
        terms[again] = terms[(again * random.random(len(again))).astype(np.int64)]
        yield terms


def _entry(chunk_no: int, terms: NDArray[np.int64]) -> ChunkTerms:
    distinct, counts = np.unique(terms, return_counts=True)
    tfs = {
        f"term{rank}": count for rank, count in zip(distinct.tolist(), counts.tolist(), strict=True)
    }
    return ChunkTerms(chunk_no, len(terms), tfs)


async def _latency(database: Database, chunks: int) -> list[KeywordLatency]:
    """A corpus published in batches, then as many small publications as the rule leaves uncompacted."""
    container = f"synthetic-{chunks}"
    texts = list(_synthetic(chunks + 5 * RULES.unmerged_writes))
    entries = [_entry(chunk_no, terms) for chunk_no, terms in enumerate(texts)]
    await _ingest(database, container, entries[:chunks])
    await _compacted(database, container)
    await _publish(database, container, entries[chunks:], batch=5)
    results = [await _timed(database, container, texts, "loose", terms) for terms in (3, 14)]
    await _compacted(database, container)
    results += [await _timed(database, container, texts, "compacted", terms) for terms in (3, 14)]
    await _drop(database, container)
    return results


async def _compacted(database: Database, container: str) -> None:
    started = time.perf_counter()
    report = await compact(database, container, _go_on)
    _say(f"compacted in {time.perf_counter() - started:.1f} s: {report}")


async def _timed(
    database: Database, container: str, texts: Sequence[NDArray[np.int64]], state: str, terms: int
) -> KeywordLatency:
    index = PostgresKeywordIndex(database)
    random = np.random.default_rng(11)
    milliseconds, rows, matched = [], [], []
    for _ in range(WARM_UP + QUERIES):
        query = [f"term{rank}" for rank in _question(random, texts, terms)]
        started = time.perf_counter()
        hits = await index.search(container, query, CANDIDATES, timeout_seconds=TIMEOUT)
        milliseconds.append((time.perf_counter() - started) * 1000)
        rows.append(hits.rows_read)
        matched.append(hits.matched)
    p50, p95 = np.percentile(milliseconds[WARM_UP:], [50, 95])
    return KeywordLatency(
        len(texts),
        state,
        terms,
        round(p50, 2),
        round(p95, 2),
        float(np.mean(rows)),
        float(np.mean(matched)),
    )


def _question(
    random: np.random.Generator, texts: Sequence[NDArray[np.int64]], terms: int
) -> list[int]:
    """Distinct terms of a random chunk, frequent ones as often as it says them."""
    text_terms = texts[int(random.integers(len(texts)))]
    return list(dict.fromkeys(random.permutation(text_terms).tolist()))[:terms]


async def _publish(
    database: Database, container: str, entries: Sequence[ChunkTerms], batch: int = BATCH
) -> None:
    for start in range(0, len(entries), batch):
        async with database.transaction() as conn:
            await postings.write(conn, container, entries[start : start + batch])


async def _ingest(database: Database, container: str, entries: Sequence[ChunkTerms]) -> None:
    """Publish in batches and compact whenever it is due, as workers do."""
    writing = compacting = 0.0
    for start in range(0, len(entries), BATCH):
        started = time.perf_counter()
        await _publish(database, container, entries[start : start + BATCH])
        async with database.transaction() as conn:
            due = await needed(conn, container)
        written = time.perf_counter()
        if due:
            await compact(database, container, _go_on)
        writing += written - started
        compacting += time.perf_counter() - written
    _say(f"{len(entries)} chunks: written in {writing:.1f} s, compacted in {compacting:.1f} s")


async def _drop(database: Database, container: str) -> None:
    gone = 1
    while gone:
        async with database.transaction() as conn:
            gone = await postings.drop_batch(conn, container)


async def _go_on() -> None:
    """The checkpoint of a run that nobody cancels."""


@asynccontextmanager
async def _server(dsn: str | None) -> AsyncIterator[str]:
    if dsn is not None:
        yield dsn
        return
    with (
        tempfile.TemporaryDirectory(prefix="latent-bench-", ignore_cleanup_errors=True) as place,
        DataDirectory(Path(place) / "data") as directory,
    ):
        async with EmbeddedPostgres(directory.path) as server:
            yield server.dsn


def _say(line: str) -> None:
    print(line, flush=True)


async def _run(arguments: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    quality: list[KeywordQuality] = []
    latency: list[KeywordLatency] = []
    async with _server(arguments.dsn) as dsn:
        await migrate(dsn)
        async with await Database.open(dsn, name="benchmark") as database:
            for judged in _judged_sets(arguments.data) if arguments.data else ():
                quality.append(await _quality(database, judged))
                _say(_quality_line(quality[-1]))
            for chunks in arguments.chunks:
                latency += await _latency(database, chunks)
                _say("\n".join(map(_latency_line, latency[-4:])))
    return {"quality": [asdict(q) for q in quality], "latency": [asdict(row) for row in latency]}


def _quality_line(row: KeywordQuality) -> str:
    difference = f"{row.ours - row.bm25s:+.4f}"
    return f"{row.name:20} nDCG@{TOP} ours {row.ours:.4f}  bm25s {row.bm25s:.4f}  {difference}"


def _latency_line(row: KeywordLatency) -> str:
    return (
        f"{row.chunks:>8} chunks {row.state:>9} {row.terms:>3} terms: p50 {row.p50_ms:7.2f} ms"
        f"  p95 {row.p95_ms:7.2f} ms  rows {row.rows:7.0f}  matched {row.matched:8.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of judged sets")
    parser.add_argument(
        "--chunks", type=int, nargs="*", default=[], help="sizes to measure latency at"
    )
    parser.add_argument("--dsn", help="a Postgres to use instead of an own one")
    parser.add_argument("--json", type=Path, help="file to write the numbers to")
    arguments = parser.parse_args()
    numbers = asyncio.run(_run(arguments))
    if arguments.json:
        arguments.json.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
