"""The embedded vector engine: the contract, and what happens when processes are killed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from latent_core.testing.vectors import VectorIndexContract
from latent_core.vectors.edge import EdgeVectorIndex
from latent_core.vectors.port import VectorIndex


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def index(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VectorIndex]:
    index = await EdgeVectorIndex.open(tmp_path_factory.mktemp("vectors"))
    yield index
    assert index.restarts == 0
    await index.close()


@pytest.mark.asyncio(loop_scope="class")
class TestContract(VectorIndexContract):
    """Every promise of the port, kept by one engine that is never started again."""
