"""The stack: the one place that chooses implementations, opens them in order and closes them in reverse.

A backing service without a configured address is embedded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from latent_core.backends import (
    CONNECTIONS,
    ProcessFolders,
    SharedServices,
    connect_vectors,
    open_blobs,
    open_engine_socket,
    open_place,
    open_postgres,
    open_presigner,
    open_vectors,
)
from latent_core.blobs.port import BlobStore, BlobStores
from latent_core.blobs.signing import Signer
from latent_core.bm25.analyser import query_terms
from latent_core.bm25.bm25 import PostgresKeywordIndex
from latent_core.bm25.exact import ExactIndex
from latent_core.bm25.phrases import PhraseIndex
from latent_core.bm25.port import KeywordIndex
from latent_core.db import containers, installation, placement
from latent_core.db.blobs import blobs as blob_rows
from latent_core.db.capacity import CapacityGuard
from latent_core.db.connection import Database
from latent_core.db.installation import taking_part
from latent_core.db.schema import is_newest
from latent_core.db.start import await_server
from latent_core.domain.errors import (
    Conflict,
    Invalid,
    LatentError,
    MarkerMismatch,
    Misconfigured,
    NotFound,
    ReadOnlyStore,
)
from latent_core.domain.installation import Installation, MarkerPolicy
from latent_core.ingest.containers import ensure_collections
from latent_core.ingest.password_seal import PasswordSeal
from latent_core.models.embedding.api.identity import StoredReferences
from latent_core.models.embedding.drift import StoredAdapters
from latent_core.models.embedding.rate import SharedTextRate
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.llm.calls import ModelCalls
from latent_core.models.llm.resolve import LanguageModels
from latent_core.models.providers.registry import Providers
from latent_core.models.rerank.resolve import Rerankers
from latent_core.queue.reaper import release_all
from latent_core.queue.wakeup import Wakeup
from latent_core.readiness import Readiness
from latent_core.runtime import failpoint
from latent_core.runtime.data_directory import owner_of
from latent_core.runtime.tasks import ended
from latent_core.search.channel_outages import ChannelOutages
from latent_core.search.circuit_breaker import CircuitBreakers
from latent_core.search.cosine_scales import CosineScales
from latent_core.search.embed import QueryCache
from latent_core.search.readable import SearchStores
from latent_core.settings import Settings
from latent_core.telemetry.metrics import Metrics
from latent_core.telemetry.resources import ResourceCollector
from latent_core.vectors.port import VectorIndex

if TYPE_CHECKING:
    from latent_core.blobs.presigner import Presigner

logger = logging.getLogger(__name__)

ENSURE_PAUSE_SECONDS = 5.0
MAX_ENSURE_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Stack:
    """The services that gateway and worker use."""

    settings: Settings
    shared: SharedServices
    """For further processes."""
    db: Database
    keywords: KeywordIndex
    vectors: VectorIndex
    blobs: BlobStores
    signer: Signer
    password_seal: PasswordSeal
    embedders: EmbedderRegistry
    metrics: Metrics
    wakeup: Wakeup
    readiness: Readiness
    tmp: Path
    """Folder for temporary files; on the same disk as the blobs."""
    token: str
    """The owner's."""
    token_place: str
    """Where users find the token."""
    cosine_scales: CosineScales
    """Sampled once per process, not per search."""
    language_models: LanguageModels
    model_calls: ModelCalls
    rerankers: Rerankers = field(default_factory=Rerankers)
    breakers: CircuitBreakers = field(default_factory=CircuitBreakers)
    channel_outages: ChannelOutages = field(default_factory=ChannelOutages)
    capacity: CapacityGuard = field(default_factory=CapacityGuard)
    presigner: Presigner | None = None
    """Signs direct links to the S3 server, if users can reach it."""
    process: str = "up"
    """The kind of process: ``up`` (gateway and worker in one), ``gateway`` or ``worker``."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the process stops, to end streaming responses."""

    def wake(self) -> None:
        """Notify workers of committed jobs; a hint only, since they also poll."""
        self.wakeup.wake()

    async def blobs_of(self, container_id: str) -> BlobStore:
        """The store of a container's blobs, also of one that is hidden or deleted."""
        async with self.db.reading() as conn:
            bucket = await containers.bucket(conn, container_id)
        if bucket is None:
            raise NotFound(f"container '{container_id}' no longer exists")
        return self.blobs.of(bucket)

    def search_stores(self, queries: QueryCache) -> SearchStores:
        """The stores for searches; ``queries`` caches the vectors of recent queries."""
        return SearchStores(
            db=self.db,
            keywords=self.keywords,
            vectors=self.vectors,
            embedders=self.embedders,
            query_terms=query_terms,
            exact=ExactIndex(self.db),
            phrases=PhraseIndex(self.db),
            rerankers=self.rerankers,
            queries=queries,
            breakers=self.breakers,
            channel_outages=self.channel_outages,
            cosine_scales=self.cosine_scales,
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: Settings, *, name: str = "up", joined: SharedServices | None = None
    ) -> AsyncIterator[Stack]:
        """Open every service; raises ``Conflict``, ``Invalid`` or ``Unavailable`` with the reason.

        ``name`` identifies the process in the database's list of sessions. A further process uses the services that
        the first one has ``joined`` it to.
        """
        failpoint.arm(settings.failpoint_name)
        async with AsyncExitStack() as services:
            if joined is None:
                opened = await _open_stores(services, settings, name)
            else:
                opened = await _join_stores(services, settings, name, joined)
            place, db, vectors = opened.shared.folders, opened.db, opened.vectors
            embedders = EmbedderRegistry(
                settings,
                place.models,
                rates=lambda name, per_minute: SharedTextRate(db, per_minute, name),
            )
            embedders.keep_adapters_in(StoredAdapters(db))
            embedders.keep_references_in(StoredReferences(db))
            services.push_async_callback(embedders.close)
            rerankers = Rerankers.of(settings, embedders.store)
            services.push_async_callback(rerankers.close)
            language_models = LanguageModels(
                Providers.of(settings),
                lambda name, per_minute: SharedTextRate(db, per_minute, name),
            )
            services.push_async_callback(language_models.close)
            blobs = await open_blobs(services, settings, place, opened.holder, opened.policy)
            metrics, capacity = Metrics(), CapacityGuard.of(settings, place.tmp)
            metrics.registry.register(ResourceCollector(db.stats, place.tmp))
            signing_key = await _signing_key(settings, db)
            stack = cls(
                settings=settings,
                shared=opened.shared,
                db=db,
                keywords=PostgresKeywordIndex(db),
                vectors=vectors,
                blobs=blobs,
                signer=Signer(signing_key),
                password_seal=PasswordSeal(signing_key),
                embedders=embedders,
                metrics=metrics,
                wakeup=await services.enter_async_context(Wakeup(db)),
                readiness=Readiness(
                    db, vectors, blobs.own, capacity, metrics, writes=name == "worker"
                ),
                tmp=place.tmp,
                token=place.token,
                token_place=place.token_place,
                cosine_scales=CosineScales(vectors),
                language_models=language_models,
                model_calls=ModelCalls(db, language_models),
                rerankers=rerankers,
                capacity=capacity,
                presigner=open_presigner(services, settings, opened.holder),
                process=name,
            )
            services.push_async_callback(stack.breakers.close)
            try:
                yield stack
            finally:
                stack.closing.set()


