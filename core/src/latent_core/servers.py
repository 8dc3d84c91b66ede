"""The Qdrant and S3 servers that settings name. Their clients come with ``latent-core[servers]``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from latent_core.domain.errors import Invalid
from latent_core.settings import Settings

INSTALL: Final = "pip install 'latent-core[servers]'"

try:
    from latent_core.blobs.presigning import Presigner
    from latent_core.blobs.s3 import S3Address, S3BlobStore
    from latent_core.vectors.qdrant import QdrantAddress, QdrantVectorIndex
except ModuleNotFoundError as exc:
    raise Invalid(
        f"LLC_QDRANT_URL and LLC_S3_ENDPOINT need packages that are not installed ({exc.name}): {INSTALL}"
    ) from exc


async def open_qdrant(settings: Settings, url: str) -> QdrantVectorIndex:
    address = QdrantAddress(url, settings.qdrant_api_key, settings.qdrant_prefix)
    return await QdrantVectorIndex.open(address)


async def open_s3(settings: Settings, endpoint: str, copies: Path) -> S3BlobStore:
    """``copies``: the folder for local copies of blobs."""
    return await S3BlobStore.open(_s3_address(settings, endpoint), copies)


def make_presigner(settings: Settings, public_endpoint: str) -> Presigner:
    return Presigner(_s3_address(settings, public_endpoint))


def _s3_address(settings: Settings, endpoint: str) -> S3Address:
    """``Invalid`` names the keys that are missing."""
    keys = {
        "LLC_S3_ACCESS_KEY": settings.s3_access_key,
        "LLC_S3_SECRET_KEY": settings.s3_secret_key,
    }
    missing = [name for name, key in keys.items() if key is None]
    if settings.s3_access_key is None or settings.s3_secret_key is None:
        raise Invalid(f"LLC_S3_ENDPOINT is given, but not {', '.join(missing)}: set it as well")
    return S3Address(
        endpoint,
        settings.s3_access_key,
        settings.s3_secret_key,
        settings.s3_bucket,
        settings.s3_region,
    )
