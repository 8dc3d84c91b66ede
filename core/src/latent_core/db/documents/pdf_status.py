"""Progress of PDFs, read from their rows, pages and jobs in one statement."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.domain.pdf_status import PdfState, PdfStatus, PdfTotals

NIL: Final = UUID(int=0)

# Done jobs are deleted sooner than failed ones: a failure from before the live generation is ignored.
# The newest jobs decide what waits and what failed, the rows what is done. A document that is neither live nor has an
# open job has lost its job: it must be added again.
FOUND: Final = """
WITH found AS (
    SELECT d.id, d.container_id, d.uri, d.title, p.total, p.drawn,
           i.id AS ingest_id, i.state AS ingest_state, i.cause AS ingest_cause,
           r.id AS render_id, r.state AS render_state, r.cause AS render_cause,
           CASE WHEN i.state IN ('queued', 'running') THEN 'pending'
                WHEN i.state = 'failed' OR d.live_generation IS NULL THEN 'failed'
                WHEN p.drawn = p.total THEN 'drawn'
                WHEN r.state IN ('failed', 'cancelled') THEN 'failed'
                ELSE 'parsed' END AS status
    FROM documents d
    CROSS JOIN LATERAL (
        SELECT count(*) AS total, count(image_sha256) AS drawn FROM pages
        WHERE doc_id = d.id AND generation = d.live_generation) p
    LEFT JOIN LATERAL (
        SELECT id, state, cause FROM jobs WHERE doc_id = d.id AND kind = 'ingest'
          AND (state <> 'failed' OR d.live_generation IS NULL OR (payload ->> 'request')::bigint >= d.floor_request)
        ORDER BY id DESC LIMIT 1) i ON true
    LEFT JOIN LATERAL (
        SELECT id, state, cause FROM jobs WHERE doc_id = d.id AND kind = 'render'
          AND (payload ->> 'generation')::bigint = d.live_generation
        ORDER BY id DESC LIMIT 1) r ON true
    WHERE d.container_id = ANY(%(container_ids)s::text[]) AND d.deleted_at IS NULL
      AND d.mime = 'application/pdf' AND d.parent_id IS NULL AND (%(doc_ids)s::uuid[] IS NULL OR d.id = ANY(%(doc_ids)s))
)
"""

LISTED: Final = (
    FOUND
    + """
SELECT * FROM found
WHERE id > %(after)s AND (%(states)s::text[] IS NULL OR status = ANY(%(states)s))
ORDER BY id
LIMIT %(limit)s
"""
)

TOTALS: Final = (
    FOUND
    + """
SELECT status, count(*) AS documents, sum(total)::bigint AS total, sum(drawn)::bigint AS drawn
FROM found GROUP BY status
"""
)


async def listed(
    conn: Connection,
    container_ids: Sequence[str],
    *,
    states: Collection[PdfState] | None,
    after: UUID | None,
    limit: int,
) -> list[PdfStatus]:
    """PDFs in the order of their ids after ``after``; without ``states`` in any state."""
    values = {
        "container_ids": list(container_ids),
        "doc_ids": None,
        "states": sorted(states) if states else None,
        "after": after or NIL,
        "limit": limit,
    }
    return [_status(row) for row in await (await conn.execute(LISTED, values)).fetchall()]


async def of_documents(
    conn: Connection, container_id: str, doc_ids: Sequence[UUID]
) -> dict[UUID, PdfStatus]:
    """The PDFs among documents of one container."""
    values = {
        "container_ids": [container_id],
        "doc_ids": list(doc_ids),
        "states": None,
        "after": NIL,
        "limit": len(doc_ids),
    }
    rows = await (await conn.execute(LISTED, values)).fetchall()
    return {row["id"]: _status(row) for row in rows}


async def totals(conn: Connection, container_ids: Sequence[str]) -> PdfTotals:
    """Of all PDFs of these containers."""
    values = {"container_ids": list(container_ids), "doc_ids": None}
    rows = await (await conn.execute(TOTALS, values)).fetchall()
    pages, drawn = sum(row["total"] for row in rows), sum(row["drawn"] for row in rows)
    return PdfTotals(
        documents=sum(row["documents"] for row in rows),
        pages_total=pages,
        pages_processed=drawn,
        pages_unprocessed=pages - drawn,
        **{row["status"]: row["documents"] for row in rows},
    )


def _status(row: dict[str, Any]) -> PdfStatus:
    state = PdfState(row["status"])
    job_id, cause = _job(row, state)
    return PdfStatus(
        doc_id=row["id"],
        container_id=row["container_id"],
        source_uri=row["uri"],
        title=row["title"],
        status=state,
        total=row["total"],
        processed=row["drawn"],
        unprocessed=row["total"] - row["drawn"],
        job_id=job_id,
        cause=cause,
    )


def _job(row: dict[str, Any], state: PdfState) -> tuple[int | None, str | None]:
    """The job that matters in this state, and the cause if it failed."""
    if state is PdfState.DRAWN:
        return None, None
    if state is PdfState.PENDING:
        return row["ingest_id"], None
    if state is PdfState.PARSED:
        return (row["render_id"] if row["render_state"] in ("queued", "running") else None), None
    drawing = row["total"] > 0 and row["ingest_state"] != "failed"
    kind = "render" if drawing else "ingest"
    job_id, ended, cause = row[f"{kind}_id"], row[f"{kind}_state"], row[f"{kind}_cause"]
    if job_id is None or ended == "done":
        return (
            None,
            "Nothing of this document is stored and its job is deleted. Add the document again.",
        )
    return job_id, cause["message"] if cause else f"its job ended as {ended}"
