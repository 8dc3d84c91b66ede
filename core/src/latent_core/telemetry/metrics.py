"""Logs and metrics of a process. Set up once, in a composition root."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from pydantic import SecretStr
from pythonjsonlogger.json import JsonFormatter
from typing_extensions import override

from latent_core.domain.errors import IssueCode
from latent_core.domain.job import JobKind, JobState, Outcome
from latent_core.telemetry.log_file import LogFile
from latent_core.telemetry.redaction import HIDDEN, RUN, names_a_secret, redacted

_BOUND: ContextVar[Mapping[str, Any] | None] = ContextVar("fields of every log line", default=None)


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Add ``fields`` (such as the id of a request or job) to every log line of the block and of tasks started in it."""
    before = _BOUND.set({**(_BOUND.get() or {}), **fields})
    try:
        yield
    finally:
        _BOUND.reset(before)


class _BoundFieldsFilter(logging.Filter):
    """Adds the fields of ``bound``; a line's own fields take precedence."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in (_BOUND.get() or {}).items():
            if name not in vars(record):
                setattr(record, name, value)
        return True


class _Json(JsonFormatter):
    """``timestamp, logger, level, msg`` and the line's fields."""

    def __init__(self, own: Sequence[str]) -> None:
        super().__init__(
            "%(name)s %(levelname)s %(message)s",
            rename_fields={"name": "logger", "levelname": "level", "message": "msg"},
            timestamp=True,
        )
        self._own = own
        self._last: tuple[logging.LogRecord, str] | None = None

    @override
    def format(self, record: logging.LogRecord) -> str:
        """One record goes to stderr and to the file one after the other: it is formatted once."""
        last = self._last
        if last is not None and last[0] is record:
            return last[1]
        line = super().format(record)
        self._last = (record, line)
        return line

    @override
    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        # Redacts before encoding as JSON, whose syntax would hide where a secret ends.
        return {key: self._safe(key, value) for key, value in log_data.items()}

    def _safe(self, key: str, value: Any) -> Any:
        match value:
            case None | bool() | int() | float() | datetime():
                return value
            case Mapping():
                return {str(key): self._safe(str(key), item) for key, item in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self._safe(key, item) for item in value]
            case _:
                return HIDDEN if names_a_secret(key) else _shown(str(value), self._own)


class _Text(logging.Formatter):
    """For people: time, level, message, then the fields."""

    _STANDARD: ClassVar[frozenset[str]] = frozenset(vars(logging.makeLogRecord({}))) | {
        "message",
        "asctime",
        "taskName",
    }

    def __init__(self, form: str, dates: str, own: Sequence[str]) -> None:
        super().__init__(form, dates)
        self._own = own

    @override
    def format(self, record: logging.LogRecord) -> str:
        fields = {k: v for k, v in vars(record).items() if k not in self._STANDARD}
        shown = " ".join(f"{k}={v}" for k, v in fields.items())
        return _shown(f"{super().format(record)} {shown}".rstrip(), self._own)


def _shown(text: str, own: Sequence[str]) -> str:
    for secret in own:
        text = text.replace(secret, HIDDEN)
    return redacted(text)


