"""Rows of page extractions: one per page, each committed by itself by an ``extract`` job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from latent_core.db.connection import Connection, only_row

ExtractionState = Literal["done", "failed"]

# Nothing about a generation that is not live: a newer one has its own job.
SAVE: Final = """
INSERT INTO page_extractions (doc_id, generation, page, state, extraction, visual_importance, raw, cause, model,
                              prompt_version, version, page_hash, next_page, pdf_sha256, page_pdf_sha256,
                              next_page_pdf_sha256, input_tokens, output_tokens, cost)
SELECT d.id, %(generation)s, %(page)s, %(state)s, %(extraction)s, %(visual_importance)s, %(raw)s, %(cause)s, %(model)s,
       %(prompt_version)s, %(version)s, %(page_hash)s, %(next_page)s, %(pdf_sha256)s, %(page_pdf_sha256)s,
       %(next_page_pdf_sha256)s, %(input_tokens)s, %(output_tokens)s, %(cost)s
FROM documents d
WHERE d.id = %(doc_id)s AND d.live_generation = %(generation)s AND d.deleted_at IS NULL
ON CONFLICT (doc_id, generation, page) DO UPDATE
SET state = excluded.state, extraction = excluded.extraction, visual_importance = excluded.visual_importance,
    raw = excluded.raw, cause = excluded.cause, model = excluded.model, prompt_version = excluded.prompt_version,
    version = excluded.version, page_hash = excluded.page_hash, next_page = excluded.next_page,
    pdf_sha256 = excluded.pdf_sha256, page_pdf_sha256 = excluded.page_pdf_sha256,
    next_page_pdf_sha256 = excluded.next_page_pdf_sha256, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, cost = excluded.cost, created_at = now()
"""

# ``pages`` NULL: all pages.
OF_DOCUMENT: Final = """
SELECT e.doc_id, e.generation, e.page, e.state, e.extraction, e.visual_importance, e.raw, e.cause, e.model,
       e.prompt_version, e.version, e.page_hash, e.next_page, e.pdf_sha256, e.page_pdf_sha256, e.next_page_pdf_sha256,
       e.input_tokens, e.output_tokens, e.cost, e.created_at
FROM page_extractions e JOIN documents d ON d.id = e.doc_id AND d.live_generation = e.generation
WHERE e.doc_id = %(doc_id)s AND d.deleted_at IS NULL AND (%(pages)s::integer[] IS NULL OR e.page = ANY(%(pages)s))
ORDER BY e.page
"""

# Stale: made by another model, prompt or schema than the given ones.
COUNTS: Final = """
SELECT p.doc_id, count(*) AS total, count(e.page) FILTER (WHERE e.state = 'done') AS done,
       count(e.page) FILTER (WHERE e.state = 'failed') AS failed,
       count(e.page) FILTER (WHERE (e.model, e.prompt_version, e.version)
                             IS DISTINCT FROM (%(model)s, %(prompt_version)s, %(version)s)) AS stale,
       coalesce(sum(e.input_tokens), 0)::bigint AS input_tokens,
       coalesce(sum(e.output_tokens), 0)::bigint AS output_tokens, coalesce(sum(e.cost), 0) AS cost
FROM documents d
JOIN pages p ON p.doc_id = d.id AND p.generation = d.live_generation
LEFT JOIN page_extractions e ON e.doc_id = p.doc_id AND e.generation = p.generation AND e.page = p.page
WHERE d.container_id = %(container_id)s AND d.deleted_at IS NULL
  AND (%(ids)s::uuid[] IS NULL OR d.id = ANY(%(ids)s))
GROUP BY p.doc_id
ORDER BY p.doc_id
"""

COUNTS_OF_CONTAINER: Final = f"""
SELECT coalesce(sum(total), 0)::bigint AS total, coalesce(sum(done), 0)::bigint AS done,
       coalesce(sum(failed), 0)::bigint AS failed, coalesce(sum(stale), 0)::bigint AS stale,
       coalesce(sum(input_tokens), 0)::bigint AS input_tokens, coalesce(sum(output_tokens), 0)::bigint AS output_tokens,
       coalesce(sum(cost), 0) AS cost
