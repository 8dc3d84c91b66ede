"""Fixtures of the tests of the worker."""

from __future__ import annotations

from functools import partial

import pytest

from latent_core.queue import backoff, requeue
from latent_workers.sandbox.pool import Sandbox
from tests.support.harness.shared_sandbox import shared_sandbox


@pytest.fixture
def sandbox() -> Sandbox:
    """Children for tasks, which other tests of this process use, too."""
    return shared_sandbox()


@pytest.fixture(autouse=True)
def longest_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """No jitter: a random delay may be so short that a slow machine retries a job within the same step of a test."""
    monkeypatch.setattr(requeue, "backoff_seconds", partial(backoff.backoff_seconds, draw=1.0))