def set_up_logs(
    form: Literal["auto", "json", "text"],
    *,
    level: int = logging.INFO,
    own: Iterable[SecretStr] = (),
    shown: int = logging.NOTSET,
    file: LogFile | None = None,
) -> None:
    """Log to stderr: text for a terminal, JSON for machines (``auto`` decides by what stderr is).

    ``own`` secrets are removed from every line, except short ones, which may be ordinary words. ``shown`` is the lowest
    level on stderr. A ``file`` gets every line: as JSON, unless the form is ``text``.
    """
    secrets = [secret.get_secret_value() for secret in own]
    hidden = sorted((one for one in secrets if len(one) >= RUN), key=len, reverse=True)
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    text = _Text("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S", hidden)
    json = _Json(hidden)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(json if as_json else text)
    handler.setLevel(shown)
    handlers: list[logging.Handler] = [handler]
    if file is not None:
        file.setFormatter(text if form == "text" else json)
        handlers.append(file)
    for one in handlers:
        one.addFilter(_BoundFieldsFilter())
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(level)
    for noisy in ("httpx", "httpcore", "uvicorn.access", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # The pool warns of each attempt to connect. ``postgres_unreachable`` is logged once per outage.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


# The time at which each counter began: one more series per counter, which nothing reads.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotation

Surface = Literal["http", "mcp", "job"]
"""Where an error occurred."""
MaskedSource = Literal["note", "conversation"]
"""Text in which a secret was masked."""
SearchStage = Literal[
    "plan", "turn", "embed", "retrieve", "fuse", "hydrate", "rerank", "facets", "render", "total"
]
"""``total`` is the whole search, from plan to answer."""
DEFAULT_EMBEDDER: Final = "local"
"""That of manifests without one."""


@dataclass
class Metrics:
    """The metrics of one process, in its own registry, so that a test can open two stacks.

    Counters and histograms with labels have all their series from the start, at 0. ``rate()`` and ``increase()`` of
    Prometheus do not count the first value of a series, so an event that begins a series would be lost.
    """

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    embedded_texts: Counter = field(init=False)
    embedded_tokens: Counter = field(init=False)
    cached_texts: Counter = field(init=False)
    published: Counter = field(init=False)
    masked: Counter = field(init=False)
    stale: Counter = field(init=False)
    candidates: Counter = field(init=False)
    search_seconds: Histogram = field(init=False)
    errors: Counter = field(init=False)
    jobs: Counter = field(init=False)
    job_seconds: Histogram = field(init=False)
    queue_depth: Gauge = field(init=False)
    queue_age: Gauge = field(init=False)
    oldest_transaction: Gauge = field(init=False)
    vector_collections: Gauge = field(init=False)
    vector_collections_bound: Gauge = field(init=False)
    service_up: Gauge = field(init=False)
    service_full: Gauge = field(init=False)
    service_read_only: Gauge = field(init=False)
    backup_schedules: Gauge = field(init=False)
    backups_failed: Gauge = field(init=False)
    backup_overdue: Gauge = field(init=False)
    backup_last_success: Gauge = field(init=False)
    worker_seen: Gauge = field(init=False)

    def __post_init__(self) -> None:
        own: dict[str, Any] = {"registry": self.registry}
        ProcessCollector(registry=self.registry)
        self._count_work(own)
        self._count_searches(own)
        self._gauge_queue(own)
        self._gauge_services(own)
        self._gauge_backups(own)
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        for kind in JobKind:
            self.job_seconds.labels(kind.value)
            for outcome in get_args(Outcome):
                self.jobs.labels(kind.value, outcome)
        for surface in get_args(Surface):
            for code in IssueCode:
                self.errors.labels(surface, code.value)
        for source in get_args(MaskedSource):
            self.masked.labels(source)
        for stage in get_args(SearchStage):
            self.search_seconds.labels(stage)
        self.start_embedder(DEFAULT_EMBEDDER)

    def start_embedder(self, name: str) -> None:
        """Export the counters of an embedder before it is used."""
        for counter in (self.embedded_texts, self.embedded_tokens, self.cached_texts):
            counter.labels(name)

    def _count_work(self, own: dict[str, Any]) -> None:
        self.embedded_texts = Counter(
            "latent_embedded_texts", "Texts sent to the embedder", ["embedder"], **own
        )
        self.embedded_tokens = Counter(
            "latent_embedded_tokens", "Tokens of those texts", ["embedder"], **own
        )
        self.cached_texts = Counter(
            "latent_cached_texts", "Texts whose vector was in the cache", ["embedder"], **own
        )
        self.published = Counter("latent_published_documents", "Generations made visible", **own)
        self.masked = Counter(
            "latent_masked_secrets",
            "Secrets masked before a text was stored",
            ["source"],
            **own,
        )
        self.jobs = Counter("latent_jobs", "Ended attempts at jobs", ["kind", "outcome"], **own)
        self.job_seconds = Histogram(
            "latent_job_seconds",
            "Seconds an attempt at a job took",
            ["kind"],
            buckets=(0.05, 0.2, 1, 5, 20, 60, 300, 1800),
            **own,
        )

    def _count_searches(self, own: dict[str, Any]) -> None:
        self.stale = Counter(
            "latent_stale_candidates", "Candidates dropped because they are not live", **own
        )
        self.candidates = Counter("latent_candidates", "Candidates from all search channels", **own)
        self.search_seconds = Histogram(
            "latent_search_seconds",
            "Seconds a search took, by stage",
            ["stage"],
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2),
            **own,
        )
        self.errors = Counter(
            "latent_errors",
            "Errors in responses (http, mcp) and in jobs",
            ["surface", "code"],
            **own,
        )

    def _gauge_queue(self, own: dict[str, Any]) -> None:
        self.queue_depth = Gauge("latent_queue_jobs", "Jobs by state", ["state"], **own)
        self.queue_age = Gauge(
            "latent_queue_oldest_seconds", "Age of the oldest queued job that may run", **own
        )
        self.oldest_transaction = Gauge(
            "latent_oldest_transaction_seconds", "Age of the database's oldest transaction", **own
        )
        self.vector_collections = Gauge(
            "latent_vector_collections",
            "Collections of the vector engine: of one embedding space, or shared by small containers",
            ["kind"],
            **own,
        )
        self.vector_collections_bound = Gauge(
            "latent_vector_collections_bound",
            "LLC_QDRANT_COLLECTIONS; 0 for the embedded engine, which has none",
            **own,
        )

    def _gauge_services(self, own: dict[str, Any]) -> None:
        self.service_up = Gauge(
            "latent_service_up", "Whether a backing service answers", ["service"], **own
        )
        self.service_full = Gauge(
            "latent_service_full",
            "Whether a store was full within the last minute, or has too little space on this disk",
            ["service"],
            **own,
        )
        self.service_read_only = Gauge(
            "latent_service_read_only", "Whether a store refuses all writes", ["service"], **own
        )
        self.worker_seen = Gauge(
            "latent_worker_seen_timestamp_seconds",
            "When the worker last reached its database",
            **own,
        )

    def _gauge_backups(self, own: dict[str, Any]) -> None:
        self.backup_schedules = Gauge(
            "latent_backup_schedules", "Containers with a backup schedule", **own
        )
        self.backups_failed = Gauge(
            "latent_backups_failed",
            "Containers with a schedule whose last backup failed",
            **own,
        )
        self.backup_overdue = Gauge(
            "latent_backup_overdue_seconds",
            "How long the oldest scheduled backup that is due has not been made",
            **own,
        )
        self.backup_last_success = Gauge(
            "latent_backup_last_success_timestamp_seconds",
            "When the last backup was made, of the container with a schedule where that is longest ago; 0 without any",
            **own,
        )

    def set_queue(self, jobs: Mapping[JobState, int], oldest_queued_seconds: float) -> None:
        """Set the queue's gauges."""
        for state, count in jobs.items():
            self.queue_depth.labels(state.value).set(count)
        self.queue_age.set(oldest_queued_seconds)

    def failed(self, surface: Surface, code: IssueCode) -> None:
        self.errors.labels(surface, code.value).inc()
