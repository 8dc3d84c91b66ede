"""What language models may read of a container, as its manifest says now, and what they used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from latent_core.db.connection import Connection
from latent_core.domain.ids import JobId
from latent_core.domain.manifest.language_models import ModelBlock, ModelBudget

NO_JOB: Final = JobId(0)
"""Of a question."""

# The totals are added up only where a budget limits them: a container may have had a hundred thousand jobs.
PERMISSION: Final = """
SELECT c.manifest -> %(purpose)s AS block, c.manifest -> 'model_budget' AS budget,
       (SELECT coalesce(sum(input_tokens + output_tokens), 0)::bigint FROM model_usage u
        WHERE u.container_id = c.id AND u.job_id = %(job_id)s) AS job_tokens,
       CASE WHEN c.manifest #>> '{model_budget,tokens}' IS NOT NULL THEN
           (SELECT coalesce(sum(input_tokens + output_tokens), 0)::bigint FROM model_usage u WHERE u.container_id = c.id)
       ELSE 0 END AS tokens,
       CASE WHEN c.manifest #>> '{model_budget,cost}' IS NOT NULL THEN
           (SELECT coalesce(sum(cost), 0) FROM model_usage u WHERE u.container_id = c.id)
       ELSE 0 END AS cost
FROM containers c
WHERE c.id = %(container_id)s AND c.deleted_at IS NULL
"""

ADD: Final = """
INSERT INTO model_usage AS u (job_id, container_id, purpose, model, calls, input_tokens, output_tokens, cost)
SELECT %(job_id)s, id, %(purpose)s, %(model)s, 1, %(input_tokens)s, %(output_tokens)s, %(cost)s
FROM containers WHERE id = %(container_id)s
ON CONFLICT (container_id, job_id, purpose, model) DO UPDATE
SET calls = u.calls + 1, input_tokens = u.input_tokens + excluded.input_tokens,
    output_tokens = u.output_tokens + excluded.output_tokens, cost = u.cost + excluded.cost
"""

TOTALS: Final = """
SELECT purpose, model, sum(calls)::bigint AS calls, sum(input_tokens)::bigint AS input_tokens,
       sum(output_tokens)::bigint AS output_tokens, sum(cost) AS cost
FROM model_usage
WHERE container_id = %(container_id)s AND (%(job_id)s::bigint IS NULL OR job_id = %(job_id)s)
GROUP BY purpose, model ORDER BY purpose, model
"""


@dataclass(frozen=True, slots=True)
class ModelPermission:
    """The block of one purpose and the budget, with what was used of it."""

    block: ModelBlock
    budget: ModelBudget
    job_tokens: int
    tokens: int
    """Of the container; 0 where its budget does not limit them."""
    cost: float
    """As ``tokens``."""


@dataclass(frozen=True, slots=True)
class ModelUsage:
    purpose: str
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost: float


async def permission(
    conn: Connection, *, container_id: str, purpose: str, job_id: JobId
) -> ModelPermission | None:
    """None if the container is deleted."""
    values = {"container_id": container_id, "purpose": purpose, "job_id": job_id}
    row = await (await conn.execute(PERMISSION, values)).fetchone()
    if row is None:
        return None
    block = row["block"] or {}
    return ModelPermission(
        ModelBlock(enabled=block.get("enabled", False), provider=block.get("provider")),
        ModelBudget.model_validate(row["budget"] or {}),
        row["job_tokens"],
        row["tokens"],
        float(row["cost"]),
    )


async def add(
    conn: Connection,
    *,
    job_id: JobId,
    container_id: str,
    purpose: str,
    model: str,
    input_tokens: int,
    output_tokens: int,
    cost: float,
) -> None:
    """Add one call to the usage of a job; does nothing for a container that no longer exists."""
    await conn.execute(
        ADD,
        {
            "job_id": job_id,
            "container_id": container_id,
            "purpose": purpose,
            "model": model,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cost": cost,
        },
    )


async def totals(
    conn: Connection, container_id: str, job_id: JobId | None = None
) -> list[ModelUsage]:
    """Of a container, or of one of its jobs, per purpose and model."""
    rows = await conn.execute(TOTALS, {"container_id": container_id, "job_id": job_id})
    return [ModelUsage(**{**row, "cost": round(float(row["cost"]), 6)}) async for row in rows]
