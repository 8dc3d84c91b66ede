"""Fixtures that every package's tests share."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Machines are shared: how long an example takes says nothing of the code.
settings.register_profile("latent", deadline=None)
settings.load_profile("latent")

# A shell that starts a run in the background has it ignore these; the processes that tests start would inherit that.
for _number in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(
            _number,
            signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL,
        )

# Looking through all that the tests and what they import create, again and again, is most of what their collection costs.
gc.disable()


def pytest_collection_finish() -> None:
    """All that is there now stays; what the tests create is looked through as ever."""
    gc.collect()
    gc.freeze()
    gc.enable()


pytest_plugins = ["tests.support.postgres"]


@pytest.fixture(scope="session", autouse=True)
def _own_data_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Clients that tests make note the folders that they sync in a directory of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLC_DATA_DIR", str(tmp_path_factory.mktemp("client")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_manifests() -> Iterator[None]:
    """Containers that tests make write their files into data directories, never into a folder that a developer has
    named."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LLC_MANIFEST_DIR", raising=False)
        yield
