"""Summarise: a language model writes the summary of one document, which becomes a chunk of its own (ADR 0055)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.documents import summaries, summary_inputs
from latent_core.db.documents.summaries import NewSummary, SummaryState
from latent_core.db.documents.summary_inputs import SummaryDocument
from latent_core.domain.errors import IngestFailed, Issue, IssueCode, LatentError
from latent_core.domain.generated import GeneratedBy, GeneratedKind
from latent_core.domain.model_answer import AnswerRefused, Violation
from latent_core.domain.summary import (
    MIN_WORDS,
    SummaryAnswer,
    SummaryFrontMatter,
    summary_answer,
)
from latent_core.ingest.summaries import SummarisePayload
from latent_core.models.llm.calls import CachedAnswer, Call
from latent_core.queue.context import JobContext
from latent_core.queue.finish import clean, finish, issue_of
from latent_workers.deps import Deps
from latent_workers.ingest.generated import GeneratedText, append_generated
from latent_workers.ingest.model_failures import fails_item, whole_text
from latent_workers.ingest.prepare import unless_archived
from latent_workers.summaries.material import SummaryMaterial, material
from latent_workers.summaries.request import PROMPT, completion, hash_of

PURPOSE: Final = "summaries"
MAX_RAW: Final = 64 * 1024
"""Characters of a refused answer that are kept."""
STEPS: Final = 3
"""Read, answered, stored."""
TOO_SHORT: Final = Issue(
    code=IssueCode.POLICY,
    message=f"It has fewer than {MIN_WORDS} words: it is its own summary.",
)


async def summarise(ctx: JobContext, deps: Deps) -> None:
    container = await unless_archived(ctx, deps)
    if container is None:
        return
    block, doc_id = container.manifest.summaries, ctx.job.doc_id
    if doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} has no document")
    if not block.enabled or block.provider is None:
        return  # switched off meanwhile
    payload = SummarisePayload.model_validate(ctx.job.payload)
    async with deps.stack.db.reading() as conn:
        document = await summary_inputs.document(conn, doc_id)
        if document is None or document.generation != payload.generation:
            return  # a newer generation has its own job
        texts = await summary_inputs.texts(conn, doc_id, document.generation)
        known = (await summaries.of_documents(conn, [doc_id])).get(doc_id)
    text = material(document, texts)
    written = SummaryJob(ctx, deps, container, document, text, block.provider, payload.force)
    if not payload.force and known is not None and written.is_current(known):
        return
    await written.run(keeps=known is not None and known.state == "done")


@dataclass(frozen=True, slots=True)
class SummaryJob:
    """The summary of one generation of a document."""

    ctx: JobContext
    deps: Deps
    container: Container
    document: SummaryDocument
    material: SummaryMaterial
    model: str
    """<provider>/<model>"""
    force: bool

    def is_current(self, known: NewSummary) -> bool:
        """Whether another answer to the same request cannot differ."""
        made_from = (known.model, known.prompt_version, known.input_hash)
        same = made_from == (self.model, PROMPT, self.material.hash)
        return same and known.state in ("done", "skipped")

    async def run(self, *, keeps: bool) -> None:
        """``keeps``: a summary of this generation stays if this attempt at another one fails."""
        await self.ctx.progress(1, STEPS, "writing")
        if self.material.words < MIN_WORDS:
            await self._store(self._row("skipped", cause=TOO_SHORT.model_dump(mode="json")))
            return
        answers: list[CachedAnswer] = []
        try:
            answer = await self._answered(answers)
        except LatentError as error:
            if not fails_item(self.ctx.job, error):
                raise
            if not keeps:
                await self._store(self._failed(error, answers), answers, last=False)
            raise
        await self.ctx.progress(2, STEPS, "storing")
        front_matter = await self._front_matter(answer)
        row = self._row(
            "done",
            answers,
            front_matter=front_matter.model_dump(mode="json"),
            text=answer.prose,
        )
        text = GeneratedText(answer.prose, keywords=front_matter.keywords)
        await self._store(row, answers, [text])

    async def _answered(self, answers: list[CachedAnswer]) -> SummaryAnswer:
        """The model's answer; one that is refused is shown to it once."""
        first = await self._call(answers)
        try:
            return read_answer(first)
        except AnswerRefused as refused:
            if refused.reason is Violation.REFUSAL:
                raise
            why = refused.message
        return read_answer(await self._call(answers, first.answer.text, why))

    async def _call(
        self, answers: list[CachedAnswer], refused: str | None = None, why: str | None = None
    ) -> CachedAnswer:
        await self.ctx.checkpoint()
        answer = await self.deps.stack.model_calls.complete(
            Call(
                container_id=self.container.id,
                purpose=PURPOSE,
                block=self.container.manifest.summaries,
                prompt_version=PROMPT,
                request=completion(self.material, refused, why),
                input_hash=hash_of(self.material, refused, why),
                job_id=self.ctx.job.id,
                doc_id=self.document.doc_id,
                force=self.force,
            )
        )
        answers.append(answer)
        return answer

    async def _front_matter(self, answer: SummaryAnswer) -> SummaryFrontMatter:
        document = self.document
        async with self.deps.stack.db.reading() as conn:
            related = await summary_inputs.existing_paths(
                conn, self.container.id, document.doc_id, answer.related_files
            )
        updated = document.source_modified_at or document.fetched_at
        return SummaryFrontMatter(
            doc_id=document.doc_id,
            source_path=document.source_path,
            language=document.language,
            product_tags=answer.product_tags,
            last_updated=updated.date() if updated is not None else None,
            key_topics=answer.key_topics,
            api_symbols=answer.api_symbols,
            related_files=related,
            suggested_queries=answer.suggested_queries,
        )

    def _failed(self, error: LatentError, answers: Sequence[CachedAnswer]) -> NewSummary:
        raw = answers[-1].answer.text[:MAX_RAW] if answers else None
        cause = clean(issue_of(error).model_dump(mode="json"))
        return self._row("failed", answers, raw=clean(raw), cause=cause)

    def _row(
        self, state: SummaryState, answers: Sequence[CachedAnswer] = (), **fields: Any
    ) -> NewSummary:
        return NewSummary(
            doc_id=self.document.doc_id,
            generation=self.document.generation,
            state=state,
            model=self.model,
            prompt_version=PROMPT,
            input_hash=self.material.hash,
            input_tokens=sum(one.answer.usage.input_tokens for one in answers),
            output_tokens=sum(one.answer.usage.output_tokens for one in answers),
            cost=sum(one.cost for one in answers),
            **fields,
        )

    async def _store(
        self,
        row: NewSummary,
        answers: Sequence[CachedAnswer] = (),
        texts: Sequence[GeneratedText] = (),
        *,
        last: bool = True,
    ) -> None:
        """The row and its chunk in one transaction; nothing if another generation is live."""

        async def save(conn: Connection) -> None:
            await summaries.save(conn, row)

        await append_generated(
            self.ctx,
            self.deps,
            self.container,
            self.document.doc_id,
            self.document.generation,
            GeneratedKind.SUMMARY,
            None,
            texts,
            by=GeneratedBy(
                kind=GeneratedKind.SUMMARY,
                model=self.model,
                prompt_version=PROMPT,
                created_at=answers[-1].created_at if answers else datetime.now(UTC),
            ),
            also=save,
        )
        if last:
            await self.ctx.transact(lambda conn: self._finish(conn, row.state), last=True)

    async def _finish(self, conn: Connection, state: SummaryState) -> None:
        await finish(conn, self.ctx.job, result={"summary": state})


def read_answer(cached: CachedAnswer) -> SummaryAnswer:
    """``AnswerRefused`` if it is no summary."""
    return summary_answer(whole_text(cached.answer, "summarise the document"))
