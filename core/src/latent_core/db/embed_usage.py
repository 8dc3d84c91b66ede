"""Texts and tokens sent to remote embedders, their cost by job and by container, and the shared rate limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from latent_core.db.connection import Connection
from latent_core.domain.ids import JobId

ADD: Final = """
INSERT INTO embed_usage AS u (job_id, container_id, embedder, texts, tokens, cost)
SELECT %(job_id)s, id, %(embedder)s, %(texts)s, %(tokens)s, %(cost)s FROM containers WHERE id = %(container_id)s
ON CONFLICT (job_id, embedder) DO UPDATE
SET texts = u.texts + excluded.texts, tokens = u.tokens + excluded.tokens, cost = u.cost + excluded.cost
"""

OF_CONTAINER: Final = """
SELECT coalesce(sum(texts), 0)::bigint AS texts, coalesce(sum(tokens), 0)::bigint AS tokens,
       coalesce(sum(cost), 0) AS cost
FROM embed_usage WHERE container_id = %(container_id)s
"""


@dataclass(frozen=True, slots=True)
class EmbedUsage:
    texts: int
    tokens: int
    cost: float
    """In the currency of LLC_EMBED_PRICE_PER_MILLION."""


async def add(
    conn: Connection, *, job_id: JobId, container_id: str, embedder: str, usage: EmbedUsage
) -> None:
    """Add to the usage of a job; does nothing for a deleted container."""
    await conn.execute(
        ADD,
        {
            "job_id": job_id,
            "container_id": container_id,
            "embedder": embedder,
            "texts": usage.texts,
            "tokens": usage.tokens,
            "cost": usage.cost,
        },
    )


async def of_container(conn: Connection, container_id: str) -> EmbedUsage:
    row = await (await conn.execute(OF_CONTAINER, {"container_id": container_id})).fetchone()
    if row is None:
        return EmbedUsage(0, 0, 0.0)
    return EmbedUsage(row["texts"], row["tokens"], round(float(row["cost"]), 6))


TAKE: Final = """
SELECT take_texts(%(name)s, %(burst)s, %(per_second)s, %(texts)s, %(spare)s, %(pause)s) AS seconds
"""


@dataclass(frozen=True, slots=True)
class Bucket:
    """``burst`` is its capacity."""

    name: str
    burst: float
    per_second: float


async def take_from_bucket(
    conn: Connection, bucket: Bucket, texts: int, *, spare: float = 0.0, pause: float = 0.0
) -> float:
    """Take ``texts`` if ``spare`` remain: returns 0, or the seconds to wait if it took none.

    ``pause`` blocks the bucket for so many seconds from now.
    """
    values = {
        "name": bucket.name,
        "burst": bucket.burst,
        "per_second": bucket.per_second,
        "texts": float(texts),
        "spare": spare,
        "pause": pause,
    }
    row = await (await conn.execute(TAKE, values)).fetchone()
    if row is None:
        raise RuntimeError("take_texts returned no row")
    return float(row["seconds"])
