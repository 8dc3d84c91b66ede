"""Archives in jobs: writing the file, and reading it completely to verify it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from latent_core.blobs.writer import store_file
from latent_core.db import containers
from latent_core.domain.errors import Issue, IssueCode, NotFound, OutOfSpace
from latent_core.queue.context import JobContext
from latent_core.runtime.failpoint import failpoint
from latent_core.transfer.exporting import ArchiveExport, ExportOptions, FinishedArchive
from latent_core.transfer.records import SUFFIX, VerifiedArchive
from latent_core.transfer.verify import Verification
from latent_workers.deps import Deps
from latent_workers.ingest import cleanup

MEMBERS_PER_LOOK: Final = 64
"""Read in a thread between two lease checks."""


async def make_archive(ctx: JobContext, deps: Deps, options: ExportOptions) -> FinishedArchive:
    """Write the job's container into an archive and store it in the container's bucket; no row refers to it yet."""
    stack, container_id = deps.stack, ctx.job.container_id
    async with stack.db.transaction() as conn:
        container = await containers.get(conn, container_id)
    if container is None:
        raise NotFound(f"container '{container_id}' no longer exists")

    async def on_progress(done: int, total: int) -> None:
        await ctx.progress(done, total, "chunks written")

    store = stack.blobs.of(container.bucket)
    export = ArchiveExport(
        stack.db,
        stack.vectors,
        store,
        container,
        options,
        checkpoint=ctx.checkpoint,
        on_progress=on_progress,
    )
    with NamedTemporaryFile(dir=stack.tmp, prefix="export-") as file:
        try:
            with cleanup.requeued():
                exported = await export.write(file)
            await asyncio.to_thread(file.flush)
        except OSError as exc:
            raise OutOfSpace(
                f"the archive cannot be written ({exc.strerror}): free space in the data directory"
            ) from exc
        await ctx.checkpoint()
        failpoint("export.before_store")
        await store_file(stack.db, store, Path(file.name), exported.sha256)
        failpoint("export.after_store")
    return exported


def lacking_words(exported: FinishedArchive) -> list[Issue]:
    """What is missing in the archive because it is missing here."""
    if not exported.lacking_blobs:
        return []
    message = (
        f"{exported.lacking_blobs} originals or page images are missing or damaged in the store and therefore not in the archive: "
        "`latent doctor --deep --repair` creates page images again and names the documents that you must add again"
    )
    return [Issue(code=IssueCode.INGEST_FAIL, message=message)]


def archive_name(container_id: str, job_id: int) -> str:
    return f"{container_id}-{job_id}{SUFFIX}"


async def verify_archive(ctx: JobContext, path: Path, size: int) -> VerifiedArchive:
    """Read the whole archive; ``Invalid`` says where it is damaged."""
    with path.open("rb") as file:
        steps = Verification(file).steps()
        while True:
            contents = await asyncio.to_thread(_some, steps)
            await ctx.progress(min(file.tell(), size), size, "bytes verified")
            if contents is not None:
                return contents


def _some(steps: Iterator[VerifiedArchive | None]) -> VerifiedArchive | None:
    """Some members; the contents after the last one."""
    return next((found for found in islice(steps, MEMBERS_PER_LOOK) if found is not None), None)
