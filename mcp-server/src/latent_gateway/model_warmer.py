"""Loads local models before a search needs them: those of all containers, and those that vectors are being made by.

A model takes seconds to load, and a search has one or two. So the model of a refresh is loaded when the refresh is
requested, in this process, and in other processes while the new vectors are made, before searches use them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from latent_core.db.spaces import spaces
from latent_core.domain.errors import LatentError
from latent_core.domain.manifest.model import is_local
from latent_core.models.embedding.local import LocalEmbedder
from latent_core.models.embedding.resolve import OfSpace
from latent_core.runtime.tasks import ended
from latent_core.stack import Stack

LOOK_SECONDS: Final = 3.0
"""Between two looks for models of new spaces: one small query."""
RETRY_SECONDS: Final = 60.0
"""After a model could not be loaded."""

logger = logging.getLogger(__name__)


class ModelWarmer:
    """Of one process."""

    def __init__(self, stack: Stack, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stack = stack
        self._clock = clock
        self._known: set[tuple[str, str, int]] = set()
        """Models that are loaded or being loaded."""
        self._retry_at: dict[tuple[str, str, int], float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def keep_warm(self) -> None:
        """Load the models of new spaces until cancelled."""
        while True:
            with suppress(LatentError):  # the database may answer later
                await self.load_new()
            await asyncio.sleep(LOOK_SECONDS)

    async def load_new(self) -> None:
        """Load the models of all live and unfinished spaces that are not loaded yet, the live ones first."""
        async with self._stack.db.reading() as conn:
            models = await spaces.models(conn)
        for model in models:
            await self.load(model)

    def soon(self, model: OfSpace) -> None:
        """Load a model in the background."""
        task = asyncio.create_task(self.load(model), name="warm")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def load(self, model: OfSpace) -> None:
        """Load a model if it runs in this process. An error is logged, and raised when the model is used."""
        key = (model.embedder, model.version, model.dims)
        if not is_local(model.embedder) or key in self._known:
            return
        if self._clock() < self._retry_at.get(key, 0.0):
            return
        self._known.add(key)
        try:
            embedder = await self._stack.embedders.opened(model)
            if isinstance(embedder, LocalEmbedder):
                await embedder.warm()
        except LatentError as error:
            self._known.discard(key)
            self._retry_at[key] = self._clock() + RETRY_SECONDS
            logger.warning(
                "model_not_loaded", extra={"embedder": model.embedder, "cause": error.message}
            )

    async def close(self) -> None:
        await ended(*self._tasks)