@dataclass(frozen=True, slots=True)
class _Stores:
    """The database and the vector engine, and what they say about this installation."""

    shared: SharedServices
    db: Database
    vectors: VectorIndex
    holder: Installation
    policy: MarkerPolicy


async def _open_stores(services: AsyncExitStack, settings: Settings, name: str) -> _Stores:
    if settings.postgres_dsn is not None:  # a refused database leaves no folder behind
        dsn = settings.postgres_dsn.get_secret_value()
        await await_server(dsn)
        await _refuse_old(dsn)
    place = await open_place(services, settings)
    db = await _open_database(services, settings, place, name)
    holder, policy = await _identity(settings, db)
    await _check_own_bucket(settings, db)
    listening, engine = open_engine_socket(services, settings, place)
    vectors = await open_vectors(services, settings, place, holder, policy, listening)
    await _ensure_collections(services, db, vectors, alone=settings.qdrant_url is None)
    return _Stores(SharedServices(place, db.dsn, engine), db, vectors, holder, policy)


async def _join_stores(
    services: AsyncExitStack, settings: Settings, name: str, shared: SharedServices
) -> _Stores:
    """The first process has migrated the database, checked the stores and made the collections."""
    db = await _connected(services, shared.dsn, name)
    holder, policy = await _identity(settings, db)
    if shared.engine is not None:
        vectors = await connect_vectors(services, shared.folders.path, shared.engine)
    else:
        vectors = await open_vectors(services, settings, shared.folders, holder, policy)
    return _Stores(shared, db, vectors, holder, policy)


