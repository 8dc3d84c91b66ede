"""A fake gateway, served over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from latent_client import AsyncClient
from latent_core.domain.manifest.model import Manifest
from tests.support.fake_gateway.gateway import TOKEN, FakeGateway
from tests.support.fake_gateway.http import ServedStage, staged


@pytest.fixture(scope="session")
def stage() -> Iterator[ServedStage]:
    with staged() as stage:
        yield stage


@pytest.fixture
def gateway(stage: ServedStage) -> FakeGateway:
    fake = FakeGateway(url=stage.url)
    fake.create(Manifest(id="notes", name="Notes"))
    stage.app = fake
    return fake


@pytest.fixture
async def client(gateway: FakeGateway) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(gateway.url, TOKEN, timeout_seconds=10) as client:
        yield client
