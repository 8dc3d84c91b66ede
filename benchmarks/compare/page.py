"""The page of a comparison, made from its figures alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

HEAD: Final = """# Comparison with other libraries

Made by `make compare` on {date}, on one machine with two cores (load {before} before and {after} after). All
participants got the same texts, the same vectors of 384 dimensions and the same queries, in turns, and embedded each
query by the same model; no query was asked twice. The texts are synthetic (benchmarks/README.md), so this page says
nothing about the quality of results. The best value of each row is bold.

Ours is a server: its times are those of a client over HTTP, with rights, joins on what is visible, snippets and links.
The others answer inside the process that measures them, and check, join and show nothing. Pinned versions are in
`benchmarks/compare/requirements/`; the adapters beside them show how each is used: bm25s with exact vectors in numpy,
LanceDB with IVF-PQ and refinement, SQLite with FTS5 and sqlite-vec, Chroma (which ranks no words), qdrant-client with
its engine in the process, and LangChain's ensemble of BM25 and FAISS.
"""
ABOUT: Final = {
    "latent": "Latent Containers",
    "bm25s": "bm25s",
    "lancedb": "LanceDB",
    "sqlite": "SQLite",
    "chroma": "Chroma",
    "qdrant": "qdrant-client",
    "langchain": "LangChain",
}
Row = tuple[str, list[float | None], bool]
"""What it is, one value per participant, and whether more is better."""


def page_of(report: Mapping[str, Any]) -> str:
    """Markdown: a table for each size."""
    before, after = report["load"]
    parts = [HEAD.format(date=report["date"], before=before, after=after)]
    results: Sequence[Mapping[str, Any]] = report["results"]
    for chunks in dict.fromkeys(one["chunks"] for one in results):
        of_size = [one for one in results if one["chunks"] == chunks]
        parts.append(_table(chunks, [one for one in of_size if not one["reason"]]))
        parts += [
            f"- {ABOUT.get(one['name'], one['name'])}: not measured, since {one['reason']}\n"
            for one in of_size
            if one["reason"]
        ]
    return "\n".join(parts)


def _table(chunks: int, results: Sequence[Mapping[str, Any]]) -> str:
    names = [ABOUT.get(one["name"], one["name"]) for one in results]
    lines = [
        f"## {chunks:,} chunks\n",
        "| | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    lines += [_line(row) for row in _rows(results)]
    return "\n".join(lines) + "\n"


def _rows(results: Sequence[Mapping[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    for mode in ("words", "vectors", "hybrid"):
        for key, name in (("p50_ms", "p50"), ("p95_ms", "p95")):
            values = [one["latency"].get(mode, {}).get(key) for one in results]
            rows.append((f"{mode}, {name}, ms", values, False))
    for key, what, more in (
        ("per_second", "searches a second, 8 clients (hybrid; vectors without that mode)", True),
        ("ingested_per_second", "chunks taken in a second, vectors given", True),
        ("memory_mb", "memory after the searches, MB", False),
        ("disk_mb", "disk, MB", False),
    ):
        rows.append((what, [one[key] for one in results], more))
    return rows


def _line(row: Row) -> str:
    what, values, more = row
    known = [value for value in values if value is not None]
    top = (max if more else min)(known, default=None)
    cells = ["" if v is None else f"**{v:g}**" if v == top else f"{v:g}" for v in values]
    return f"| {what} | " + " | ".join(cells) + " |"
