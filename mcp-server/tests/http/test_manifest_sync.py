"""The folder of manifests at a start: a service that is away delays it once, not once per file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock, create_autospec

import pytest

from latent_core.blobs.port import BlobStores
from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.domain.errors import (
    Conflict,
    LatentError,
    Misconfigured,
    ReadOnlyStore,
    TimedOut,
    UpstreamError,
)
from latent_core.domain.manifest.model import Manifest
from latent_core.models.embedding.rate import TextRate
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.llm.resolve import LanguageModels
from latent_core.models.providers.registry import Providers
from latent_core.models.rerank.resolve import Rerankers
from latent_core.settings import Settings
from latent_core.stack import Stack
from latent_gateway.manifest_sync import sync_manifests

NAMES = ("coast", "fog", "lamp")


@pytest.fixture
def stack(database: Database, tmp_path: Path) -> Stack:
    settings = Settings(_env_file=None, data_dir=tmp_path, embed_base_url="http://127.0.0.1:9")
    blobs = create_autospec(BlobStores, instance=True)
    blobs.bucket_of.return_value = ""
    given = SimpleNamespace(
        db=database,
        vectors=SimpleNamespace(create_collection=AsyncMock()),
        blobs=blobs,
        embedders=EmbedderRegistry(settings, tmp_path),
        rerankers=Rerankers(),
        language_models=LanguageModels(Providers.of(settings), lambda _, n: TextRate(n)),
        settings=settings,
    )
    return cast(Stack, given)


def in_folder() -> list[tuple[Path, Manifest]]:
    return [
        (Path(f"{name}.yaml"), Manifest(id=name, name=name, embedder="openai/test", dims=8))
        for name in NAMES
    ]


@pytest.mark.parametrize(
    ("error", "tried"),
    [
        (TimedOut("frozen"), 1),
        (UpstreamError("failed"), 1),
        (ReadOnlyStore("reads only"), 1),
        (Misconfigured("no key"), 3),
        (Conflict("exists"), 3),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_manifests_wait_for_a_service_that_does_not_answer_and_not_for_one_that_refuses_theirs(
    stack: Stack, error: LatentError, tried: int, caplog: pytest.LogCaptureFixture
) -> None:
    create = cast(AsyncMock, stack.vectors.create_collection)
    create.side_effect = error
    await sync_manifests(stack, in_folder())
    assert create.await_count == tried
    later = [vars(r) for r in caplog.records if r.message == "manifests_not_applied"]
    expected = [(["fog.yaml", "lamp.yaml"], error.message)] if tried == 1 else []
    assert [(one["files"], one["cause"]) for one in later] == expected


async def test_manifests_that_were_postponed_are_created_at_the_next_start(stack: Stack) -> None:
    create = cast(AsyncMock, stack.vectors.create_collection)
    create.side_effect = [TimedOut("frozen"), None, None, None]
    await sync_manifests(stack, in_folder())
    await sync_manifests(stack, in_folder())
    async with stack.db.transaction() as conn:
        assert set(await containers.etags(conn)) >= {"fog", "lamp"}
