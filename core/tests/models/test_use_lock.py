"""A model is not removed while a container that uses it is created, and is missing for one that comes later."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import pytest

from latent_core.domain.errors import TimedOut
from latent_core.models.embedding.resolve import EmbedderRegistry
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.use_lock import in_use, unused
from latent_core.settings import Settings

NAME: Final = "tiny-lamp"
REMOVER: Final = """
import sys
from pathlib import Path
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.use_lock import unused

print("begins", flush=True)
with unused(ModelStore(Path(sys.argv[1])), sys.argv[2], 60, lambda _: print("waits", flush=True)):
    print("alone", flush=True)
    sys.stdin.readline()
print("ends", flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path)


async def remover(store: ModelStore, name: str = NAME) -> asyncio.subprocess.Process:
    """Another process, in the place of ``latent models remove``; it ends after a line of input."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", REMOVER, str(store.root), name, stdin=pipe, stdout=pipe
    )
    assert await line_of(process) == "begins"
    return process


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode().strip()


async def end(process: asyncio.subprocess.Process) -> None:
    await process.communicate(b"\n")
    assert process.returncode == 0


async def test_a_removal_waits_for_all_creations_and_those_for_the_removal(
    store: ModelStore,
) -> None:
    registry = EmbedderRegistry(Settings(_env_file=None), store.root)
    async with registry.held(NAME), registry.held(NAME):
        removal = await remover(store)
        assert await line_of(removal) == "waits"
    assert await line_of(removal) == "alone"
    with pytest.raises(TimedOut, match=f"process {removal.pid} still removes the model {NAME}"):
        async with in_use(store, NAME, seconds=0):
            raise AssertionError("it must not be entered")
    creation = asyncio.ensure_future(used(store))
    await end(removal)
    assert await creation
    await registry.close()


async def used(store: ModelStore) -> bool:
    async with in_use(store, NAME, seconds=60):
        return True


async def test_models_of_other_names_and_built_in_embedders_wait_for_nothing(
    store: ModelStore,
) -> None:
    registry = EmbedderRegistry(Settings(_env_file=None), store.root)
    removal = await remover(store)
    assert await line_of(removal) == "alone"
    for name in ("tiny-boat", "local", "work/tiny-lamp", "local:/models/tiny-lamp"):
        async with registry.held(name):
            pass
    await end(removal)
    await registry.close()


async def test_a_creation_that_does_not_end_is_named_and_nothing_is_removed(
    store: ModelStore,
) -> None:
    async with in_use(store, NAME):
        named = f"a container that uses {NAME} is still being created"
        with pytest.raises(TimedOut, match=named), unused(store, NAME, 0):
            raise AssertionError("it must not be entered")
    with unused(store, NAME, 0):
        pass


async def test_a_machine_without_a_folder_of_models_has_nothing_to_hold(tmp_path: Path) -> None:
    async with in_use(ModelStore(tmp_path / "none"), NAME):
        pass
    assert not (tmp_path / "none").exists()
