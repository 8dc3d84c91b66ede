"""Token buckets that all gateways and workers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from latent_core.db.connection import Connection

TAKE: Final = """
SELECT take_texts(%(name)s, %(burst)s, %(per_second)s, %(texts)s, %(spare)s, %(pause)s) AS seconds
"""


@dataclass(frozen=True, slots=True)
class Bucket:
    """``burst`` is its capacity."""

    name: str
    burst: float
    per_second: float


async def take(
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
