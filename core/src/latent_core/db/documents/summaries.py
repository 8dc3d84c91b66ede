"""Rows of summaries: one per document, written by a ``summarise`` job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection, only_row

SummaryState = Literal["done", "failed", "skipped"]

# Nothing about a generation that is not live: a newer one has its own job.
SAVE: Final = """
INSERT INTO summaries (doc_id, generation, state, front_matter, text, model, prompt_version, input_hash, raw, cause,
                       input_tokens, output_tokens, cost)
SELECT d.id, %(generation)s, %(state)s, %(front_matter)s, %(text)s, %(model)s, %(prompt_version)s, %(input_hash)s,
       %(raw)s, %(cause)s, %(input_tokens)s, %(output_tokens)s, %(cost)s
FROM documents d
WHERE d.id = %(doc_id)s AND d.live_generation = %(generation)s AND d.deleted_at IS NULL
ON CONFLICT (doc_id) DO UPDATE
SET generation = excluded.generation, state = excluded.state, front_matter = excluded.front_matter,
    text = excluded.text, model = excluded.model, prompt_version = excluded.prompt_version,
    input_hash = excluded.input_hash, raw = excluded.raw, cause = excluded.cause,
    input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens, cost = excluded.cost,
    created_at = now()
"""

OF_DOCUMENTS: Final = """
SELECT s.doc_id, s.generation, s.state, s.front_matter, s.text, s.model, s.prompt_version, s.input_hash, s.raw, s.cause,
       s.input_tokens, s.output_tokens, s.cost, s.created_at
FROM summaries s JOIN documents d ON d.id = s.doc_id AND d.live_generation = s.generation
WHERE s.doc_id = ANY(%(ids)s) AND d.deleted_at IS NULL
"""

COUNTS: Final = """
SELECT count(*) AS total, count(s.doc_id) FILTER (WHERE s.state = 'done') AS done,
       count(s.doc_id) FILTER (WHERE s.state = 'failed') AS failed,
       count(s.doc_id) FILTER (WHERE s.state = 'skipped') AS skipped,
       coalesce(sum(s.input_tokens), 0)::bigint AS input_tokens,
       coalesce(sum(s.output_tokens), 0)::bigint AS output_tokens, coalesce(sum(s.cost), 0) AS cost
FROM documents d LEFT JOIN summaries s ON s.doc_id = d.id AND s.generation = d.live_generation
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
"""

REMOVE: Final = "DELETE FROM summaries WHERE doc_id = ANY(%(ids)s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSummary:
    """The outcome of one summary."""

    doc_id: UUID
    generation: int
    state: SummaryState
    front_matter: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    model: str
    prompt_version: str
    input_hash: str
    raw: str | None = None
    """The model's answer, of a failed one."""
    cause: Mapping[str, Any] | None = None
    """The issue, of one that failed or was skipped."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow(NewSummary):
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SummaryCounts:
    """Of the live documents of a container; those without a row for their live generation are unprocessed."""

    total: int
    done: int
    failed: int
    skipped: int
    input_tokens: int
    output_tokens: int
    cost: float

    @property
    def unprocessed(self) -> int:
        return self.total - self.done - self.failed - self.skipped


async def save(conn: Connection, summary: NewSummary) -> bool:
    """Replace the document's summary; False, and nothing is written, if its generation is not live."""
    values = asdict(summary) | {
        "front_matter": Jsonb(dict(summary.front_matter)),
        "cause": None if summary.cause is None else Jsonb(dict(summary.cause)),
    }
    return (await conn.execute(SAVE, values)).rowcount == 1


async def of_documents(conn: Connection, doc_ids: Sequence[UUID]) -> dict[UUID, SummaryRow]:
    """The summaries of live generations."""
    async with conn.cursor(row_factory=class_row(SummaryRow)) as cursor:
        await cursor.execute(OF_DOCUMENTS, {"ids": list(doc_ids)})
        return {row.doc_id: row for row in await cursor.fetchall()}


async def counts(conn: Connection, container_id: str) -> SummaryCounts:
    row = await only_row(await conn.execute(COUNTS, {"container_id": container_id}))
    return SummaryCounts(**{**row, "cost": float(row["cost"])})


async def remove(conn: Connection, doc_ids: Sequence[UUID]) -> int:
    """Delete the summaries of documents; their chunks go by ``latent_core.ingest.generated``."""
    return (await conn.execute(REMOVE, {"ids": list(doc_ids)})).rowcount
