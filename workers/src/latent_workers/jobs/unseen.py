"""Pages that are published without a vector of how they look, since their pictures cannot be embedded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from latent_core.domain.errors import Issue, IssueCode
from latent_core.domain.left_out import LeftOut
from latent_core.domain.vector import Matrix
from latent_core.embedding.picture import Picture, Piece
from latent_core.ingest.stage import Addressed
from latent_core.queue.context import JobContext

NAMED: Final = 20
"""Pages with a warning of their own; of the others one warning tells how many they are."""
REMEDY: Final = (
    "when the embedder takes it, add the document again, or refresh the container in place"
)


def left_out_of(ctx: JobContext) -> LeftOut:
    """What this attempt goes on without, of one document or of a whole refresh."""
    return LeftOut(last_attempt=ctx.job.attempts >= ctx.job.max_attempts)


def kept_of(
    left_out: LeftOut, parts: Sequence[Sequence[Piece]], vectors: Matrix
) -> tuple[list[int], Matrix]:
    """How many points each of ``parts`` has, and the rows to store: a picture that was left out has none."""
    if not len(left_out):
        return [len(part) for part in parts], vectors
    kept = [[not is_left_out(left_out, piece) for piece in part] for part in parts]
    mask = np.array([there for own in kept for there in own], dtype=bool)
    return [sum(own) for own in kept], vectors[mask]


def is_left_out(left_out: LeftOut, piece: Piece) -> bool:
    return isinstance(piece, Picture) and left_out.why(piece.sha256) is not None


async def tell_left_out(ctx: JobContext, left_out: LeftOut, addressed: Sequence[Addressed]) -> None:
    """Warn of each page and why, the first of them by name."""
    told = 0
    for one in addressed:
        draft = one.chunk.draft
        error = left_out.why(draft.picture)
        if error is None or one.windows:
            continue
        told += 1
        if told <= NAMED:
            await ctx.warn(unseen_page(draft.place.page, error.message))
    if told > NAMED:
        await ctx.warn(unseen_pages(told - NAMED))


def unseen_page(page: int | None, cause: str, **details: str) -> Issue:
    """The warning of one page."""
    return Issue(
        code=IssueCode.INGEST_FAIL,
        message=f"Page {page} is not found by how it looks, only by its text, since its picture could not be "
        f"embedded: {cause}; {REMEDY}",
        details={"page": page, "cause": cause, **details},
    )


def unseen_pages(more: int) -> Issue:
    """The warning of all that are not named."""
    return Issue(
        code=IssueCode.INGEST_FAIL,
        message=f"{more} more pages are not found by how they look, for reasons such as these",
        details={"pages": more},
    )


def unseen_words(pages: int) -> list[Issue]:
    """What the job's owner should know of pages without a vector."""
    if not pages:
        return []
    message = (
        f"{pages} pages were left out, since their pictures could not be embedded: they are found by their text, not "
        "by how they look. When the embedder takes them, refresh the container in place"
    )
    return [Issue(code=IssueCode.INGEST_FAIL, message=message, details={"pages": pages})]
