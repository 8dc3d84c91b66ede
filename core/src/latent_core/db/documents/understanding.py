"""How far summaries and page extractions are, read from their rows and jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection, only_row
from latent_core.db.documents.page_extractions import ExtractionMaker
from latent_core.domain.understanding import (
    DocumentExtraction,
    DocumentSummary,
    DocumentUnderstanding,
    ExtractionTotals,
    PurposeUse,
    SummaryState,
    SummaryTotals,
)

NIL: Final = UUID(int=0)
PAGES_LISTED: Final = 20
"""Failed pages of a document."""

DOCUMENTS: Final = """
SELECT d.id, d.container_id, d.uri, d.title, d.source_type = ANY(%(types)s) AS is_extracted,
       e.total, e.processed, e.failed, e.stale, e.input_tokens, e.output_tokens, e.cost, e.failed_pages, e.cause,
       j.id AS job_id, j.state AS job_state, j.cause AS job_cause,
       s.state AS summary_state, s.model IS DISTINCT FROM %(summary_model)s AS summary_stale, s.cause AS summary_cause,
       s.input_tokens AS summary_input, s.output_tokens AS summary_output, s.cost AS summary_cost
FROM documents d
CROSS JOIN LATERAL (
    SELECT count(*) AS total, count(*) FILTER (WHERE x.state = 'done') AS processed,
           count(*) FILTER (WHERE x.state = 'failed') AS failed,
           count(x.page) FILTER (WHERE (x.model, x.prompt_version, x.version)
                                 IS DISTINCT FROM (%(model)s, %(prompt_version)s, %(version)s)) AS stale,
           coalesce(sum(x.input_tokens), 0)::bigint AS input_tokens,
           coalesce(sum(x.output_tokens), 0)::bigint AS output_tokens, coalesce(sum(x.cost), 0) AS cost,
           (array_agg(x.page ORDER BY x.page) FILTER (WHERE x.state = 'failed'))[1:%(pages_listed)s] AS failed_pages,
           (array_agg(x.cause ->> 'message' ORDER BY x.page) FILTER (WHERE x.state = 'failed'))[1] AS cause
    FROM pages p LEFT JOIN page_extractions x ON (x.doc_id, x.generation, x.page) = (p.doc_id, p.generation, p.page)
    WHERE p.doc_id = d.id AND p.generation = d.live_generation) e
LEFT JOIN LATERAL (
    SELECT id, state, cause FROM jobs WHERE doc_id = d.id AND kind = 'extract' ORDER BY id DESC LIMIT 1) j ON true
LEFT JOIN summaries s ON s.doc_id = d.id AND s.generation = d.live_generation
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
  AND d.parent_id IS NULL AND d.id > %(after)s AND (%(ids)s::uuid[] IS NULL OR d.id = ANY(%(ids)s))
ORDER BY d.id
LIMIT %(limit)s
"""

EXTRACTION: Final = """
SELECT count(DISTINCT d.id) AS documents, count(*) AS total, count(*) FILTER (WHERE x.state = 'done') AS processed,
       count(*) FILTER (WHERE x.state = 'failed') AS failed,
       count(x.page) FILTER (WHERE (x.model, x.prompt_version, x.version)
                             IS DISTINCT FROM (%(model)s, %(prompt_version)s, %(version)s)) AS stale,
       count(*) - count(x.page) AS unprocessed,
       coalesce(sum(x.input_tokens), 0)::bigint AS input_tokens,
       coalesce(sum(x.output_tokens), 0)::bigint AS output_tokens, coalesce(sum(x.cost), 0) AS cost
FROM documents d
JOIN pages p ON p.doc_id = d.id AND p.generation = d.live_generation
LEFT JOIN page_extractions x ON (x.doc_id, x.generation, x.page) = (p.doc_id, p.generation, p.page)
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.parent_id IS NULL
  AND d.source_type = ANY(%(types)s)