async def _open_database(
    services: AsyncExitStack, settings: Settings, place: ProcessFolders, name: str
) -> Database:
    """Open and migrate the database."""
    dsn = await open_postgres(services, settings, place)
    await _migrate(dsn)
    db = await _connected(services, dsn, name)
    if settings.postgres_dsn is not None:
        await services.enter_async_context(taking_part(db, alone=place.alone))
    if place.alone:
        await _release_jobs(db)
    return db


async def _connected(services: AsyncExitStack, dsn: str, name: str) -> Database:
    return await services.enter_async_context(
        await Database.open(dsn, max_size=CONNECTIONS, name=name)
    )


async def _release_jobs(db: Database) -> None:
    """Release the jobs of the last process. Those of a server that accepts reads only are released when their leases
    have ended."""
    try:
        released = await release_all(db)
    except ReadOnlyStore as error:
        logger.warning("jobs_not_released", extra={"cause": error.message})
        return
    if released:
        logger.info(
            "jobs_released",
            extra={"jobs": released, "cause": "the last process ended while it ran them"},
        )


async def _ensure_collections(
    services: AsyncExitStack, db: Database, vectors: VectorIndex, *, alone: bool
) -> None:
    """At once; what fails is repeated in the background. ``MarkerMismatch`` stops the start."""
    cause = await _ensure_failure(db, vectors, alone=alone)
    if cause is not None:
        logger.warning("collections_not_checked", extra={"cause": cause})
        task = asyncio.create_task(_ensure_later(db, vectors, cause, alone=alone))
        services.push_async_callback(ended, task)


async def _ensure_later(db: Database, vectors: VectorIndex, cause: str, *, alone: bool) -> None:
    """Repeat until all collections are there. Logs a cause when it is another one than before."""
    pause = ENSURE_PAUSE_SECONDS
    while True:
        await asyncio.sleep(pause)
        pause = min(2 * pause, MAX_ENSURE_PAUSE_SECONDS)
        try:
            found = await _ensure_failure(db, vectors, alone=alone)
        except MarkerMismatch as error:
            found = error.message
        except Exception as error:
            logger.exception("collections_check_failed")
            found = repr(error)
        if found is None:
            logger.info("collections_checked")
            return
        if found != cause:
            logger.warning("collections_not_checked", extra={"cause": found})
        cause = found


async def _ensure_failure(db: Database, vectors: VectorIndex, *, alone: bool) -> str | None:
    """Why some collections could not be checked or created; None if all are there."""
    try:
        failed = await ensure_collections(db, vectors, alone=alone)
    except MarkerMismatch:
        raise
    except LatentError as error:
        return error.message
    if not failed:
        return None
    return f"{len(failed)} of the collections: {failed[min(failed)].message}"


async def _refuse_old(dsn: str) -> None:
    """``Conflict`` for a database from before the initial revision."""
    if not await is_newest(dsn):
        from latent_core.db.migrate import current_revision

        await current_revision(dsn)


async def _migrate(dsn: str) -> None:
    """Load Alembic only when there is something to migrate."""
    if not await is_newest(dsn):
        from latent_core.db.migrate import migrate

        await migrate(dsn)


