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
    """``burst`` is what it holds when nobody takes any."""

    name: str
    burst: float
    per_second: float


async def take(
    conn: Connection, bucket: Bucket, texts: int, *, spare: float = 0.0, pause: float = 0.0
) -> float:
    """0 when ``texts`` were taken and ``spare`` are left; else the seconds to wait, and none was taken.

    ``pause`` seconds from now nobody may take any.
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
