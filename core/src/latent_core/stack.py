"""The stack: the one place that chooses implementations, opens them in order and closes them in reverse.

A backing service whose address is not given is embedded (DESIGN §2).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from latent_core.blobs.files import FileBlobStore
from latent_core.blobs.port import BlobStore
from latent_core.blobs.signing import Signer
from latent_core.domain.errors import Conflict, Invalid
from latent_core.embedding.resolve import Embedders
from latent_core.generations.containers import ensure_collections
from latent_core.keywords.bm25 import PostgresKeywordIndex
from latent_core.keywords.port import KeywordIndex
from latent_core.observability import Metrics
from latent_core.processes.datadir import DataDirectory, owner_of
from latent_core.processes.postgres import EmbeddedPostgres
from latent_core.queue.reaper import release_all
from latent_core.queue.wakeup import Wakeup
from latent_core.registry import secrets
from latent_core.registry.connection import Database
from latent_core.registry.migrate import migrate
from latent_core.rerank.resolve import Rerankers
from latent_core.settings import Settings
from latent_core.vectors.edge import EdgeVectorIndex
from latent_core.vectors.port import VectorIndex

logger = logging.getLogger(__name__)

CONNECTIONS = 20


@dataclass(frozen=True, slots=True)
class Stack:
    """Everything gateway and worker stand on."""

    settings: Settings
    db: Database
    keywords: KeywordIndex
    vectors: VectorIndex
    blobs: BlobStore
    signer: Signer
    embedders: Embedders
    metrics: Metrics
    wakeup: Wakeup
    tmp: Path
    """Folder for files in motion; on the same disk as the blobs."""
    token: str
    """The owner's."""
    token_place: str
    """Where a person finds it."""
    rerankers: Rerankers = field(default_factory=Rerankers)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process stops: long answers end."""

    def wake(self) -> None:
        """Tell workers that jobs were committed; they poll as well, so nothing depends on it."""
        self.wakeup.wake()

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[Stack]:
        """Open every service; ``Conflict``, ``Invalid``, ``Unavailable`` say why one cannot be."""
        _refuse_what_is_not_offered(settings)
        async with AsyncExitStack() as services:
            folder = DataDirectory(settings.data_dir)
            await asyncio.to_thread(services.enter_context, folder)
            postgres = await services.enter_async_context(EmbeddedPostgres(folder.path))
            await migrate(postgres.dsn)
            db = await services.enter_async_context(
                await Database.open(postgres.dsn, max_size=CONNECTIONS, name="latent up")
            )
            released = await release_all(db)
            if released:
                logger.info(
                    "jobs_released",
                    extra={"jobs": released, "cause": "the last process ended in their midst"},
                )
            vectors = await EdgeVectorIndex.open(folder.vectors)
            services.push_async_callback(vectors.close)
            await ensure_collections(db, vectors)
            blobs = FileBlobStore(folder.blobs, folder.tmp)
            services.push_async_callback(blobs.close)
            embedders = Embedders(settings, folder.models)
            services.push_async_callback(embedders.close)
            rerankers = Rerankers.of(settings)
            services.push_async_callback(rerankers.close)
            stack = cls(
                settings=settings,
                db=db,
                keywords=PostgresKeywordIndex(db),
                vectors=vectors,
                blobs=blobs,
                signer=await _signer(settings, db),
                embedders=embedders,
                metrics=Metrics(),
                wakeup=await services.enter_async_context(Wakeup(db)),
                tmp=folder.tmp,
                token=settings.mcp_token.get_secret_value()
                if settings.mcp_token
                else folder.token(),
                token_place="LLC_MCP_TOKEN" if settings.mcp_token else str(folder.path / "token"),
                rerankers=rerankers,
            )
            try:
                yield stack
            finally:
                stack.closing.set()


def refuse_taken(settings: Settings) -> None:
    """``Conflict`` when another process holds the data directory; names its pid."""
    with suppress(OSError):  # what else is wrong with it is said when it is opened
        owner = owner_of(settings.data_dir)
        if owner is not None:
            raise Conflict(
                f"{settings.data_dir} is held by process {owner.pid}, which runs already: use that one, stop it, "
                "or choose another LLC_DATA_DIR and LLC_PORT",
                pid=owner.pid,
            )


def _refuse_what_is_not_offered(settings: Settings) -> None:
    """Servers come with a later part; an address that would be ignored is refused."""
    given = {
        "LLC_POSTGRES_DSN": settings.postgres_dsn,
        "LLC_QDRANT_URL": settings.qdrant_url,
        "LLC_S3_ENDPOINT": settings.s3_endpoint,
    }
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise Invalid(
            f"{', '.join(named)}: servers are not offered yet; unset it, and the embedded service is used"
        )


async def _signer(settings: Settings, db: Database) -> Signer:
    if settings.signing_key is not None:
        return Signer(settings.signing_key.get_secret_value().encode())
    async with db.transaction() as conn:
        return Signer(await secrets.ensure(conn, secrets.SIGNING_KEY))