"""

SUMMARIES: Final = """
SELECT count(*) AS documents, count(*) FILTER (WHERE s.state = 'done') AS done,
       count(*) FILTER (WHERE s.state = 'failed') AS failed, count(*) FILTER (WHERE s.state = 'skipped') AS skipped,
       count(s.doc_id) FILTER (WHERE s.model IS DISTINCT FROM %(summary_model)s) AS stale,
       coalesce(sum(s.input_tokens), 0)::bigint AS input_tokens,
       coalesce(sum(s.output_tokens), 0)::bigint AS output_tokens, coalesce(sum(s.cost), 0) AS cost
FROM documents d LEFT JOIN summaries s ON s.doc_id = d.id AND s.generation = d.live_generation
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL AND d.live_generation IS NOT NULL
  AND d.parent_id IS NULL
"""

USAGE: Final = """
SELECT purpose, model, sum(calls)::bigint AS calls, sum(input_tokens)::bigint AS input_tokens,
       sum(output_tokens)::bigint AS output_tokens, sum(cost) AS cost
FROM model_usage WHERE container_id = %(container_id)s
GROUP BY purpose, model ORDER BY purpose, model
"""


async def documents(
    conn: Connection,
    container_id: str,
    made_by: ExtractionMaker,
    *,
    types: Collection[str],
    summary_model: str | None,
    doc_ids: Sequence[UUID] | None = None,
    after: UUID | None = None,
    limit: int,
) -> list[DocumentUnderstanding]:
    """Documents in the order of their ids after ``after``; ``types`` are those whose pages are extracted."""
    values = {
        **_made(made_by),
        "container_id": container_id,
        "types": sorted(types),
        "summary_model": summary_model,
        "ids": None if doc_ids is None else list(doc_ids),
        "after": after or NIL,
        "limit": limit,
        "pages_listed": PAGES_LISTED,
    }
    return [_document(row) for row in await (await conn.execute(DOCUMENTS, values)).fetchall()]


async def extraction_totals(
    conn: Connection, container_id: str, made_by: ExtractionMaker, types: Collection[str]
) -> ExtractionTotals:
    values = {**_made(made_by), "container_id": container_id, "types": sorted(types)}
    return ExtractionTotals(**await only_row(await conn.execute(EXTRACTION, values)))


async def summary_totals(
    conn: Connection, container_id: str, summary_model: str | None
) -> SummaryTotals:
    values = {"container_id": container_id, "summary_model": summary_model}
    return SummaryTotals(**await only_row(await conn.execute(SUMMARIES, values)))


async def usage(conn: Connection, container_id: str) -> list[PurposeUse]:
    cursor = await conn.execute(USAGE, {"container_id": container_id})
    return [PurposeUse(**row) for row in await cursor.fetchall()]


def _made(made_by: ExtractionMaker) -> dict[str, Any]:
    return {
        "model": made_by.model,
        "prompt_version": made_by.prompt_version,
        "version": made_by.version,
    }


def _document(row: dict[str, Any]) -> DocumentUnderstanding:
    return DocumentUnderstanding(
        doc_id=row["id"],
        container_id=row["container_id"],
        source_uri=row["uri"],
        title=row["title"],
        extraction=_extraction(row) if row["is_extracted"] else None,
        summary=_summary(row),
    )


def _extraction(row: dict[str, Any]) -> DocumentExtraction:
    failed_job = row["job_state"] == "failed" and row["job_cause"] is not None
    return DocumentExtraction(
        total=row["total"],
        processed=row["processed"],
        failed=row["failed"],
        stale=row["stale"],
        unprocessed=row["total"] - row["processed"] - row["failed"],
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        cost=row["cost"],
        job_id=row["job_id"],
        job_state=row["job_state"],
        cause=row["job_cause"]["message"] if failed_job else row["cause"],
        failed_pages=row["failed_pages"] or [],
    )


def _summary(row: dict[str, Any]) -> DocumentSummary:
    if row["summary_state"] is None:
        return DocumentSummary()
    cause = row["summary_cause"]
    return DocumentSummary(
        state=SummaryState(row["summary_state"]),
        stale=row["summary_stale"],
        cause=cause["message"] if cause else None,
        input_tokens=row["summary_input"],
        output_tokens=row["summary_output"],
        cost=row["summary_cost"],
    )