FROM ({COUNTS}) documents
"""

REMOVE: Final = """
DELETE FROM page_extractions WHERE doc_id = ANY(%(ids)s) AND (%(pages)s::integer[] IS NULL OR page = ANY(%(pages)s))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPageExtraction:
    """The outcome of one page."""

    doc_id: UUID
    generation: int
    page: int
    state: ExtractionState
    extraction: Mapping[str, Any] | None = None
    """None: failed."""
    visual_importance: int | None = None
    raw: str | None = None
    """The model's answer, of a failed one."""
    cause: Mapping[str, Any] | None = None
    """The issue, of a failed one."""
    model: str
    prompt_version: str
    version: str
    """Of the schema."""
    page_hash: str
    """Of everything that the model read."""
    next_page: int | None = None
    """The page that it consulted."""
    pdf_sha256: str | None = None
    page_pdf_sha256: str | None = None
    next_page_pdf_sha256: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageExtractionRow(NewPageExtraction):
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ExtractionCounts:
    """Pages of live generations; ``total`` includes those without an extraction."""

    total: int
    done: int
    failed: int
    stale: int
    """Of ``done`` and ``failed``: made by another model, prompt or schema."""
    input_tokens: int
    output_tokens: int
    cost: float

    @property
    def unprocessed(self) -> int:
        return self.total - self.done - self.failed


@dataclass(frozen=True, slots=True)
class ExtractionMaker:
    """What made an extraction; another one is stale."""

    model: str
    prompt_version: str
    version: str


async def save(conn: Connection, extraction: NewPageExtraction) -> bool:
    """Replace the page's extraction; False, and nothing is written, if its generation is not live."""
    values = asdict(extraction) | {
        "extraction": None if extraction.extraction is None else Jsonb(dict(extraction.extraction)),
        "cause": None if extraction.cause is None else Jsonb(dict(extraction.cause)),
    }
    return (await conn.execute(SAVE, values)).rowcount == 1


async def of_document(
    conn: Connection, doc_id: UUID, pages: Sequence[int] | None = None
) -> dict[int, PageExtractionRow]:
    """The extractions of the live generation by page, of all pages or some."""
    values = {"doc_id": doc_id, "pages": None if pages is None else list(pages)}
    async with conn.cursor(row_factory=class_row(PageExtractionRow)) as cursor:
        await cursor.execute(OF_DOCUMENT, values)
        return {row.page: row for row in await cursor.fetchall()}


async def counts(
    conn: Connection, container_id: str, maker: ExtractionMaker, doc_ids: Sequence[UUID]
) -> dict[UUID, ExtractionCounts]:
    """By document, of those that have pages."""
    values = _values(container_id, maker) | {"ids": list(doc_ids)}
    rows = await (await conn.execute(COUNTS, values)).fetchall()
    return {row.pop("doc_id"): _counts(row) for row in rows}


async def counts_of_container(
    conn: Connection, container_id: str, maker: ExtractionMaker
) -> ExtractionCounts:
    values = _values(container_id, maker) | {"ids": None}
    return _counts(await only_row(await conn.execute(COUNTS_OF_CONTAINER, values)))


def _values(container_id: str, maker: ExtractionMaker) -> dict[str, Any]:
    return {"container_id": container_id, **asdict(maker)}


def _counts(row: dict[str, Any]) -> ExtractionCounts:
    return ExtractionCounts(**{**row, "cost": float(row["cost"])})


async def remove(
    conn: Connection, doc_ids: Sequence[UUID], pages: Sequence[int] | None = None
) -> int:
    """Delete the extractions of documents; their chunks go by ``latent_core.ingest.generated``."""
    values = {"ids": list(doc_ids), "pages": None if pages is None else list(pages)}
    return (await conn.execute(REMOVE, values)).rowcount
