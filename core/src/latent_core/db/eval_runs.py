"""Stored evaluation runs. The next run is compared with the last baseline of the same queries and setup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection
from latent_core.wire.evaluation import EvalRun, KeptRun, QueryVerdict

MAX_RUNS: Final = 200
"""Kept of a container and setup."""
MAX_DETAILED: Final = 50
"""Of these, the newest ones keep the verdict of every query."""

SAVE: Final = """
INSERT INTO eval_runs (container_id, dataset, setup, space_id, figures, passed, principal, baseline, verdicts, job_id)
SELECT id, %(dataset)s, %(setup)s, live_space, %(figures)s, %(passed)s, %(principal)s, %(baseline)s, %(verdicts)s,
       %(job_id)s
FROM containers WHERE id = %(container_id)s AND deleted_at IS NULL
"""

# The last baseline of the same queries stays however many runs failed since.
FORGET: Final = """
DELETE FROM eval_runs WHERE container_id = %(container_id)s AND id IN (
    SELECT id FROM eval_runs WHERE container_id = %(container_id)s AND setup = %(setup)s
    ORDER BY id DESC OFFSET %(runs)s)
  AND id <> coalesce((SELECT max(id) FROM eval_runs WHERE container_id = %(container_id)s AND setup = %(setup)s
                      AND dataset = %(dataset)s AND baseline), 0)
"""

SHORTEN: Final = """
UPDATE eval_runs SET verdicts = NULL WHERE verdicts IS NOT NULL AND container_id = %(container_id)s AND id IN (
    SELECT id FROM eval_runs WHERE container_id = %(container_id)s AND setup = %(setup)s
    ORDER BY id DESC OFFSET %(detailed)s)
"""

LAST: Final = """
SELECT DISTINCT ON (dataset, setup) dataset, setup, figures, passed, created_at
FROM eval_runs
WHERE container_id = %(container_id)s AND baseline AND (%(dataset)s::text IS NULL OR dataset = %(dataset)s)
ORDER BY dataset, setup, id DESC
LIMIT 1000
"""

PAGE: Final = """
SELECT id, dataset, setup, figures, passed, created_at FROM (
    SELECT DISTINCT ON (dataset, setup) id, dataset, setup, figures, passed, created_at
    FROM eval_runs WHERE container_id = %(container_id)s AND baseline
    ORDER BY dataset, setup, id DESC) last
WHERE id < %(before)s
ORDER BY id DESC
LIMIT %(limit)s
"""

HISTORY: Final = """
SELECT r.id, r.dataset, r.setup, r.passed, r.baseline, r.principal, r.job_id, r.created_at, s.embedder,
       r.figures - 'ndcg_by_query' AS figures
FROM eval_runs r LEFT JOIN spaces s ON s.id = r.space_id
WHERE r.container_id = %(container_id)s AND r.id < %(before)s AND (%(setup)s::text IS NULL OR r.setup = %(setup)s)
ORDER BY r.id DESC
LIMIT %(limit)s
"""

SOME: Final = """
SELECT r.id, r.dataset, r.setup, r.passed, r.baseline, r.principal, r.job_id, r.created_at, s.embedder,
       r.figures - 'ndcg_by_query' AS figures, r.verdicts
FROM eval_runs r LEFT JOIN spaces s ON s.id = r.space_id
WHERE r.container_id = %(container_id)s AND r.id = ANY(%(ids)s)
"""


class RunResult(Protocol):
    """A run as an evaluation made it."""

    @property
    def run(self) -> KeptRun: ...
    @property
    def verdicts(self) -> Sequence[QueryVerdict]: ...
    @property
    def gates(self) -> Sequence[str]: ...
    @property
    def partial(self) -> int: ...
    @property
    def golden(self) -> bool: ...
    @property
    def baseline(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class DetailedRun:
    run: EvalRun
    verdicts: list[QueryVerdict] | None
    """None for an old run."""


async def save(
    conn: Connection, container_id: str, measured: RunResult, *, job_id: int, principal: str
) -> None:
    """Store a run, and forget what is beyond the limits. Does nothing when the container is deleted."""
    run = measured.run
    key = {"container_id": container_id, "dataset": run.dataset, "setup": run.setup}
    figures = {
        "means": run.means.model_dump(),
        "ndcg_by_query": run.ndcg_by_query,
        "process": run.process,
        "queries": len(measured.verdicts),
        "partial": measured.partial,
        "gates": list(measured.gates),
        "golden": measured.golden,
    }
    verdicts = [verdict.model_dump(exclude_defaults=True) for verdict in measured.verdicts]
    values = {
        "figures": Jsonb(figures),
        "verdicts": Jsonb(verdicts),
        "passed": not measured.gates,
        "baseline": measured.baseline,
        "principal": principal,
        "job_id": job_id,
    }
    await conn.execute(SAVE, {**key, **values})
    await conn.execute(FORGET, {**key, "runs": MAX_RUNS})
    await conn.execute(SHORTEN, {**key, "detailed": MAX_DETAILED})


async def last(conn: Connection, container_id: str, dataset: str | None = None) -> list[KeptRun]:
    """The last baseline of each dataset and setup."""
    cursor = await conn.execute(LAST, {"container_id": container_id, "dataset": dataset})
    return [_kept(row) for row in await cursor.fetchall()]


async def page(
    conn: Connection, container_id: str, *, before: int, limit: int
) -> list[tuple[int, KeptRun]]:
    """Baselines before the run ``before``, newest first, each with its number."""
    values = {"container_id": container_id, "before": before, "limit": limit}
    rows = await (await conn.execute(PAGE, values)).fetchall()
    return [(row["id"], _kept(row)) for row in rows]


async def history(
    conn: Connection, container_id: str, *, before: int, limit: int, setup: str | None = None
) -> list[EvalRun]:
    """All runs before the run ``before``, newest first; of one setup if it is given."""
    values = {"container_id": container_id, "before": before, "limit": limit, "setup": setup}
    return [_run(row) for row in await (await conn.execute(HISTORY, values)).fetchall()]


async def some(conn: Connection, container_id: str, ids: Sequence[int]) -> dict[int, DetailedRun]:
    """The runs with these numbers that the container has."""
    values = {"container_id": container_id, "ids": list(ids)}
    rows = await (await conn.execute(SOME, values)).fetchall()
    return {row["id"]: DetailedRun(_run(row), _verdicts(row["verdicts"])) for row in rows}


def _verdicts(stored: list[dict[str, Any]] | None) -> list[QueryVerdict] | None:
    return None if stored is None else [QueryVerdict.model_validate(one) for one in stored]


def _kept(row: dict[str, Any]) -> KeptRun:
    return KeptRun(
        setup=row["setup"],
        dataset=row["dataset"],
        created_at=row["created_at"].isoformat(),
        **row["figures"],
    )


def _run(row: dict[str, Any]) -> EvalRun:
    figures = row["figures"]
    return EvalRun(
        id=row["id"],
        setup=row["setup"],
        dataset=row["dataset"],
        golden=figures.get("golden", True),
        passed=row["passed"],
        baseline=row["baseline"],
        means=figures["means"],
        queries=figures.get("queries", 0),
        partial=figures.get("partial", 0),
        gates=figures.get("gates", []),
        embedder=row["embedder"],
        job_id=row["job_id"],
        principal=row["principal"],
        created_at=row["created_at"],
    )
