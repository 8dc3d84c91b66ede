"""Stored evaluation runs: the next run is compared with the last one of the same queries and setup."""

from __future__ import annotations

from typing import Any, Final

from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection
from latent_core.wire.evaluation import KeptRun

KEPT_EACH: Final = 20
"""Of a container, dataset and setup."""

SAVE: Final = """
INSERT INTO eval_runs (container_id, dataset, setup, space_id, figures, passed, principal)
SELECT id, %(dataset)s, %(setup)s, live_space, %(figures)s, %(passed)s, %(principal)s
FROM containers WHERE id = %(container_id)s AND deleted_at IS NULL
"""

FORGET: Final = """
DELETE FROM eval_runs WHERE id IN (
    SELECT id FROM eval_runs
    WHERE container_id = %(container_id)s AND dataset = %(dataset)s AND setup = %(setup)s
    ORDER BY id DESC OFFSET %(kept)s)
"""

LAST: Final = """
SELECT DISTINCT ON (dataset, setup) dataset, setup, figures, passed, created_at
FROM eval_runs
WHERE container_id = %(container_id)s AND (%(dataset)s::text IS NULL OR dataset = %(dataset)s)
ORDER BY dataset, setup, id DESC
LIMIT 1000
"""

PAGE: Final = """
SELECT id, dataset, setup, figures, passed, created_at FROM (
    SELECT DISTINCT ON (dataset, setup) id, dataset, setup, figures, passed, created_at
    FROM eval_runs WHERE container_id = %(container_id)s
    ORDER BY dataset, setup, id DESC) last
WHERE id < %(before)s
ORDER BY id DESC
LIMIT %(limit)s
"""


async def save(
    conn: Connection, container_id: str, run: KeptRun, *, passed: bool, principal: str
) -> None:
    """Store a run; of each kind only the last ones stay. Does nothing when the container is deleted."""
    key = {"container_id": container_id, "dataset": run.dataset, "setup": run.setup}
    figures = Jsonb(
        {
            "means": run.means.model_dump(),
            "ndcg_by_query": run.ndcg_by_query,
            "process": run.process,
        }
    )
    await conn.execute(SAVE, {**key, "figures": figures, "passed": passed, "principal": principal})
    await conn.execute(FORGET, {**key, "kept": KEPT_EACH})


async def last(conn: Connection, container_id: str, dataset: str | None = None) -> list[KeptRun]:
    """The last run of each dataset and setup."""
    cursor = await conn.execute(LAST, {"container_id": container_id, "dataset": dataset})
    return [_run(row) for row in await cursor.fetchall()]


async def page(
    conn: Connection, container_id: str, *, before: int, limit: int
) -> list[tuple[int, KeptRun]]:
    """Runs before the run ``before``, newest first, each with its number."""
    values = {"container_id": container_id, "before": before, "limit": limit}
    rows = await (await conn.execute(PAGE, values)).fetchall()
    return [(row["id"], _run(row)) for row in rows]


def _run(row: dict[str, Any]) -> KeptRun:
    return KeptRun(
        setup=row["setup"],
        dataset=row["dataset"],
        created_at=row["created_at"].isoformat(),
        **row["figures"],
    )
