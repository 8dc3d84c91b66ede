"""Answers of language models, stored so that none is paid for twice."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection

UNUSED_DAYS: Final = 90
FORGET_BATCH: Final = 10_000

USE: Final = """
SELECT text, stop, input_tokens, output_tokens, cost, created_at, used_at < now() - interval '1 day' AS mark
FROM model_answers
WHERE container_id = %(container_id)s AND key = %(key)s
"""

MARK: Final = """
UPDATE model_answers SET used_at = now() WHERE container_id = %(container_id)s AND key = %(key)s
"""

# Not of a container or document that was deleted meanwhile.
STORE: Final = """
INSERT INTO model_answers (container_id, key, doc_id, purpose, prompt_version, model, text, stop, input_tokens,
                           output_tokens, cost)
SELECT c.id, %(key)s, %(doc_id)s, %(purpose)s, %(prompt_version)s, %(model)s, %(text)s, %(stop)s, %(input_tokens)s,
       %(output_tokens)s, %(cost)s
FROM containers c
WHERE c.id = %(container_id)s AND c.deleted_at IS NULL
  AND (%(doc_id)s::uuid IS NULL OR EXISTS (SELECT FROM documents d WHERE d.id = %(doc_id)s AND d.deleted_at IS NULL))
ON CONFLICT (container_id, key) DO UPDATE
SET doc_id = excluded.doc_id, text = excluded.text, stop = excluded.stop, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, cost = excluded.cost, created_at = now(), used_at = now()
RETURNING created_at
"""

FORGET: Final = """
DELETE FROM model_answers a
WHERE (a.container_id, a.key) IN (
    SELECT container_id, key FROM model_answers
    WHERE used_at < now() - make_interval(days => %(days)s) LIMIT %(batch)s
)
"""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    text: str
    stop: str
    input_tokens: int
    output_tokens: int
    cost: float
    created_at: datetime


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """What an answer is stored with."""

    container_id: str
    key: str
    doc_id: UUID | None
    purpose: str
    prompt_version: str
    model: str


async def use(conn: Connection, container_id: str, key: str) -> StoredAnswer | None:
    """The stored answer, which stays for another 90 days."""
    names = {"container_id": container_id, "key": key}
    row = await (await conn.execute(USE, names)).fetchone()
    if row is None:
        return None
    if row.pop("mark"):
        await conn.execute(MARK, names)
    return StoredAnswer(**row)


async def store(
    conn: Connection,
    row: AnswerRow,
    *,
    text: str,
    stop: str,
    input_tokens: int,
    output_tokens: int,
    cost: float,
) -> datetime | None:
    """When it was stored; None if its container or document is deleted."""
    values = {
        "container_id": row.container_id,
        "key": row.key,
        "doc_id": row.doc_id,
        "purpose": row.purpose,
        "prompt_version": row.prompt_version,
        "model": row.model,
        "text": text,
        "stop": stop,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "cost": cost,
    }
    stored = await (await conn.execute(STORE, values)).fetchone()
    return None if stored is None else stored["created_at"]


async def forget(conn: Connection) -> int:
    """Delete answers that were not used for 90 days, at most a batch; returns their number."""
    deleted = await conn.execute(FORGET, {"days": UNUSED_DAYS, "batch": FORGET_BATCH})
    return deleted.rowcount
