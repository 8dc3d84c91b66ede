"""The page of a comparison, made from its figures alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from benchmarks.compare.modes import MODES, OURS, TITLES, title

FEATURES: Final = Path(__file__).resolve().parent / "features.json"
WIDTH: Final = 118
HEAD: Final = """# Comparison with other libraries

Made by `make compare`. The best value of each row is bold, also where it is not ours.

Ours is a server: its times are those of a client over HTTP, with rights, joins on what is visible, snippets and links.
Libraries answer inside the process that measures them, and check, join and show nothing. Pinned versions are in
`benchmarks/compare/requirements/`; the adapters in `benchmarks/compare/peers/` show how each is used: bm25s with exact
vectors in numpy, LanceDB with IVF-PQ and refinement, SQLite with FTS5 and sqlite-vec, Chroma (whose engine in the
process ranks no words), qdrant-client with its engine in the process, LangChain's ensemble of BM25 and FAISS, txtai's
hybrid of BM25 and FAISS, and, where an address was given, a Qdrant server with its own hybrid search.
"""
SPEED: Final = """## Speed, memory and disk

All got the same texts, the same vectors of 384 dimensions and the same queries, in turns, and embedded each query by
the same model; no query was asked twice. The texts are synthetic (`benchmarks/README.md`). Compare within a table only:
the sizes were measured at different times, and machines change their speed.

![Bars of the times](comparison.svg)
"""
JUDGED: Final = """## Quality

nDCG@10 on judged sets. Ours has chunked and embedded the documents; all others got these chunks and vectors. The second
table of each mode is ours less theirs, query by query: the 95 % interval by bootstrap. An arrow in the first table
marks an interval without 0: ↓ behind ours, ↑ ahead of it. Among so many intervals some arrows are there by chance.

What limits this comparison:

- The weights of Qdrant's sparse vectors are computed by our adapter as its documentation describes them, since its own
  model for words is loaded from a hub. LangChain's BM25 is given lower case and whole words, and neither a stemmer nor
  stop words.
- Peers fuse ranks, txtai adds weighted scores. Ours adds weighted shares; the weight of its vectors, 1.5, was
  chosen on fourteen judged sets, these among them (`docs/adr/0031`), and those of the peers on none of these. So ours
  is also shown with reciprocal rank fusion ("by RRF"). Its constant is 60, as that of the peers but Qdrant, whose
  default is 2.
- No set has more than 3,300 chunks: here LanceDB and txtai search their vectors exactly, in the tables of speed by
  indexes that find some of them.
- Ours also ranks very short texts lower, indexes titles apart from the text, and has further vectors of long chunks,
  of which the others got the first. So small differences in searches by vectors are not those of the search itself.
"""
FEATURES_HEAD: Final = """## Features

As the documentation of each says; a link leads to the page. "?" means that nothing was found there.
"""
Row = tuple[str, list[float | None], bool]
"""What it is, one value per participant, and whether more is better."""


def page_of(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown: a table for each size, one for each mode of the judged sets, and one of features."""
    measured = {
        one["name"]
        for part in figures.values()
        for entry in part.values()
        for one in entry["results"]
    }
    parts = [HEAD]
    if missing := [title(name) for name in TITLES if name not in measured]:
        parts.append(f"Without figures so far: {', '.join(missing)}.\n")
    if figures["speed"]:
        parts += [SPEED, *_speed(figures["speed"])]
    if figures["judged"]:
        parts += [JUDGED, *_judged(figures["judged"])]
    parts += [FEATURES_HEAD, _features(json.loads(FEATURES.read_text("utf-8")))]
    return "\n".join(parts)