async def _identity(settings: Settings, db: Database) -> tuple[Installation, MarkerPolicy]:
    """The installation, and what to do with its markers on servers. ``Misconfigured`` for a copied database whose
    original may use the same servers."""
    async with db.transaction() as conn:
        holder = await installation.ensure_installation(conn)
        if settings.qdrant_url is not None or settings.s3_endpoint is not None:
            await installation.check_holder(conn, holder)
        used = await installation.has_content(conn)
    await _store_bound(settings, db)
    return holder, MarkerPolicy.REQUIRE if used else MarkerPolicy.CREATE


async def _store_bound(settings: Settings, db: Database) -> None:
    bound = settings.qdrant_collections if settings.qdrant_url is not None else None
    try:
        async with db.transaction() as conn:
            await placement.set_bound(conn, bound)
    except ReadOnlyStore as error:  # only new containers need it, and none can be created
        logger.warning(
            "collections_bound_not_stored", extra={"bound": bound, "cause": error.message}
        )


async def _check_own_bucket(settings: Settings, db: Database) -> None:
    """``Misconfigured`` if LLC_S3_BUCKET is a bucket that containers name: rows of both would mean the same objects, and
    the garbage of one would be the content of the other."""
    if settings.s3_endpoint is None:
        return
    async with db.transaction() as conn:
        named = await blob_rows.buckets(conn)
    if settings.s3_bucket in named:
        raise Misconfigured(
            f"LLC_S3_BUCKET is '{settings.s3_bucket}', which the manifest of a container names as its own bucket "
            "(storage.blobs.bucket). Set LLC_S3_BUCKET to the bucket of the installation"
        )


async def adopt(settings: Settings, buckets: Sequence[str] = ()) -> Installation:
    """Make the configured database the holder of its installation's data on the servers (``latent adopt``).

    Buckets that manifests name are taken over, too, if they belonged to the same holder as the own bucket or are named
    in ``buckets``; ``Conflict`` at the end names the others. The former holder then stops writing within ``WRITE_CHECK_SECONDS`` and never removes anything again.
    """
    if settings.qdrant_url is None and settings.s3_endpoint is None:
        raise Invalid(
            "nothing to adopt: vectors and blobs are embedded, in the data directory. `latent adopt` is for "
            "LLC_QDRANT_URL and LLC_S3_ENDPOINT"
        )
    if settings.postgres_dsn is not None:
        await await_server(settings.postgres_dsn.get_secret_value())
    async with AsyncExitStack() as services:
        place = await open_place(services, settings)
        db = await _open_database(services, settings, place, "adopt")
        await _check_own_bucket(settings, db)
        async with db.transaction() as conn:
            holder = await installation.take_over(conn)
            named = await blob_rows.buckets(conn)
        await open_vectors(services, settings, place, holder, MarkerPolicy.TAKE_OVER)
        stores = await open_blobs(services, settings, place, holder, MarkerPolicy.TAKE_OVER)
        refused = []
        for bucket in sorted({*named, *buckets}):
            try:
                await stores.adopt(bucket, by_name=bucket in buckets)
            except LatentError as error:
                refused.append(error.message)
        if refused:
            raise Conflict(
                f"installation {holder.id} now belongs to this database, except for: {'; '.join(refused)}"
            )
    return holder


def refuse_taken(settings: Settings) -> None:
    """``Conflict`` when another process holds the data directory; names its pid."""
    with suppress(OSError):  # other errors are reported when it is opened
        owner = owner_of(settings.data_dir)
        if owner is not None:
            raise Conflict(
                f"{settings.data_dir} is held by process {owner.pid}, which runs already: use that one, stop it, "
                "or choose another LLC_DATA_DIR and LLC_PORT",
                pid=owner.pid,
            )


async def _signing_key(settings: Settings, db: Database) -> bytes:
    if settings.signing_key is not None:
        return settings.signing_key.get_secret_value().encode()
    async with db.transaction() as conn:
        return await installation.ensure_secret(conn, installation.SIGNING_KEY)
