"""Logs and metrics of a process. Set up once, in a composition root."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from pythonjsonlogger.json import JsonFormatter
from typing_extensions import override

from latent_core.domain.job import JobState


class _Json(JsonFormatter):
    """``timestamp, logger, level, msg`` and whatever the line carries (CONTRACT "Operations")."""

    def __init__(self) -> None:
        super().__init__(
            "%(name)s %(levelname)s %(message)s",
            rename_fields={"name": "logger", "levelname": "level", "message": "msg"},
            timestamp=True,
        )


class _Text(logging.Formatter):
    """For people: time, level, message, then the fields that were added."""

    _STANDARD: ClassVar[frozenset[str]] = frozenset(vars(logging.makeLogRecord({}))) | {
        "message",
        "asctime",
        "taskName",
    }

    @override
    def format(self, record: logging.LogRecord) -> str:
        fields = {k: v for k, v in vars(record).items() if k not in self._STANDARD}
        shown = " ".join(f"{k}={v}" for k, v in fields.items())
        return f"{super().format(record)} {shown}".rstrip()


def set_up_logs(form: Literal["auto", "json", "text"], *, level: int = logging.INFO) -> None:
    """Log to stderr: text for a terminal, JSON for machines (``auto`` decides by what stderr is)."""
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _Json() if as_json else _Text("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in ("httpx", "httpcore", "uvicorn.access", "alembic.runtime.migration"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


@dataclass
class Metrics:
    """The metrics of one process. A registry of its own, so that two stacks can live in one test."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    embedded_texts: Counter = field(init=False)
    cached_texts: Counter = field(init=False)
    published: Counter = field(init=False)
    stale: Counter = field(init=False)
    candidates: Counter = field(init=False)
    search_seconds: Histogram = field(init=False)
    queue_depth: Gauge = field(init=False)
    queue_age: Gauge = field(init=False)

    def __post_init__(self) -> None:
        own: dict[str, Any] = {"registry": self.registry}
        ProcessCollector(registry=self.registry)
        self.embedded_texts = Counter(
            "latent_embedded_texts", "Texts sent to the embedder", ["embedder"], **own
        )
        self.cached_texts = Counter(
            "latent_cached_texts", "Texts whose vector was in the cache", ["embedder"], **own
        )
        self.published = Counter("latent_published_documents", "Generations made visible", **own)
        self.stale = Counter(
            "latent_stale_candidates", "Candidates the join on what is live refused", **own
        )
        self.candidates = Counter("latent_candidates", "Candidates the channels gave", **own)
        self.search_seconds = Histogram(
            "latent_search_seconds",
            "Seconds a search took, by stage",
            ["stage"],
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2),
            **own,
        )
        self.queue_depth = Gauge("latent_queue_jobs", "Jobs by state", ["state"], **own)
        self.queue_age = Gauge(
            "latent_queue_oldest_seconds", "Age of the oldest queued job that may run", **own
        )

    def set_queue(self, jobs: Mapping[JobState, int], oldest_queued_seconds: float) -> None:
        """Take over what the queue says of itself."""
        for state, count in jobs.items():
            self.queue_depth.labels(state.value).set(count)
        self.queue_age.set(oldest_queued_seconds)
