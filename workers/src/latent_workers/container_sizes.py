"""Measure what containers take in each store, as a part of maintenance."""

from __future__ import annotations

import logging
from typing import Final

from latent_core.db import container_sizes, containers
from latent_core.domain.errors import LatentError, NotFound
from latent_core.stack import Stack

logger = logging.getLogger(__name__)

MAX_PER_ROUND: Final = 200
FLOAT_BYTES: Final = 4


async def measure_containers(stack: Stack) -> int:
    """Measure the containers that are due; returns how many were. One that cannot be measured does not stop others."""
    async with stack.db.transaction() as conn:
        await container_sizes.forget(conn)
        ids = await container_sizes.due(conn, MAX_PER_ROUND)
    done = 0
    for container_id in ids:
        try:
            await measure(stack, container_id)
            done += 1
        except LatentError as error:
            logger.warning(
                "container_not_measured",
                extra={"container_id": container_id, "cause": error.message},
            )
    return done


async def measure(stack: Stack, container_id: str) -> None:
    """Measure one container and store the sizes as those of today."""
    async with stack.db.reading() as conn:
        sizes = await container_sizes.measured(conn, container_id)
        spaces = await containers.spaces(conn, container_id)
    sizes |= {"vectors": 0, "vector_bytes": 0}
    for space in spaces:
        if space.shares is not None:
            continue  # it reads the collection of another space
        try:
            points = await stack.vectors.count(space.collection())
        except NotFound:
            continue  # being built or dropped
        sizes["vectors"] += points
        sizes["vector_bytes"] += points * space.dims * FLOAT_BYTES
    async with stack.db.transaction() as conn:
        await container_sizes.save(conn, container_id, sizes)
