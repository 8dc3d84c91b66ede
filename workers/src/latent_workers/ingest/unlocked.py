"""A file without its encryption, while it is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from latent_core.domain.chunk import SourceType
from latent_workers.parse.encryption import LOCKABLE
from latent_workers.parse.run import unlock_file
from latent_workers.sandbox.pool import Sandbox


@asynccontextmanager
async def unlocked(
    sandbox: Sandbox,
    file: Path,
    *,
    name: str,
    source_type: SourceType,
    password: str | None,
    folder: Path,
) -> AsyncIterator[Path]:
    """A decrypted copy below ``folder``, deleted at the end of the block; ``file`` itself if it is not encrypted, or
    without a password. ``IngestFailed`` if the password is wrong."""
    if password is None or source_type not in LOCKABLE:
        yield file
        return
    copy = await asyncio.to_thread(
        lambda: NamedTemporaryFile(dir=folder, prefix="unlocked-")  # noqa: SIM115 - closed below
    )
    try:
        decrypted = await unlock_file(sandbox, file, name=name, password=password, into=copy)
        yield Path(copy.name) if decrypted else file
    finally:
        await asyncio.to_thread(copy.close)
