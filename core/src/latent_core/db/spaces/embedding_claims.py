"""Claims on texts and pictures that a process embeds now, so that another one waits for them instead.

They are rows of the embedding cache in a space of their own, which no search of vectors reads. A claim is a hint: if it
is lost, a text is embedded twice and nothing else happens. So they are written without waiting for the disk.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from psycopg.rows import tuple_row

from latent_core.db.connection import Connection
from latent_core.domain.ids import Sha256

OWNER_BYTES: Final = 16
LAPSE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Claimant:
    """A process that claims."""

    owner: bytes = field(default_factory=lambda: os.urandom(OWNER_BYTES))
    lapse_seconds: float = LAPSE_SECONDS
    """A claim that was not renewed for so long belongs to a process that died."""

    @classmethod
    def of_worker(cls, worker_id: str, lease_seconds: float) -> Claimant:
        """The same one after a restart with the same id, which takes its claims back as it does its jobs."""
        return cls(hashlib.sha256(worker_id.encode()).digest()[:OWNER_BYTES], lease_seconds)


# Always in the same order, so that two processes never wait for each other in a circle. Only the clock of the database
# counts; a claim from its future was made before that was set back.
CLAIM: Final = """
INSERT INTO embedding_cache AS c (content_hash, space, vector)
SELECT hash, %(space)s, %(owner)s
FROM unnest(%(hashes)s::text[]) AS hash, (SELECT set_config('synchronous_commit', 'off', true)) AS quick
ORDER BY hash
ON CONFLICT (content_hash, space) DO UPDATE SET vector = excluded.vector, used_at = now()
WHERE c.vector = excluded.vector OR abs(extract(epoch FROM now() - c.used_at)) > %(lapse)s
RETURNING content_hash
"""

RENEW: Final = """
UPDATE embedding_cache SET used_at = now()
FROM (SELECT set_config('synchronous_commit', 'off', true)) AS quick
WHERE (content_hash, space) IN (
    SELECT content_hash, space FROM embedding_cache
    WHERE space = %(space)s AND content_hash = ANY(%(hashes)s) AND vector = %(owner)s
    FOR UPDATE SKIP LOCKED)
"""

RELEASE: Final = """
DELETE FROM embedding_cache
USING (SELECT set_config('synchronous_commit', 'off', true)) AS quick
WHERE (content_hash, space) IN (
    SELECT content_hash, space FROM embedding_cache
    WHERE space = %(space)s AND content_hash = ANY(%(hashes)s) AND vector = %(owner)s
    ORDER BY content_hash FOR UPDATE)
"""


async def claim(
    conn: Connection, space: str, claimant: Claimant, hashes: Collection[Sha256]
) -> set[Sha256]:
    """Claim those that no other process holds."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(CLAIM, _values(space, claimant, hashes))
        return {Sha256(hash_) for (hash_,) in await cursor.fetchall()}


async def renew(
    conn: Connection, space: str, claimant: Claimant, hashes: Collection[Sha256]
) -> None:
    await conn.execute(RENEW, _values(space, claimant, hashes))


async def release(
    conn: Connection, space: str, claimant: Claimant, hashes: Collection[Sha256]
) -> None:
    """Those that another process has taken over stay."""
    await conn.execute(RELEASE, _values(space, claimant, hashes))


def _values(space: str, claimant: Claimant, hashes: Collection[Sha256]) -> dict[str, object]:
    return {
        "space": f"claim of {space}",
        "owner": claimant.owner,
        "lapse": claimant.lapse_seconds,
        "hashes": sorted(hashes),
    }
