"""Processes that ``latent`` starts: the only place of the CLI that imports the services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pydantic import BaseModel

from latent_core.domain.errors import Invalid
from latent_core.runtime import event_loop
from latent_core.settings import Settings

Announce = Callable[[str, str], None]
"""Told the address and where the token is, once requests are answered."""


class MigrationResult(BaseModel):
    """What ``migrate`` did."""

    database: str
    applied: list[str]
    """Revisions, oldest first; none when the schema was current."""


def run_up(settings: Settings, announce: Announce) -> int:
    """Gateway and worker in this process, until SIGINT or SIGTERM."""
    from latent_gateway.app import serve
    from latent_workers.worker import working

    event_loop.run(serve(settings, announce=announce, companion=working))
    return 0


def run_gateway(settings: Settings, announce: Announce) -> int:
    """A gateway alone; ``Invalid`` names the addresses that are missing."""
    _require_servers(settings, "gateway")
    from latent_gateway.app import serve

    event_loop.run(serve(settings, announce=announce))
    return 0


def run_worker(settings: Settings) -> int:
    """A worker alone; ``Invalid`` names the addresses that are missing."""
    _require_servers(settings, "worker")
    from latent_workers.worker import run

    event_loop.run(run(settings))
    return 0


def run_migrate(settings: Settings) -> MigrationResult:
    """Migrate the given server, or the embedded one, which is started for it."""
    return asyncio.run(_migrate(settings))


async def _migrate(settings: Settings) -> MigrationResult:
    from latent_core.db.migrate import migrate
    from latent_core.runtime.data_directory import DataDirectory
    from latent_core.runtime.postgres import EmbeddedPostgres

    if settings.postgres_dsn is not None:
        applied = await migrate(settings.postgres_dsn.get_secret_value())
        return MigrationResult(database="LLC_POSTGRES_DSN", applied=applied)
    with DataDirectory(settings.data_dir) as folder:
        async with EmbeddedPostgres(folder.path) as postgres:
            applied = await migrate(postgres.dsn)
    return MigrationResult(database=str(folder.postgres), applied=applied)


def _require_servers(settings: Settings, what: str) -> None:
    if settings.addresses_missing:
        missing = ", ".join(settings.addresses_missing)
        raise Invalid(
            f"a {what} of its own needs all backing services as servers; not given: {missing}. "
            "`latent up` runs everything in one process without them",
            missing=settings.addresses_missing,
        )
