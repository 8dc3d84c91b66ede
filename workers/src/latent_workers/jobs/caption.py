"""Caption: a language model describes the pictures of a document; each caption is a generated chunk of its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from latent_core.db.connection import Connection
from latent_core.db.containers import Container
from latent_core.db.documents import page_inputs
from latent_core.db.documents.page_inputs import PagedDocument, PageInput
from latent_core.domain.caption import PROMPT, caption_of
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed, Issue, LatentError
from latent_core.domain.generated import GeneratedBy, GeneratedKind
from latent_core.domain.ids import Sha256
from latent_core.domain.visual_importance import IMAGE_FROM, of_share
from latent_core.ingest.captions import CaptionPayload, has_captions
from latent_core.models.llm.calls import CachedAnswer, Call
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish
from latent_core.queue.requeue import requeue_with
from latent_workers.captions.request import CaptionRequest
from latent_workers.deps import Deps
from latent_workers.ingest.cleanup import cleanup_on_failure
from latent_workers.ingest.generated import GeneratedText, append_generated
from latent_workers.ingest.model_failures import fails_item, whole_text
from latent_workers.ingest.page_drawing import SECONDS_TO_DRAWING, is_drawing
from latent_workers.ingest.prepare import unless_archived

PURPOSE: Final = "captions"
PAGES_PER_READ: Final = 100


@dataclass(slots=True)
class CaptionedPages:
    texts: list[GeneratedText] = field(default_factory=list)
    failures: dict[int, LatentError] = field(default_factory=dict)
    newest: datetime | None = None
    """When the last of the texts was written."""


async def caption(ctx: JobContext, deps: Deps) -> None:
    """All pictures of a document. Answers that are stored already cost nothing, so a later attempt goes on."""
    container = await unless_archived(ctx, deps)
    if container is None:
        return
    async with cleanup_on_failure(ctx, deps):
        await _caption(ctx, deps, container)


async def _caption(ctx: JobContext, deps: Deps, container: Container) -> None:
    payload = CaptionPayload.model_validate(ctx.job.payload)
    doc_id = ctx.job.doc_id
    if doc_id is None:
        raise IngestFailed(f"job {ctx.job.id} has no document")
    async with deps.stack.db.reading() as conn:
        document = await page_inputs.document(conn, doc_id)
    if document is None or document.generation != payload.generation:
        return  # a newer generation has its own job
    if not has_captions(container.manifest, SourceType(document.source_type)):
        return  # it was switched off meanwhile
    if await is_drawing(deps, doc_id):
        await _again(ctx)
        return
    pictures = await _pictures(deps, doc_id, document)
    captioned = await _captions(ctx, deps, container, document, doc_id, pictures)
    if captioned.newest is not None:
        by = GeneratedBy(
            kind=GeneratedKind.CAPTION,
            model=container.manifest.captions.provider or "",
            prompt_version=PROMPT,
            created_at=captioned.newest,
        )
        await append_generated(
            ctx,
            deps,
            container,
            doc_id,
            document.generation,
            GeneratedKind.CAPTION,
            None,
            captioned.texts,
            by=by,
        )
    elif captioned.failures:
        raise _of_the_pictures(next(iter(captioned.failures.values())))
    await _finish(ctx, captioned)


async def _pictures(deps: Deps, doc_id: UUID, document: PagedDocument) -> list[PageInput]:
    """The pages to describe: that of an image, and those of a PDF that are pictures for the most part."""
    found: list[PageInput] = []
    for start in range(0, len(document.pages), PAGES_PER_READ):
        numbers = document.pages[start : start + PAGES_PER_READ]
        async with deps.stack.db.reading() as conn:
            rows = await page_inputs.pages(conn, doc_id, document.generation, numbers)
        found += [page for page in rows.values() if _is_picture(document, page)]
    return found


def _is_picture(document: PagedDocument, page: PageInput) -> bool:
    if page.image_sha256 is None or page.image_mime is None:
        return False
    importance = of_share(page.visual)
    is_image = document.source_type == SourceType.IMAGE
    return is_image or (importance is not None and importance >= IMAGE_FROM)


async def _captions(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    document: PagedDocument,
    doc_id: UUID,
    pictures: Sequence[PageInput],
) -> CaptionedPages:
    captioned = CaptionedPages()
    for done, page in enumerate(pictures):
        await ctx.progress(done, len(pictures), "pictures")
        try:
            answer = await _answer(ctx, deps, container, document, doc_id, page)
            text = caption_of(whole_text(answer.answer, "describe the picture"))
        except LatentError as error:
            if not fails_item(ctx.job, error):
                raise
            captioned.failures[page.page] = error
            message = f"Page {page.page}: {error.message}"
            details = {"page": page.page, **error.details}
            await ctx.warn(Issue(code=error.code, message=message, details=details))
            continue
        captioned.texts.append(GeneratedText(text, page=page.page))
        captioned.newest = max(captioned.newest or answer.created_at, answer.created_at)
    return captioned


async def _answer(
    ctx: JobContext,
    deps: Deps,
    container: Container,
    document: PagedDocument,
    doc_id: UUID,
    page: PageInput,
) -> CachedAnswer:
    blobs = await deps.stack.blobs_of(container.id)
    sha256 = page.image_sha256 or ""
    request = CaptionRequest(
        document.filename or document.title or "picture",
        page.text,
        sha256,
        page.image_mime or "",
        await blobs.get(Sha256(sha256)),
    )
    call = Call(
        container_id=container.id,
        purpose=PURPOSE,
        block=container.manifest.captions,
        prompt_version=PROMPT,
        request=request.completion(),
        input_hash=request.hash,
        job_id=ctx.job.id,
        doc_id=doc_id,
    )
    await ctx.checkpoint()
    return await deps.stack.model_calls.complete(call)


def _of_the_pictures(error: LatentError) -> IngestFailed:
    """The end of a job none of whose pictures has a caption: another attempt would pay for the same answer."""
    if isinstance(error, IngestFailed):
        return error
    return IngestFailed(error.message, **error.details)


async def _again(ctx: JobContext) -> None:
    async def write(conn: Connection) -> None:
        await requeue_with(conn, ctx.job, ctx.job.payload, delay_seconds=SECONDS_TO_DRAWING)

    await ctx.transact(write)


async def _finish(ctx: JobContext, captioned: CaptionedPages) -> None:
    result = {"captions": len(captioned.texts), "failed": len(captioned.failures)}

    async def write(conn: Connection) -> None:
        await finish(conn, ctx.job, result=result)

    await ctx.transact(write, last=True)
