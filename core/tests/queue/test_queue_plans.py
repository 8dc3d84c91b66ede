"""What the queue's statements touch, with a long past in the table: index probes, never a scan (F13)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncClientCursor
from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection, Database
from latent_core.domain.job import JobKind, JobState
from latent_core.queue import admin, claim, context, enqueue, finish, lease, reaper, requeue

# 50,000 done, 5,000 queued in 50 containers (a tenth delayed, some waiting), 20 running, 4 of them expired.
FILL = """
INSERT INTO jobs (kind, container_id, doc_key, dedupe_key, state, waits_for, rank, priority, run_at, claim_id,
                  lease_expires, attempts, finished_at, principal)
SELECT 'ingest', 'c' || n % 50, 'd' || n, 'i' || n, state,
       CASE WHEN state = 'queued' AND n % 10 = 0 THEN 'time'
            WHEN state = 'queued' AND n % 100 = 1 THEN 'key' END,
       n / 50, 0, now() + CASE WHEN n % 10 = 0 THEN '1h' ELSE '-1h' END::interval,
       CASE WHEN state = 'running' THEN nextval('claim_ids') END,
       CASE WHEN state = 'running' THEN now() + CASE WHEN n % 5 = 0 THEN '-1s' ELSE '1h' END::interval END, 1,
       CASE WHEN state = 'done' THEN now() - n * interval '1 second' END, 'test'
FROM (SELECT n, CASE WHEN n <= 50000 THEN 'done' WHEN n <= 55000 THEN 'queued' ELSE 'running' END AS state
      FROM generate_series(1, 55020) n) g
"""
# Page images that were drawn: the oldest 50 in a group that has an open job, 5,000 in one that has ended.
FILL_FOLLOW_UPS = """
INSERT INTO jobs (kind, container_id, state, rank, priority, run_at, attempts, finished_at, principal, batch_id, parent_id)
SELECT CASE WHEN n = 0 THEN 'ingest' ELSE 'render' END, 'c1', CASE WHEN n = 0 THEN 'queued' ELSE 'done' END, 2000, 0,
       now(), 1, CASE WHEN n > 0 THEN now() - make_interval(days => 1, secs => -n) END, 'test',
       CASE WHEN n <= 50 THEN 1 ELSE 2 END, 1
