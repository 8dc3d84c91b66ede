"""The claims of this process, the heartbeat that renews them, and updates of a running job's payload.

The heartbeat has its own thread and connection, so neither a busy event loop nor a full pool stops it.
One statement renews all claims of the worker. It never waits for a row: it skips a locked one (its job is
publishing), and no other worker can take that row while it is locked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection
from latent_core.domain.job import ClaimedJob
from latent_core.queue import clock
from latent_core.queue.errors import JobCancelled
from latent_core.queue.finish import fenced, lease_lost
from latent_core.telemetry.outage import OutageLog

logger = logging.getLogger(__name__)

BEATS_PER_LEASE: Final = 4
CLOSE_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0

CONFIGURE: Final = "SELECT set_config('statement_timeout', %(timeout)s, false)"

BEAT: Final = """
WITH held AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(claim_ids)s::bigint[]) AS h (id, claim_id)
), free AS MATERIALIZED (
    SELECT jobs.id FROM jobs JOIN held USING (id, claim_id)
    WHERE state = 'running'
    ORDER BY jobs.id
    FOR NO KEY UPDATE OF jobs SKIP LOCKED
), renewed AS (
    UPDATE jobs SET lease_expires = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
    WHERE id = ANY (ARRAY(SELECT id FROM free)) AND state = 'running'
    RETURNING id, claim_id
)
SELECT held.claim_id, jobs.id IS NOT NULL AS running, renewed.id IS NOT NULL AS renewed,
       coalesce(jobs.cancel_requested, false) AS cancel_requested
FROM held
LEFT JOIN jobs ON jobs.id = held.id AND jobs.claim_id = held.claim_id AND jobs.state = 'running'
LEFT JOIN renewed ON renewed.id = held.id AND renewed.claim_id = held.claim_id
"""


class HeldClaim:
    """This process's view of a claim. The heartbeat's thread writes it, any thread reads it."""

    def __init__(self, job: ClaimedJob, *, lease_seconds: float, since: float) -> None:
        """``since`` is the time just before the claim was sent, so the lease cannot end earlier than we assume."""
        self.job = job
        self.lease_seconds = lease_seconds
        self._renewed = since
        self._lost = False
        self._cancelled = False

    @property
    def lost(self) -> bool:
        return self._lost

    @property
    def stale(self) -> bool:
        """Whether the lease may have expired unnoticed: the process was frozen or the database is unreachable."""
        return clock.now() - self._renewed >= self.lease_seconds

    def raise_if_lost(self) -> None:
        if self._lost:
            raise lease_lost(self.job)

    def raise_if_ended(self) -> None:
        """``LeaseLost`` or ``JobCancelled``."""
        self.raise_if_lost()
        if self._cancelled:
            raise JobCancelled(f"job {self.job.id} was cancelled")

    def lose(self) -> None:
        self._lost = True

    def cancel(self) -> None:
        self._cancelled = True

    def learn(self, row: dict[str, Any], checked_at: float) -> None:
        """Apply the database's answer to a query that was sent at ``checked_at``."""
        if row["renewed"]:
            self._renewed = checked_at
        if not row["running"]:
            self.lose()
        if row["cancel_requested"]:
            self.cancel()


def beat_parameters(claims: Iterable[HeldClaim], lease_seconds: float) -> dict[str, Any]:
    jobs = [claim.job for claim in claims]
    return {
        "ids": [job.id for job in jobs],
        "claim_ids": [job.claim_id for job in jobs],
        "lease_seconds": lease_seconds,
    }


class Heartbeat:
    """Renews all claims of a worker every quarter of a lease, until closed."""

    def __init__(self, dsn: str, *, lease_seconds: float) -> None:
        self._dsn = dsn
        self._lease_seconds = lease_seconds
        self._claims: dict[int, HeldClaim] = {}
        self._guard = threading.Lock()
        self._closing = threading.Event()
        self._conn: psycopg.Connection[DictRow] | None = None
        self._outages = OutageLog(
            logger,
            failed="heartbeat_database_unreachable",
            recovered="heartbeat_database_reachable",
        )
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread; blocks for at most five seconds."""
        self._closing.set()
        self._thread.join(CLOSE_SECONDS)

    def hold(self, claim: HeldClaim) -> None:
        with self._guard:
            self._claims[claim.job.claim_id] = claim

    def drop(self, claim: HeldClaim) -> None:
        with self._guard:
            self._claims.pop(claim.job.claim_id, None)

    @property
    def behind(self) -> bool:
        """Whether one of our leases may have expired only because this process was frozen or asleep."""
        return any(claim.stale for claim in self._held())

    def _run(self) -> None:
        pace = self._lease_seconds / BEATS_PER_LEASE
        interval = pace
        while not self._closing.wait(interval):
            try:
                self._beat()
                self._outages.succeeded()
                interval = pace
            except psycopg.Error as exc:
                self._outages.failed(str(exc))
                interval = self._recover(pace)
            except Exception:
                logger.exception("heartbeat_failed")
                interval = self._recover(pace)
        self._disconnect()

    def _beat(self) -> None:
        claims = {claim.job.claim_id: claim for claim in self._held()}
        if not claims:
            return
        checked_at = clock.now()
        cursor = self._connected().execute(
            BEAT, beat_parameters(claims.values(), self._lease_seconds)
        )
        for row in cursor.fetchall():
            claims[row["claim_id"]].learn(row, checked_at)

    def _recover(self, pace: float) -> float:
        """Mark claims as lost that were not renewed for a whole lease; returns the seconds until the next try."""
        self._disconnect()
        for claim in self._held():
            if claim.stale:
                claim.lose()
        return min(pace, RETRY_SECONDS)

    def _held(self) -> list[HeldClaim]:
        with self._guard:
            return [claim for claim in self._claims.values() if not claim.lost]

    def _connected(self) -> psycopg.Connection[DictRow]:
        if self._conn is None or self._conn.closed:
            half_a_lease = round(self._lease_seconds * 500)
            self._conn = psycopg.connect(
                self._dsn,
                autocommit=True,
                row_factory=dict_row,
                application_name="latent heartbeat",
                connect_timeout=max(2, half_a_lease // 1000),
                tcp_user_timeout=half_a_lease,
            )
            self._conn.execute(CONFIGURE, {"timeout": f"{half_a_lease}ms"})
        return self._conn

    def _disconnect(self) -> None:
        if self._conn is not None:
            with suppress(psycopg.Error):
                self._conn.close()
            self._conn = None


AMEND: Final = """
UPDATE jobs SET payload = %(payload)s WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running'
"""

PAYLOAD: Final = """
SELECT payload FROM jobs WHERE id = %(id)s AND claim_id = %(claim_id)s AND state = 'running'
"""


async def payload_of(conn: Connection, job: ClaimedJob) -> dict[str, Any]:
    """``job``'s current payload: a commit whose answer was lost may have amended it. ``LeaseLost``."""
    cursor = await conn.execute(PAYLOAD, {"id": job.id, "claim_id": job.claim_id})
    row = await cursor.fetchone()
    if row is None:
        raise lease_lost(job)
    found: dict[str, Any] = row["payload"]
    return found


async def amend(conn: Connection, job: ClaimedJob, payload: dict[str, Any]) -> None:
    """Replace ``job``'s payload while it runs. Idempotent. ``LeaseLost``."""
    if not await fenced(conn, AMEND, job, payload=Jsonb(payload)):
        raise lease_lost(job)
