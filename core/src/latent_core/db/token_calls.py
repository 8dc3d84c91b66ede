"""Rows of calls: how often each token called each operation on a day (UTC)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from latent_core.db.connection import Connection
from latent_core.domain.token import Api, OperationCalls, TokenCalls

KEPT_DAYS: Final = 90

# In key order, so that two gateways never wait for each other. A token that was removed meanwhile has no row.
ADD: Final = """
INSERT INTO token_calls (token_id, day, api, operation, calls, failures)
SELECT c.token_id, c.day, c.api, c.operation, c.calls, c.failures
FROM unnest(%(token_ids)s::bigint[], %(days)s::date[], %(apis)s::text[], %(operations)s::text[],
            %(calls)s::bigint[], %(failures)s::bigint[]) AS c (token_id, day, api, operation, calls, failures)
JOIN tokens t ON t.id = c.token_id
ORDER BY c.token_id, c.day, c.api, c.operation
ON CONFLICT (token_id, day, api, operation)
DO UPDATE SET calls = token_calls.calls + EXCLUDED.calls, failures = token_calls.failures + EXCLUDED.failures
"""

OF_TOKEN: Final = """
SELECT day, api, operation, calls, failures FROM token_calls
WHERE token_id = %(token_id)s AND day > (now() AT TIME ZONE 'UTC')::date - %(days)s::integer
ORDER BY day, api, operation
"""

TOTALS: Final = """
SELECT token_id, api, operation, sum(calls)::bigint AS calls, sum(failures)::bigint AS failures
FROM token_calls
WHERE token_id = ANY(%(token_ids)s) AND day > (now() AT TIME ZONE 'UTC')::date - %(days)s::integer
GROUP BY token_id, api, operation
ORDER BY token_id, sum(calls) DESC, api, operation
"""

FORGET: Final = """
DELETE FROM token_calls WHERE day < (now() AT TIME ZONE 'UTC')::date - %(kept)s::integer
"""


@dataclass(frozen=True, slots=True, order=True)
class CallKey:
    token_id: int
    day: date
    """UTC."""
    api: Api
    operation: str


@dataclass(slots=True)
class CallCount:
    calls: int = 0
    failures: int = 0


async def add(conn: Connection, counts: Mapping[CallKey, CallCount]) -> None:
    """Add the counts to those of other gateways, in one statement."""
    keys = sorted(counts)
    values = {
        "token_ids": [key.token_id for key in keys],
        "days": [key.day for key in keys],
        "apis": [key.api.value for key in keys],
        "operations": [key.operation for key in keys],
        "calls": [counts[key].calls for key in keys],
        "failures": [counts[key].failures for key in keys],
    }
    await conn.execute(ADD, values)


async def of_token(conn: Connection, token_id: int, *, days: int) -> list[TokenCalls]:
    """The calls of the last ``days`` days, today among them, oldest first."""
    cursor = await conn.execute(OF_TOKEN, {"token_id": token_id, "days": days})
    return [TokenCalls.model_validate(row) for row in await cursor.fetchall()]


async def totals(
    conn: Connection, token_ids: Sequence[int], *, days: int
) -> dict[int, list[OperationCalls]]:
    """By token, the calls of each operation in the last ``days`` days, the most frequent first."""
    cursor = await conn.execute(TOTALS, {"token_ids": list(token_ids), "days": days})
    found: dict[int, list[OperationCalls]] = {token_id: [] for token_id in token_ids}
    for row in await cursor.fetchall():
        found[row.pop("token_id")].append(OperationCalls.model_validate(row))
    return found


async def forget(conn: Connection) -> int:
    """Delete the days that are older than ``KEPT_DAYS``; returns the number of rows."""
    return (await conn.execute(FORGET, {"kept": KEPT_DAYS})).rowcount
