"""Figures of a comparison, kept in one file: a run replaces the sizes and sets that it has measured."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.search import Spread
from latent_core.wire.evaluation import Interval


@dataclass
class PeerFigures:
    """Of one participant at one size. ``reason``: why the rest is missing."""

    name: str
    chunks: int
    ingested_per_second: float = 0.0
    latency: dict[str, Spread] = field(default_factory=dict)
    per_second: float = 0.0
    """Hybrid searches by eight clients; vectors if it has no hybrid mode."""
    memory_mb: float | None = None
    """None: it runs elsewhere."""
    disk_mb: float | None = None
    reason: str = ""


@dataclass
class JudgedFigures:
    """nDCG@10 of one participant in one judged set, by mode."""

    name: str
    ndcg: dict[str, float] = field(default_factory=dict)
    difference: dict[str, Interval] = field(default_factory=dict)
    """Ours less this one, query by query."""
    reason: str = ""


@dataclass
class JudgedSet:
    """A set as ours has chunked it, with the figures of all participants."""

    name: str
    documents: int
    chunks: int
    queries: int
    results: list[JudgedFigures]


class FiguresFile:
    """``speed``: one entry per number of chunks; ``judged``: one per set. Each has its date, cores and load, and may have
    remarks written by hand."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._load = round(os.getloadavg()[0], 1)
        self.all: dict[str, dict[str, Any]] = {"speed": {}, "judged": {}}
        if file.exists():
            self.all |= json.loads(file.read_text("utf-8"))

    def add_speed(self, chunks: int, results: Sequence[PeerFigures]) -> None:
        self._add("speed", str(chunks), {"results": [asdict(one) for one in results]})

    def add_judged(self, judged: JudgedSet) -> None:
        rows = [
            {
                "name": one.name,
                "ndcg": one.ndcg,
                "difference": {mode: value.model_dump() for mode, value in one.difference.items()},
                "reason": one.reason,
            }
            for one in judged.results
        ]
        about = {"documents": judged.documents, "chunks": judged.chunks, "queries": judged.queries}
        self._add("judged", judged.name, about | {"results": rows})

    def _add(self, part: str, key: str, entry: Mapping[str, Any]) -> None:
        now = round(os.getloadavg()[0], 1)
        date = time.strftime("%Y-%m-%d")
        about = {"date": date, "cores": os.cpu_count(), "load": [self._load, now]}
        self.all[part][key] = {**about, **entry}
        self._load = now
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_name(f"draft-{self._file.name}")
        draft.write_text(json.dumps(self.all, indent=1) + "\n", "utf-8")
        draft.replace(self._file)
