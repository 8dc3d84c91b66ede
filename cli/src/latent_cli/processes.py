"""Processes that ``latent`` starts. The only module of the CLI that imports the services."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from latent_core.domain.errors import Invalid, Unavailable
from latent_core.runtime import process
from latent_core.runtime.imports import quick_imports
from latent_core.settings import Settings, load_settings

if TYPE_CHECKING:
    from latent_gateway.app import Announce


class MigrationResult(BaseModel):
    """Result of ``migrate``."""

    database: str
    applied: list[str]
    """Applied revisions, oldest first; empty if the schema was current."""


class AdoptionResult(BaseModel):
    """Result of ``adopt``."""

    installation: str
    holder: str
    """``<system_identifier>/<oid>`` of the database."""


def run_up(settings: Settings, announce: Announce, *, quiet: bool) -> int:
    """Run gateway and worker in this process until SIGINT or SIGTERM. ``quiet`` shows only warnings on stderr."""
    with quick_imports():
        from latent_gateway.app import serve
        from latent_workers.worker import working

    process.run(serve(settings, announce=announce, companion=working, quiet=quiet))
    return 0


def run_gateway(settings: Settings, announce: Announce) -> int:
    """Run only a gateway. ``Invalid`` names the missing addresses."""
    _require_servers(settings, "gateway")
    with quick_imports():
        from latent_gateway.app import serve

    process.run(serve(settings, announce=announce))
    return 0


def run_worker(settings: Settings) -> int:
    """Run only a worker. ``Invalid`` names the missing addresses."""
    _require_servers(settings, "worker")
    with quick_imports():
        from latent_workers.worker import run

    process.run(run(settings))
    return 0


def run_migrate(settings: Settings) -> MigrationResult:
    """Migrate the configured server, or else the embedded one, which is started for it."""
    return asyncio.run(_migrate(settings))


async def _migrate(settings: Settings) -> MigrationResult:
    from latent_core.runtime.stop import stop_signals
    from latent_core.telemetry.metrics import set_up_logs

    set_up_logs(settings.log_format)
    with stop_signals():
        return await _migrated(settings)
    raise Unavailable(
        "stopped by a signal. Revisions that had begun are applied; run `latent migrate` for the others"
    )


async def _migrated(settings: Settings) -> MigrationResult:
    from latent_core.db.migrate import migrate
    from latent_core.db.start import await_server
    from latent_core.runtime.data_directory import DataDirectory
    from latent_core.runtime.postgres import EmbeddedPostgres

    if settings.postgres_dsn is not None:
        dsn = settings.postgres_dsn.get_secret_value()
        await await_server(dsn)
        return MigrationResult(database="LLC_POSTGRES_DSN", applied=await migrate(dsn))
    with DataDirectory(settings.data_dir) as folder:
        async with EmbeddedPostgres(folder.path) as postgres:
            applied = await migrate(postgres.dsn)
    return MigrationResult(database=str(folder.postgres), applied=applied)


def run_adopt(settings: Settings, buckets: Sequence[str] = ()) -> AdoptionResult:
    """Make the configured database the holder of its installation's data on the servers."""
    from latent_core.stack import adopt

    holder = asyncio.run(adopt(settings, buckets))
    return AdoptionResult(installation=holder.id, holder=holder.holder)


def _require_servers(settings: Settings, what: str) -> None:
    if settings.addresses_missing:
        missing = ", ".join(settings.addresses_missing)
        raise Invalid(
            f"`latent {what}` needs external servers for all backing services; not set: {missing}. "
            "`latent up` needs none of them",
            missing=settings.addresses_missing,
        )


def overridden(**given: Any) -> Settings:
    """The settings, overridden by the options of the command line."""
    return load_settings(**{name: value for name, value in given.items() if value is not None})
