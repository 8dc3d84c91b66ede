"""The backing services: each is a server when its address is given, and embedded otherwise (DESIGN §2).

What speaks to the Qdrant and S3 servers is imported only then: it takes its time and memory, and need not be installed.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from latent_core.blobs.files import FileBlobStore
from latent_core.blobs.port import BlobStore
from latent_core.processes.datadir import DataDirectory
from latent_core.processes.postgres import EmbeddedPostgres
from latent_core.processes.workfolder import WorkFolder
from latent_core.settings import Settings
from latent_core.vectors.edge import MIN_FREE_BYTES, EdgeVectorIndex
from latent_core.vectors.port import VectorIndex

if TYPE_CHECKING:
    from latent_core.blobs.presigning import Presigner


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process keeps what it has on this machine."""

    path: Path
    models: Path
    tmp: Path
    """For files in motion; on the disk of embedded blobs."""
    token: str
    """The owner's."""
    token_place: str
    """Where a person finds it."""
    alone: bool
    """Something is embedded: no other process may use these stores."""


async def open_place(services: AsyncExitStack, settings: Settings) -> Place:
    """The data directory, held; or a folder among others' when every store is a server."""
    alone = bool(settings.addresses_missing)
    folder = DataDirectory(settings.data_dir) if alone else WorkFolder(settings.data_dir)
    await asyncio.to_thread(services.enter_context, folder)
    given = settings.mcp_token
    return Place(
        path=folder.path,
        models=folder.models,
        tmp=folder.tmp,
        token=given.get_secret_value() if given else folder.token(),
        token_place="LLC_MCP_TOKEN" if given else str(folder.path / "token"),
        alone=alone,
    )


async def open_postgres(services: AsyncExitStack, settings: Settings, place: Place) -> str:
    """Its DSN."""
    if settings.postgres_dsn is not None:
        return settings.postgres_dsn.get_secret_value()
    postgres = await services.enter_async_context(EmbeddedPostgres(place.path))
    return postgres.dsn


async def open_vectors(services: AsyncExitStack, settings: Settings, place: Place) -> VectorIndex:
    index: VectorIndex
    if settings.qdrant_url is not None:
        from latent_core.servers import open_qdrant

        index = await open_qdrant(settings, settings.qdrant_url)
    else:
        index = await EdgeVectorIndex.open(
            place.path / "vectors", min_free_bytes=max(MIN_FREE_BYTES, settings.min_free_bytes)
        )
    services.push_async_callback(index.close)
    return index


async def open_blobs(services: AsyncExitStack, settings: Settings, place: Place) -> BlobStore:
    store: BlobStore
    if settings.s3_endpoint is not None:
        from latent_core.servers import open_s3

        store = await open_s3(settings, settings.s3_endpoint, place.tmp / "s3")
    else:
        store = FileBlobStore(place.path / "blobs", place.tmp, least_free=settings.min_free_bytes)
    services.push_async_callback(store.close)
    return store


def open_presigner(services: AsyncExitStack, settings: Settings) -> Presigner | None:
    """Signs links straight to the S3 server, where readers can reach it."""
    if settings.s3_endpoint is None or settings.s3_public_endpoint is None:
        return None
    from latent_core.servers import make_presigner

    presigner = make_presigner(settings, settings.s3_public_endpoint)
    services.callback(presigner.close)
    return presigner
