"""The handler of each job kind. For a new kind: a file in this folder, and a line below."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from latent_core.domain.job import JobKind
from latent_core.queue.context import JobContext
from latent_workers.deps import Deps
from latent_workers.jobs.caption import caption
from latent_workers.jobs.compact import compact
from latent_workers.jobs.dedup import dedup
from latent_workers.jobs.delete_container import delete_container, drop_space
from latent_workers.jobs.eval import evaluate
from latent_workers.jobs.export import export
from latent_workers.jobs.extract import extract
from latent_workers.jobs.garbage import garbage
from latent_workers.jobs.generated import drop_generated, embed_generated
from latent_workers.jobs.import_ import import_
from latent_workers.jobs.ingest import corpus, ingest
from latent_workers.jobs.page_pdf import page_pdf
from latent_workers.jobs.page_words import page_words
from latent_workers.jobs.purge import purge
from latent_workers.jobs.read_image import read_image
from latent_workers.jobs.refresh import refresh
from latent_workers.jobs.render import render
from latent_workers.jobs.summarise import summarise

Handler = Callable[[JobContext], Awaitable[None]]

HANDLERS: Final[Mapping[JobKind, Callable[[JobContext, Deps], Awaitable[None]]]] = {
    JobKind.INGEST: ingest,
    JobKind.CORPUS: corpus,
    JobKind.RENDER: render,
    JobKind.PAGE_PDF: page_pdf,
    JobKind.PAGE_WORDS: page_words,
    JobKind.EXTRACT: extract,
    JobKind.DROP_GENERATED: drop_generated,
    JobKind.EMBED_GENERATED: embed_generated,
    JobKind.CAPTION: caption,
    JobKind.READ_IMAGE: read_image,
    JobKind.PURGE: purge,
    JobKind.COMPACT: compact,
    JobKind.GARBAGE: garbage,
    JobKind.DELETE_CONTAINER: delete_container,
    JobKind.DEDUP: dedup,
    JobKind.REFRESH: refresh,
    JobKind.DROP_SPACE: drop_space,
    JobKind.SUMMARISE: summarise,
    JobKind.EVAL: evaluate,
    JobKind.EXPORT: export,
    JobKind.IMPORT: import_,
}

ONE_AT_A_TIME: Final = frozenset({JobKind.EVAL, JobKind.EXTRACT})
"""One per process: an evaluation measures latencies, which another one would increase; page extractions wait for a slow
server, and would take all places of ingests."""


def handlers(deps: Deps) -> dict[JobKind, Handler]:
    """The handlers with their dependencies."""

    def bound(handler: Callable[[JobContext, Deps], Awaitable[None]]) -> Handler:
        return lambda ctx: handler(ctx, deps)

    return {kind: bound(handler) for kind, handler in HANDLERS.items()}
