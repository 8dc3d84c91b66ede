"""Pages and chunks that are published without a vector, because the embedder refuses their images or texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from latent_core.domain.errors import Issue, IssueCode
from latent_core.domain.findings import RefusedInputs
from latent_core.domain.vector_types import Matrix
from latent_core.ingest.stage import AddressedChunk
from latent_core.models.embedding.picture import Piece, hash_of
from latent_core.queue.context import JobContext

NAMED: Final = 20
"""Pages with their own warning; one more warning counts the others."""
REMEDY: Final = (
    "when the embedder accepts it, add the document again, or refresh the container in place"
)


def refused_inputs_of(ctx: JobContext) -> RefusedInputs:
    """The skipped images of this attempt, of one document or of a whole refresh."""
    return RefusedInputs(last_attempt=ctx.job.attempts >= ctx.job.max_attempts)


def kept_of(
    refused_inputs: RefusedInputs, parts: Sequence[Sequence[Piece]], vectors: Matrix
) -> tuple[list[int], Matrix]:
    """The number of points of each of ``parts``, and the rows to store; a skipped image has none."""
    if not refused_inputs:
        return [len(part) for part in parts], vectors
    kept = [[not is_skipped(refused_inputs, piece) for piece in part] for part in parts]
    mask = np.array([there for own in kept for there in own], dtype=bool)
    return [sum(own) for own in kept], vectors[mask]


def is_skipped(refused_inputs: RefusedInputs, piece: Piece) -> bool:
    return bool(refused_inputs) and refused_inputs.why(hash_of(piece)) is not None


async def warn_of_skipped_images(
    ctx: JobContext, refused_inputs: RefusedInputs, addressed: Sequence[AddressedChunk]
) -> None:
    """Warn of each page with its cause, the first ones by name."""
    named = 0
    for one in addressed:
        draft = one.chunk.draft
        error = refused_inputs.why(draft.picture)
        if error is None or one.windows:
            continue
        named += 1
        if named <= NAMED:
            await ctx.warn(skipped_page(draft.place.page, error.message))
    if named > NAMED:
        await ctx.warn(skipped_pages(named - NAMED))


async def warn_of_refused_texts(
    ctx: JobContext,
    refused_inputs: RefusedInputs,
    addressed: Sequence[AddressedChunk],
    parts: Sequence[Sequence[Piece]],
) -> None:
    """Warn of each chunk with a text that the embedder refused, the first ones by name."""
    named = 0
    for one, part in zip(addressed, parts, strict=True):
        if one.chunk.draft.picture is not None or not refused_inputs:
            continue
        errors = [error for piece in part if (error := refused_inputs.why(hash_of(piece)))]
        if not errors:
            continue
        named += 1
        if named <= NAMED:
            await ctx.warn(refused_text(one, errors[0].message, whole=len(errors) == len(part)))
    if named > NAMED:
        await ctx.warn(
            Issue(
                code=IssueCode.INGEST_FAIL,
                message=f"{named - NAMED} more chunks are found by their words only, for similar reasons",
                details={"chunks": named - NAMED},
            )
        )


def refused_text(one: AddressedChunk, cause: str, *, whole: bool) -> Issue:
    """The warning of one chunk."""
    draft = one.chunk.draft
    begin = " ".join(draft.embed_text.split())[:60]
    lost = "is found by its words only" if whole else "is partly found by its words only"
    return Issue(
        code=IssueCode.INGEST_FAIL,
        message=f"The chunk '{begin}' {lost}, because the embedder refused its text: {cause}; {REMEDY}",
        details={"cause": cause, "page": draft.place.page, "chunk_no": one.chunk.chunk_no},
    )


def skipped_page(page: int | None, cause: str, **details: str) -> Issue:
    """The warning of one page."""
    return Issue(
        code=IssueCode.INGEST_FAIL,
        message=f"Page {page} is found by its text only, because its image could not be embedded: "
        f"{cause}; {REMEDY}",
        details={"page": page, "cause": cause, **details},
    )


def skipped_pages(more: int) -> Issue:
    """The warning about the remaining pages."""
    return Issue(
        code=IssueCode.INGEST_FAIL,
        message=f"{more} more pages are found by their text only, for similar reasons",
        details={"pages": more},
    )


def refused_input_warnings(pages: int) -> list[Issue]:
    """Warnings for the job's owner about pages without a vector."""
    if not pages:
        return []
    message = (
        f"{pages} pages have no image vector, because their images could not be embedded (or chunks have none, because "
        "their texts were refused). They are found by their words. When the embedder accepts them, refresh the container "
        "in place"
    )
    return [Issue(code=IssueCode.INGEST_FAIL, message=message, details={"pages": pages})]
