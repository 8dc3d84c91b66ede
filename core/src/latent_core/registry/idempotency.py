"""Writes that carry an idempotency key: who answers one, and what was answered.

An attempt claims its key for a while and renews the claim as long as it runs. Every later step is fenced by
the claim, so that one that was taken for crashed cannot overwrite what its successor answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

from psycopg.types.json import Jsonb

from latent_core.registry.connection import Connection

KEPT_HOURS: Final = 24

CLAIM: Final = """
INSERT INTO idempotency_keys (principal, key, request_hash, body_hash, claim, locked_until)
VALUES (%(principal)s, %(key)s, %(request_hash)s, %(body_hash)s, %(claim)s,
        clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (principal, key) DO UPDATE SET
    request_hash = EXCLUDED.request_hash,
    body_hash = EXCLUDED.body_hash,
    claim = EXCLUDED.claim,
    locked_until = EXCLUDED.locked_until,
    status = NULL, headers = NULL, body = NULL, rights = NULL,
    created_at = now()
WHERE (idempotency_keys.locked_until < clock_timestamp()
       AND idempotency_keys.request_hash = EXCLUDED.request_hash
       AND idempotency_keys.body_hash IS NOT DISTINCT FROM EXCLUDED.body_hash)
   OR idempotency_keys.created_at < now() - make_interval(hours => %(kept)s)
RETURNING claim
"""

LOOK: Final = """
SELECT request_hash, body_hash, status, headers, body, rights
FROM idempotency_keys WHERE principal = %(principal)s AND key = %(key)s
"""

RENEW: Final = """
UPDATE idempotency_keys SET locked_until = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE principal = %(principal)s AND key = %(key)s AND claim = %(claim)s AND locked_until IS NOT NULL
"""

KEEP: Final = """
UPDATE idempotency_keys SET
    locked_until = NULL, body_hash = %(body_hash)s, status = %(status)s, headers = %(headers)s, body = %(body)s,
    rights = %(rights)s
WHERE principal = %(principal)s AND key = %(key)s AND claim = %(claim)s AND locked_until IS NOT NULL
"""

RELEASE: Final = """
DELETE FROM idempotency_keys
WHERE principal = %(principal)s AND key = %(key)s AND claim = %(claim)s AND locked_until IS NOT NULL
"""

FORGET: Final = """
DELETE FROM idempotency_keys WHERE created_at < now() - make_interval(hours => %(kept)s)
"""

# Only what is answered: a claim is somebody's who is at work. Who forgets at the same moment takes other rows.
FORGET_OLDEST: Final = """
DELETE FROM idempotency_keys
WHERE principal = %(principal)s AND key IN (
    SELECT key FROM idempotency_keys
    WHERE principal = %(principal)s AND locked_until IS NULL AND created_at <= (
        SELECT created_at FROM idempotency_keys
        WHERE principal = %(principal)s AND locked_until IS NULL
        ORDER BY created_at DESC
        OFFSET %(most)s LIMIT 1)
    FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A write with its key. ``body_hash`` is None as long as its body has not been read."""

    principal: str
    key: str
    request_hash: str
    """Of the method, the target and the headers that matter."""
    body_hash: str | None


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    rights: Mapping[str, bool] = field(default_factory=dict)
    """Containers by whose rights it was given, each with whether it took an owner."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a key that somebody else holds or held."""

    request_hash: str
    body_hash: str | None
    answer: KeptAnswer | None
    """None while it is being answered."""

    def is_of(self, request: KeyedRequest) -> bool:
        """Whether it was sent with the same request, as far as that is known yet."""
        bodies = {self.body_hash, request.body_hash} - {None}
        return self.request_hash == request.request_hash and len(bodies) < 2


async def claim(conn: Connection, request: KeyedRequest, *, seconds: float) -> UUID | None:
    """The right to answer for ``seconds``; None when somebody has it or has answered. A crashed attempt's right
    passes to the next one with the same request."""
    values = {
        "principal": request.principal,
        "key": request.key,
        "request_hash": request.request_hash,
        "body_hash": request.body_hash,
        "claim": uuid4(),
        "seconds": seconds,
        "kept": KEPT_HOURS,
    }
    row = await (await conn.execute(CLAIM, values)).fetchone()
    return row["claim"] if row else None


async def look(conn: Connection, principal: str, key: str) -> Known | None:
    row = await (await conn.execute(LOOK, {"principal": principal, "key": key})).fetchone()
    if row is None:
        return None
    answer = None
    if row["status"] is not None:
        answer = KeptAnswer(row["status"], row["headers"], bytes(row["body"]), row["rights"] or {})
    return Known(row["request_hash"], row["body_hash"], answer)


async def renew(conn: Connection, request: KeyedRequest, held: UUID, *, seconds: float) -> bool:
    """Whether the claim still held, and holds for ``seconds`` more."""
    values = {**_fence(request, held), "seconds": seconds}
    return (await conn.execute(RENEW, values)).rowcount == 1


async def keep(
    conn: Connection, request: KeyedRequest, held: UUID, body_hash: str, answer: KeptAnswer
) -> bool:
    """Store what is answered, for those who ask again; False when the claim was lost."""
    values = {
        **_fence(request, held),
        "body_hash": body_hash,
        "status": answer.status,
        "headers": Jsonb(dict(answer.headers)),
        "body": answer.body,
        "rights": Jsonb(dict(answer.rights)),
    }
    return (await conn.execute(KEEP, values)).rowcount == 1


async def release(conn: Connection, request: KeyedRequest, held: UUID) -> None:
    """Nothing was done: the key is free again."""
    await conn.execute(RELEASE, _fence(request, held))


async def forget(conn: Connection) -> int:
    """Remove keys that nobody may replay any more; how many."""
    return (await conn.execute(FORGET, {"kept": KEPT_HOURS})).rowcount


async def forget_oldest(conn: Connection, principal: str, *, most: int) -> None:
    """Remove the principal's oldest answers, so that at most ``most`` are left."""
    await conn.execute(FORGET_OLDEST, {"principal": principal, "most": most})


def _fence(request: KeyedRequest, held: UUID) -> dict[str, object]:
    return {"principal": request.principal, "key": request.key, "claim": held}
