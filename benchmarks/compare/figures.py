"""Figures of a comparison, kept in one file: a run replaces those it has measured again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
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
    behind: dict[str, Interval] = field(default_factory=dict)
    """Ours less this one, query by query."""
    reason: str = ""


@dataclass
class JudgedSet:
    """A set as ours has chunked it, and what everybody found in it."""

    name: str
    documents: int
    chunks: int
    queries: int
    results: list[JudgedFigures]


class FiguresFile:
    """``speed``: one entry per number of chunks; ``judged``: one per set. Each has its date and load."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._load = round(os.getloadavg()[0], 1)
        self.all: dict[str, dict[str, Any]] = {"speed": {}, "judged": {}}
        if file.exists():
            self.all |= json.loads(file.read_text("utf-8"))

    def keep_speed(self, chunks: int, results: list[PeerFigures]) -> None:
        self._keep("speed", str(chunks), {"results": [asdict(one) for one in results]})

    def keep_judged(self, found: JudgedSet) -> None:
        rows = [
            {
                "name": one.name,
                "ndcg": one.ndcg,
                "behind": {mode: value.model_dump() for mode, value in one.behind.items()},
                "reason": one.reason,
            }
            for one in found.results
        ]
        about = {"documents": found.documents, "chunks": found.chunks, "queries": found.queries}
        self._keep("judged", found.name, about | {"results": rows})

    def _keep(self, part: str, key: str, entry: Mapping[str, Any]) -> None:
        now = round(os.getloadavg()[0], 1)
        date = time.strftime("%Y-%m-%d")
        self.all[part][key] = {"date": date, "load": [self._load, now], **entry}
        self._load = now
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self.all, indent=1) + "\n", "utf-8")
