"""Fixtures that every package's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

# Machines are shared: how long an example takes says nothing of the code.
settings.register_profile("latent", deadline=None)
settings.load_profile("latent")

pytest_plugins = ["tests.support.postgres"]


@pytest.fixture(scope="session", autouse=True)
def _own_manifests() -> Iterator[None]:
    """Containers that tests make write their files into data directories, never into the repository's manifests,
    which ``make`` names to everything that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LLC_MANIFEST_DIR", raising=False)
        yield