FROM generate_series(0, 5050) n
"""
HELD = {"id": 55016, "claim_id": 16}
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
STATEMENTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "claim": (
        claim.CLAIM,
        {"kinds": sorted(JobKind), "worker": "w", "lease_seconds": 60.0},
        20,
    ),
    "promote": (claim.PROMOTE, {}, 700),  # the fifty waiting keys, and perhaps all delayed jobs
    "park": (claim.PARK, {"doc_key": "d50002"}, 10),
    "enqueue": (
        enqueue.ENQUEUE,
        {"jobs": Jsonb([{"n": 0, "kind": "ingest", "container_id": "c1", "dedupe_key": "i50002",
                         "payload": {}, "priority": 0, "delay_seconds": 0, "max_attempts": 5,
                         "principal": "test"}])},
        10,
    ),
    "ensure": (
        enqueue.ALIKE,
        {"dedupe_key": "i50002", "payload": Jsonb({}), "priority": 0, "delay_seconds": 0.0, "max_attempts": 5},
        10,
    ),
    "heartbeat": (
        lease.BEAT,
        {"ids": [55001, 55016], "claim_ids": [1, 16], "lease_seconds": 60.0},
        70,  # the running jobs, at most three times
    ),
    "finish": (finish.FINISH, HELD | {"warnings": Jsonb([]), "result": None}, 10),
    "fail": (finish.FAIL, HELD | {"cause": Jsonb({})}, 10),
    "retry": (requeue.RETRY, HELD | {"cause": Jsonb({}), "delay_seconds": 1.0}, 10),
    "continue": (requeue.CONTINUE, HELD | {"payload": Jsonb({}), "delay_seconds": 0.0}, 10),
    "progress": (context.PROGRESS, HELD | {"done": 1, "total": 2, "note": None}, 10),
    "last progress": (context.LAST_PROGRESS, HELD | {"done": 1, "lease_seconds": 60.0}, 10),
    "expired": (reaper.EXPIRED, {"after": 0, "limit": 100}, 25),
    "rescue": (reaper.RESCUE, {"id": 55005, "claim_id": 5, "delay_seconds": 0.0, "cause": Jsonb({})}, 10),
    "list": (
        admin.PAGE,
        {"container_ids": ["c1", "c2"], "states": sorted(JobState), "before": 2**62, "limit": 20},
        150,
    ),
    "kept since": (
        reaper.KEPT_SINCE,
        {"state": "done", "age": timedelta(days=1), "count": 20, "shortest": timedelta(hours=1)},
        50,
    ),
    "views": (admin.VIEWS, {"ids": [1, 50001, 55016]}, 10),
    "forget": (
        reaper.FORGET,
        {"state": "done", "moment": LONG_AGO, "limit": 10},
        50,
    ),
    "forget follow-ups": (
        reaper.FORGET_FOLLOW_UPS,
        {"age": timedelta(minutes=10), "limit": 10},
        200,
    ),
}  # fmt: skip


@pytest.fixture
async def full(database: Database) -> AsyncIterator[Connection]:
    async with database.transaction() as conn:
        await conn.execute(FILL)
        await conn.execute(FILL_FOLLOW_UPS)
    async with database.dedicated(name="vacuum") as conn:
        await conn.execute("VACUUM ANALYZE jobs")
        yield conn


async def test_every_statement_touches_few_rows_and_scans_no_table(full: Connection) -> None:
    for setting in ("force_custom_plan", "force_generic_plan"):
        await full.execute("SELECT set_config('plan_cache_mode', %(s)s, false)", {"s": setting})
        for name, (statement, parameters, max_rows) in STATEMENTS.items():
            plan = await explain(full, statement, parameters)
            scans = [node for node in nodes(plan) if node.get("Relation Name") == "jobs"]
            assert not [n for n in scans if n["Node Type"] == "Seq Scan"], (name, setting)
            work = sum(touched(node) for node in scans)
            assert work <= max_rows, (name, setting, work)


async def test_one_claim_takes_one_job_under_any_plan_f10(full: Connection) -> None:
    statement, parameters, _ = STATEMENTS["claim"]
    for disabled in (["hashjoin", "mergejoin"], ["nestloop", "hashjoin"], ["indexscan"], ["sort"]):
        async with full.transaction(force_rollback=True):
            for kind in disabled:
                await full.execute(
                    "SELECT set_config('enable_' || %(kind)s, 'off', true)", {"kind": kind}
                )
            rows = await (await full.execute(statement, parameters)).fetchall()
            running = await (
                await full.execute("SELECT count(*) AS n FROM jobs WHERE state = 'running'")
            ).fetchone()
            assert len(rows) == 1
            assert running == {"n": 21}


async def explain(conn: Connection, statement: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The plan of a prepared statement, executed and rolled back."""
    names: dict[str, int] = {}
    numbered = re.sub(
        r"%\((\w+)\)s", lambda m: f"${names.setdefault(m[1], len(names) + 1)}", statement
    )
    async with conn.transaction(force_rollback=True):
        await conn.execute(f"PREPARE guarded AS {numbered}")
        try:
            arguments = f"({', '.join(f'%({name})s' for name in names)})" if names else ""
            async with conn.cursor() as cursor:
                text = f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) EXECUTE guarded {arguments}"
                bound = parameters if names else None
                await cursor.execute(_literal(text, bound, conn))
                row = await cursor.fetchone()
        finally:
            await conn.execute("DEALLOCATE guarded")
    assert row is not None
    plan: dict[str, Any] = row["QUERY PLAN"][0]["Plan"]
    return plan


def _literal(text: str, parameters: dict[str, Any] | None, conn: Connection) -> bytes:
    """EXECUTE takes no parameters over the wire, only literals."""
    return AsyncClientCursor(conn).mogrify(text, parameters).encode()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def touched(node: dict[str, Any]) -> float:
    """Rows a scan looked at, over all its loops."""
    per_loop = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    return float(per_loop * node["Actual Loops"])
