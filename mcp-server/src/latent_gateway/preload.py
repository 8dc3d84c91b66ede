"""Load local models before somebody waits for them: the first search is as fast as the second."""

from __future__ import annotations

import logging

from latent_core.db import containers
from latent_core.db.containers import Space
from latent_core.domain.errors import LatentError
from latent_core.models.embedding.local import LocalEmbedder
from latent_core.stack import Stack

logger = logging.getLogger(__name__)


async def warm_all(stack: Stack) -> None:
    """The local models of every container."""
    async with stack.db.transaction() as conn:
        spaces = [container.space for container in await containers.all_(conn)]
    for space in {(s.embedder, s.version): s for s in spaces}.values():
        await warm(stack, space)


async def warm(stack: Stack, space: Space) -> None:
    """The model of one space, if it runs in this process. One that cannot be loaded is told when it is asked."""
    try:
        embedder = stack.embedders.for_space(space)
        if isinstance(embedder, LocalEmbedder):
            await embedder.warm()
    except LatentError as error:
        logger.warning(
            "model_not_loaded", extra={"embedder": space.embedder, "cause": error.message}
        )
