"""Read image: the text of an uploaded image, for a search that waits for it."""

from __future__ import annotations

from latent_core.db.connection import Connection
from latent_core.db.documents import image_texts
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import IngestFailed
from latent_core.domain.ids import Sha256
from latent_core.ingest.processing import MAX_CHARS, ReadImagePayload
from latent_core.queue.context import JobContext
from latent_core.queue.finish import finish, hold
from latent_workers.deps import Deps
from latent_workers.ocr.engine import NoEngine
from latent_workers.ocr.merge import BLOCK_BREAK


async def read_image(ctx: JobContext, deps: Deps) -> None:
    """Read the image and store its text, unless this engine has read it before. An empty text is a result, too."""
    payload = ReadImagePayload.model_validate(ctx.job.payload)
    engine = await deps.ocr.engine()
    if isinstance(engine, NoEngine):
        raise IngestFailed(f"the image cannot be read: {engine.why}")
    async with deps.stack.db.reading() as conn:
        known = await image_texts.known(conn, payload.sha256, engine.key)
    if known:
        return
    blobs = await deps.stack.blobs_of(ctx.job.container_id)
    path = await blobs.local_copy(Sha256(payload.sha256))
    reading = await deps.ocr.read(
        engine, path, name=payload.filename, source_type=SourceType.IMAGE, page=1
    )
    text = BLOCK_BREAK.join(reading.paragraphs)[:MAX_CHARS]

    async def write(conn: Connection) -> None:
        await hold(conn, ctx.job)
        await image_texts.write(conn, payload.sha256, engine.key, text)
        await finish(conn, ctx.job)

    await ctx.transact(write)
