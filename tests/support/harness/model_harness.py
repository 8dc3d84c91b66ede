"""A worker whose container may name models of one stand-in for language models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from latent_core.db.connection import Database
from latent_core.domain.manifest.model import Manifest
from latent_core.models.llm.calls import ModelCalls
from latent_core.settings import Settings
from tests.support.harness.worker_harness import (
    LEASE_SECONDS,
    CountingEmbedder,
    WorkerHarness,
    open_deps,
)
from tests.support.servers.llm_server import LanguageModelServer


async def no_nap(_seconds: float) -> None:
    """Retries need no pauses here."""


@asynccontextmanager
async def open_with_model(
    database: Database,
    folder: Path,
    server: LanguageModelServer,
    manifest: Manifest,
    **entry: Any,
) -> AsyncIterator[WorkerHarness]:
    """``entry``: of the provider ``work`` in the file LLC_PROVIDERS; its address and key are those of the server."""
    (folder / "key").write_text("sk-1", encoding="utf-8")
    provider = {
        "name": "work",
        "kind": "openai",
        "base_url": server.base_url,
        "key_file": "key",
        **entry,
    }
    file = folder / "providers.yaml"
    file.write_text(yaml.safe_dump({"providers": [provider]}), encoding="utf-8")
    (folder / "data").mkdir()
    settings = Settings(
        data_dir=folder / "data",
        ingest_roots=(folder,),
        lease_seconds=LEASE_SECONDS,
        providers=file,
    )
    embedder = CountingEmbedder()
    async with open_deps(database, settings, embedder, manifest) as deps:
        stack = deps.stack
        calls = ModelCalls(stack.db, stack.language_models, sleep=no_nap)
        deps = replace(deps, stack=replace(stack, model_calls=calls))
        yield WorkerHarness(deps, embedder, folder)