def _speed(speed: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for chunks in sorted(speed, key=int):
        entry = speed[chunks]
        before, after = entry["load"]
        about = f"{entry['date']}, {entry['cores']} cores, load {before} before and {after} after."
        yield f"### {int(chunks):,} chunks\n\n{about}\n"
        yield _table([one for one in entry["results"] if not one["reason"]])
        yield from (
            fill(remark, WIDTH, initial_indent="- ", subsequent_indent="  ") + "\n"
            for remark in entry.get("remarks", ())
        )
        yield from _missing(entry["results"])


def _missing(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in results:
        if one["reason"]:
            yield f"- {title(one['name'])}: not measured, since {one['reason']}\n"


def _heads(first: str, names: Sequence[str]) -> list[str]:
    titles = " | ".join(map(title, names))
    return [f"| {first} | {titles} |", "|---|" + "---|" * len(names)]


def _table(results: Sequence[Mapping[str, Any]]) -> str:
    lines = _heads("", [one["name"] for one in results])
    lines += [_line(row) for row in _rows(results)]
    return "\n".join(lines) + "\n"


def _rows(results: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    for mode in MODES:
        for key, name in (("p50_ms", "p50"), ("p95_ms", "p95")):
            values = [one["latency"].get(mode, {}).get(key) for one in results]
            yield f"{mode}, {name}, ms", values, False
    for mode in ("hybrid", "vectors"):
        values = [one["per_second"] if _loaded_by(one) == mode else None for one in results]
        yield f"{mode}, searches per second, 8 clients", values, True
    for key, what, more in (
        ("ingested_per_second", "chunks ingested per second", True),
        ("memory_mb", "memory after the searches, MB", False),
        ("disk_mb", "disk, MB", False),
    ):
        yield what, [one[key] for one in results], more


def _loaded_by(one: Mapping[str, Any]) -> str:
    return "hybrid" if "hybrid" in one["latency"] else "vectors"


def _line(row: Row) -> str:
    what, values, more = row
    cells = ["" if v is None else f"{v:g}" for v in values]
    return f"| {what} | " + " | ".join(_marked(cells, values, more=more)) + " |"


def _marked(cells: Sequence[str], values: Sequence[float | None], *, more: bool) -> list[str]:
    """The cells of the best value bold."""
    known = [value for value in values if value is not None]
    top = (max if more else min)(known, default=None)
    return [
        f"**{cell}**" if value is not None and value == top else cell
        for cell, value in zip(cells, values, strict=True)
    ]


def _judged(judged: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    names = list(
        dict.fromkeys(
            one["name"] for entry in judged.values() for one in entry["results"] if one["ndcg"]
        )
    )
    dates = sorted({entry["date"] for entry in judged.values()})
    yield f"{dates[0]}{f' to {dates[-1]}' if dates[1:] else ''}.\n"
    for mode in MODES:
        able = [
            name
            for name in names
            if any(mode in _of(entry, name).get("ndcg", {}) for entry in judged.values())
        ]
        if able:
            yield f"### {mode.capitalize()}\n\n{_values(judged, able, mode)}"
            yield _intervals(judged, [name for name in able if name != OURS], mode)
    for name, entry in judged.items():
        yield from (line.replace("- ", f"- {name}, ", 1) for line in _missing(entry["results"]))


def _values(judged: Mapping[str, Mapping[str, Any]], names: Sequence[str], mode: str) -> str:
    lines = _heads("set (documents, queries)", names)
    for name, entry in judged.items():
        ranked = [_of(entry, one) for one in names]
        values = [_rounded(one.get("ndcg", {}).get(mode)) for one in ranked]
        cells = [
            "" if value is None else f"{_short(value)}{_arrow(one, mode)}"
            for one, value in zip(ranked, values, strict=True)
        ]
        about = f"{name} ({entry['documents']:,}, {entry['queries']:,})"
        lines.append(f"| {about} | " + " | ".join(_marked(cells, values, more=True)) + " |")
    return "\n".join(lines) + "\n"


def _intervals(judged: Mapping[str, Mapping[str, Any]], names: Sequence[str], mode: str) -> str:
    lines = _heads("ours less", names)
    for name, entry in judged.items():
        found = [_of(entry, one).get("difference", {}).get(mode) for one in names]
        cells = ["" if one is None else _interval(one) for one in found]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _interval(difference: Mapping[str, float]) -> str:
    return f"`{_short(difference['low'])} to {_short(difference['high'])}`"


def _rounded(value: float | None) -> float | None:
    """As it is shown: bold and arrows must not depend on digits that are not shown."""
    return None if value is None else round(value, 3) + 0.0


def _short(value: float) -> str:
    """.569"""
    return f"{round(value, 3) + 0.0:.3f}".replace("0.", ".", 1)


def _arrow(one: Mapping[str, Any], mode: str) -> str:
    if one["name"] == OURS:
        return ""
    difference = one["difference"][mode]
    return (
        " ↓"
        if round(difference["low"], 3) > 0
        else " ↑"
        if round(difference["high"], 3) < 0
        else ""
    )


def _of(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next((one for one in entry["results"] if one["name"] == name), {})


def _features(features: Mapping[str, Any]) -> str:
    """``features``: {"peers": [names], "rows": [{"feature", "cells": {peer: {"answer", "words", "source"}}}]}"""
    peers: list[str] = features["peers"]
    lines = _heads("", peers)
    for row in features["rows"]:
        cells = [_feature_cell(row["cells"].get(peer, {})) for peer in peers]
        lines.append(f"| {row['feature']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _feature_cell(cell: Mapping[str, str]) -> str:
    if not cell or not cell.get("source"):
        return "?"
    words = f": {cell['words']}" if cell.get("words") else ""
    return f"[{cell['answer']}{words}]({cell['source']})"
