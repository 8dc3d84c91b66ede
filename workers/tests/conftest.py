"""Fixtures of the tests of the worker."""

from __future__ import annotations

import pytest

from latent_workers.sandbox.pool import Sandbox
from tests.support.harness.shared_sandbox import shared_sandbox


@pytest.fixture
def sandbox() -> Sandbox:
    """Children for tasks, which other tests of this process use, too."""
    return shared_sandbox()
