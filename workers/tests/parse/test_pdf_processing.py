"""How far PDFs are, and what becomes of those that somebody selects to be finished."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pymupdf
import pytest

from latent_core.db.connection import Database
from latent_core.db.documents import pdf_status
from latent_core.domain.job import JobKind
from latent_core.domain.pdf_status import Action, PdfState, PdfStatus, PdfTotals, SelectedDocument
from latent_core.ingest.processing import process
from tests.support.harness.worker_harness import CONTAINER, WorkerHarness, open_harness
from tests.support.queue import sql

PDF = "application/pdf"


@pytest.fixture
async def harness(database: Database, tmp_path: Path) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path) as opened:
        yield opened


def book(pages: int) -> bytes:
    untyped: Any = pymupdf
    file = untyped.open()
    for number in range(pages):
        file.new_page().insert_text((72, 72), f"Chapter {number} of the lamp.")
    data: bytes = file.tobytes()
    return data


async def status(harness: WorkerHarness, doc_id: UUID) -> PdfStatus:
    async with harness.stack.db.transaction() as conn:
        return (await pdf_status.of_documents(conn, CONTAINER, [doc_id]))[doc_id]


async def select(harness: WorkerHarness, *doc_ids: UUID) -> list[SelectedDocument]:
    async with harness.stack.db.transaction() as conn:
        return await process(conn, CONTAINER, doc_ids, principal="local:you")


async def test_a_pdf_waits_then_is_parsed_then_drawn(harness: WorkerHarness) -> None:
    doc_id = await harness.add("book.pdf", book(2), mime=PDF)
    waiting = await status(harness, doc_id)
    assert (waiting.status, waiting.total) == (PdfState.PENDING, 0)
    assert waiting.job_id is not None
    await harness.work(JobKind.INGEST)
    parsed = await status(harness, doc_id)
    assert (parsed.status, parsed.total, parsed.processed) == (PdfState.PARSED, 2, 0)
    assert (parsed.unprocessed, parsed.job_id is not None) == (2, True)
    await harness.work(JobKind.RENDER)
    drawn = await status(harness, doc_id)
    assert (drawn.status, drawn.processed, drawn.unprocessed) == (PdfState.DRAWN, 2, 0)
    assert (drawn.job_id, drawn.cause) == (None, None)


async def test_who_selects_what_is_open_or_done_changes_nothing(harness: WorkerHarness) -> None:
    doc_id = await harness.add("book.pdf", book(1), mime=PDF)
    waiting = await status(harness, doc_id)
    [joined] = await select(harness, doc_id)
    assert (joined.action, joined.job_id) == (Action.JOINED, waiting.job_id)
    await harness.work(JobKind.INGEST)
    assert (await select(harness, doc_id))[0].action is Action.JOINED
    await harness.work(JobKind.RENDER)
    assert (await select(harness, doc_id))[0].action is Action.NONE
    assert (
        len(await sql(harness.stack.db, "SELECT 1 FROM jobs WHERE kind IN ('ingest', 'render')"))
        == 2
    )


async def test_a_pdf_that_could_not_be_read_is_tried_again(harness: WorkerHarness) -> None:
    doc_id = await harness.add("broken.pdf", b"%PDF-1.7\nnothing of a PDF follows", mime=PDF)
    assert await harness.work(JobKind.INGEST)
    failed = await status(harness, doc_id)
    assert failed.status is PdfState.FAILED
    assert failed.cause
    [again] = await select(harness, doc_id)
    assert (again.action, again.job_id) == (Action.QUEUED, failed.job_id)
    assert (await status(harness, doc_id)).status is PdfState.PENDING


@pytest.mark.parametrize("kept", [True, False])
async def test_pages_that_nobody_drew_are_drawn_by_a_job(
    harness: WorkerHarness, kept: bool
) -> None:
    doc_id = await harness.add("book.pdf", book(2), mime=PDF)
    await harness.work(JobKind.INGEST)
    await sql(
        harness.stack.db,
        "UPDATE jobs SET state = 'cancelled', finished_at = now() WHERE kind = 'render'"
        if kept
        else "DELETE FROM jobs WHERE kind = 'render'",
    )
    lacking = await status(harness, doc_id)
    assert lacking.status is (PdfState.FAILED if kept else PdfState.PARSED)
    [queued] = await select(harness, doc_id)
    assert queued.action is Action.QUEUED
    assert (await select(harness, doc_id))[0].job_id == queued.job_id
    assert await harness.work(JobKind.RENDER) == []
    assert (await status(harness, doc_id)).status is PdfState.DRAWN


async def test_what_no_job_can_finish_is_refused_with_what_a_person_can_do(
    harness: WorkerHarness,
) -> None:
    note = await harness.add("note.md", b"# Lamp\n")
    lost = await harness.add("lost.pdf", book(1), mime=PDF)
    await sql(harness.stack.db, "DELETE FROM jobs")
    refused = await select(harness, note, lost)
    assert [one.action for one in refused] == [Action.REFUSED] * 2
    assert all("Add" in (one.cause or "") for one in refused)


async def test_pdfs_are_counted_and_listed_by_state_page_by_page(harness: WorkerHarness) -> None:
    for number in range(3):
        await harness.add(f"book-{number}.pdf", book(number + 1), mime=PDF)
    await harness.add("note.md", b"# Lamp\n")
    await harness.work(JobKind.INGEST)
    late = await harness.add("late.pdf", book(1), mime=PDF)
    async with harness.stack.db.transaction() as conn:
        totals = await pdf_status.totals(conn, [CONTAINER])
        first = await pdf_status.listed(conn, [CONTAINER], states=None, after=None, limit=3)
        rest = await pdf_status.listed(
            conn, [CONTAINER], states=None, after=first[-1].doc_id, limit=3
        )
        waiting = await pdf_status.listed(
            conn, [CONTAINER], states=[PdfState.PENDING], after=None, limit=3
        )
    assert totals == PdfTotals(documents=4, pending=1, parsed=3, pages_total=6, pages_unprocessed=6)
    assert len({one.doc_id for one in (*first, *rest)}) == 4
    assert [one.doc_id for one in waiting] == [late]
