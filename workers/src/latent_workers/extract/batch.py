"""Extracts some pages of a document: each ends as done or as a named failure, in a row that is committed by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from latent_core.db import model_answers
from latent_core.db.connection import Connection, Database
from latent_core.db.documents import page_extractions
from latent_core.db.documents.page_extractions import (
    ExtractionMaker,
    NewPageExtraction,
    PageExtractionRow,
)
from latent_core.db.model_answers import AnswerRow
from latent_core.domain.errors import (
    IngestFailed,
    Issue,
    LatentError,
)
from latent_core.domain.extraction import (
    PROMPT,
    VERSION,
    PageExtraction,
    extraction_of,
)
from latent_core.domain.manifest.language_models import ModelBlock
from latent_core.models.llm.calls import CachedAnswer, Call, ModelCalls, answer_key
from latent_core.models.llm.port import Answer, Completion
from latent_core.queue.context import JobContext
from latent_core.queue.errors import JobCancelled, LeaseLost
from latent_core.queue.finish import clean, hold, issue_of
from latent_core.runtime.failpoint import failpoint
from latent_workers.extract.page_reader import (
    EncryptedPdf,
    GenerationReplaced,
    PageReader,
    PreparedPage,
)
from latent_workers.extract.request import completion
from latent_workers.ingest.model_failures import fails_item, whole_text

PAGES_AT_ONCE: Final = 4
"""Of one document; the limits of the provider hold over all documents."""
MAX_RAW: Final = 64 * 1024
"""Characters of a refused answer that are kept."""
PURPOSE: Final = "extraction"
UNREADABLE: Final = ""
"""The hash of a page of which no request can be made."""


def maker_of(model: str) -> ExtractionMaker:
    """What makes extractions now; those of another maker are stale."""
    return ExtractionMaker(model, PROMPT, str(VERSION))


@dataclass(frozen=True, slots=True)
class PageBatch:
    """Pages of one generation, for one job."""

    ctx: JobContext
    db: Database
    calls: ModelCalls
    container_id: str
    doc_id: UUID
    generation: int
    block: ModelBlock
    reader: PageReader
    force: bool

    @property
    def made_by(self) -> ExtractionMaker:
        return maker_of(self.block.provider or "")

    async def run(self, numbers: Sequence[int], report: Callable[[int], Awaitable[None]]) -> None:
        """All of ``numbers``, a few at the same time. When one cannot go on, no other begins, those that have begun
        end, and its error is raised."""
        async with self.db.reading() as conn:
            known = await page_extractions.of_document(conn, self.doc_id, numbers)
        left, finished = iter(numbers), 0

        async def work() -> None:
            nonlocal finished
            with _none_after_an_error(left):
                for number in left:
                    await self.ctx.checkpoint()
                    await self._page(number, known.get(number))
                    finished += 1
                    await report(finished)

        ended = await asyncio.gather(
            *(work() for _ in range(PAGES_AT_ONCE)), return_exceptions=True
        )
        if errors := [error for error in ended if error is not None]:
            raise min(errors, key=_rank)

    async def _page(self, number: int, known: PageExtractionRow | None) -> None:
        try:
            page = await self.reader.prepared(number)
        except EncryptedPdf:
            raise
        except IngestFailed as error:
            await self._save(self._failed(number, None, error))
            return
        if not self.force and not is_due(known, page.request.hash, self.made_by):
            return
        answer = None
        try:
            answer = await self._answer(page)
            row = self._done(number, page, answer, read_answer(answer.answer))
        except LatentError as error:
            if not fails_item(self.ctx.job, error):
                raise
            row = self._failed(number, page, error, answer)
        await self._save(row, page, answer)

    async def _answer(self, page: PreparedPage) -> CachedAnswer:
        """By force once per job: an attempt after a crash finds the answer of the one before."""
        call = self._call(page, completion(page.request))
        if self.force:
            call = replace(call, input_hash=f"{call.input_hash} {self.ctx.job.id}")
        return await self.calls.complete(call)

    def _call(self, page: PreparedPage, request: Completion) -> Call:
        return Call(
            container_id=self.container_id,
            purpose=PURPOSE,
            block=self.block,
            prompt_version=PROMPT,
            request=request,
            input_hash=page.request.hash,
            job_id=self.ctx.job.id,
            doc_id=self.doc_id,
        )

    def _done(
        self, number: int, page: PreparedPage, answer: CachedAnswer, extraction: PageExtraction
    ) -> NewPageExtraction:
        return NewPageExtraction(
            **self._identity(number, page),
            **_usage(answer),
            state="done",
            extraction=extraction.model_dump(mode="json"),
            visual_importance=extraction.visual_importance,
        )

    def _failed(
        self,
        number: int,
        page: PreparedPage | None,
        error: LatentError,
        answer: CachedAnswer | None = None,
    ) -> NewPageExtraction:
        return NewPageExtraction(
            **self._identity(number, page),
            **_usage(answer),
            state="failed",
            raw=None if answer is None else clean(answer.answer.text[:MAX_RAW]),
            cause=clean(issue_of(error).model_dump(mode="json")),
        )

    def _identity(self, number: int, page: PreparedPage | None) -> dict[str, Any]:
        made_by = self.made_by
        return {
            "doc_id": self.doc_id,
            "generation": self.generation,
            "page": number,
            "model": made_by.model,
            "prompt_version": made_by.prompt_version,
            "version": made_by.version,
            "page_hash": UNREADABLE if page is None else page.request.hash,
            "next_page": page and page.next_page,
            "pdf_sha256": page and page.pdf_sha256,
            "page_pdf_sha256": page and page.page_pdf_sha256,
            "next_page_pdf_sha256": page and page.next_page_pdf_sha256,
        }

    async def _save(
        self,
        row: NewPageExtraction,
        page: PreparedPage | None = None,
        answer: CachedAnswer | None = None,
    ) -> None:
        async def write(conn: Connection) -> bool:
            await hold(conn, self.ctx.job)
            if self.force and page is not None and answer is not None:
                await self._replace(conn, page, answer)
            return await page_extractions.save(conn, row)

        if not await self.ctx.transact(write):
            raise GenerationReplaced
        failpoint("extract.after_row")
        if row.cause is not None:
            message = f"Page {row.page}: {row.cause['message']}"
            details = {"page": row.page, **row.cause["details"]}
            await self.ctx.warn(Issue(code=row.cause["code"], message=message, details=details))

    async def _replace(self, conn: Connection, page: PreparedPage, answer: CachedAnswer) -> None:
        """What an equal request without force finds from now on."""
        key = answer_key(self._call(page, completion(page.request)))
        model = self.made_by.model
        given = answer.answer
        await model_answers.store(
            conn,
            AnswerRow(self.container_id, key, self.doc_id, PURPOSE, PROMPT, model),
            text=given.text,
            stop=given.stop.value,
            input_tokens=given.usage.input_tokens,
            output_tokens=given.usage.output_tokens,
            cost=answer.cost,
        )


def is_due(known: PageExtractionRow | None, page_hash: str, made_by: ExtractionMaker) -> bool:
    """Whether a page is to be extracted: for the first time, since something in its request changed, or since no answer
    was received. A refused answer is not requested again."""
    if known is None or known.page_hash != page_hash:
        return True
    if ExtractionMaker(known.model, known.prompt_version, known.version) != made_by:
        return True
    return known.state == "failed" and known.raw is None


def read_answer(answer: Answer) -> PageExtraction:
    """``AnswerRefused`` if it is no page extraction."""
    return extraction_of(whole_text(answer, "describe the page"))


def _usage(answer: CachedAnswer | None) -> dict[str, Any]:
    if answer is None:
        return {}
    return {
        "input_tokens": answer.answer.usage.input_tokens,
        "output_tokens": answer.answer.usage.output_tokens,
        "cost": answer.cost,
    }


@contextmanager
def _none_after_an_error(left: Iterator[int]) -> Iterator[None]:
    """If the block fails, nothing is left."""
    finished = False
    try:
        yield
        finished = True
    finally:
        if not finished:
            for _ in left:
                pass


def _rank(error: BaseException) -> int:
    """Which of several errors ends the attempt: the most final one."""
    if isinstance(error, LeaseLost):
        return 0
    if isinstance(error, JobCancelled | GenerationReplaced):
        return 1
    return 2 if isinstance(error, LatentError) and not error.transient else 3
