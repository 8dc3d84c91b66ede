"""The embedded Postgres: create, start, watch, restart and stop it.

    owner ── pipe ── guardian ── postgres

The guardian ends the server when the owner is gone. The owner restarts both when the server is
gone. The caller holds the data directory (``DataDirectory.acquire``).
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

from latent_core.domain.errors import Conflict, LatentError, TimedOut
from latent_core.runtime.account import ServerAccount
from latent_core.runtime.cluster import DATABASE, Cluster, ready_pid
from latent_core.runtime.data_directory import owner_of, storage_errors
from latent_core.runtime.guarded_process import (
    GRACE_SECONDS,
    STOP_SECONDS,
    Command,
    GuardedProcess,
    end_leftovers,
)
from latent_core.runtime.tasks import ended

logger = logging.getLogger(__name__)

START_SECONDS = 120.0  # recovery after a crash replays up to max_wal_size
INIT_SECONDS = 120.0
STEADY_SECONDS = 60.0  # after so long alive, the next restart is immediate again
BACKOFF_SECONDS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
_POLL_SECONDS = 0.02
_NO_OVERRIDES: Mapping[str, str] = MappingProxyType({})


class EmbeddedPostgres:
    """A Postgres server in ``data_dir``, on a private Unix socket.

    ``overrides`` replace server settings. Start and stop it from one event loop: a task of that loop
    watches the server.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        overrides: Mapping[str, str] = _NO_OVERRIDES,
        socket_root: Path | None = None,
    ) -> None:
        self._cluster = Cluster(data_dir.expanduser().absolute(), socket_root, overrides)
        self._server: GuardedProcess | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._pid: int | None = None
        self._restarts = 0
        self._ended: int | None = None
        """The pid of the server before this one."""

    @property
    def dsn(self) -> str:
        return self._cluster.dsn

    @property
    def pid(self) -> int | None:
        """Of the server (its postmaster); None while it is not running."""
        return self._pid

    @property
    def guardian_pid(self) -> int | None:
        return self._server.pid if self._server else None

    @property
    def restarts(self) -> int:
        """How often the server ended by itself and was restarted."""
        return self._restarts

    async def start(self) -> None:
        """End leftovers of an earlier owner, create the cluster if missing, start, wait until ready.

        Raises ``Conflict`` (the folder is in use, or cannot be used), ``OutOfSpace``,
        ``Unavailable`` or ``TimedOut``, with the server's own words.
        """
        if self._watcher is not None:
            return
        await asyncio.to_thread(_refuse_other_owner, self._cluster.data_dir)
        account = await asyncio.to_thread(self._prepare)
        try:
            if not self._cluster.exists():
                await self._create(account)
            await self._run(account)
        except LatentError:
            await asyncio.to_thread(self._clean_up)
            raise
        self._watcher = asyncio.create_task(self._watch(), name="postgres-supervisor")

    async def stop(self) -> None:
        """Fast shutdown, then immediate, then by force: ends within ``STOP_SECONDS`` and a little."""
        if self._watcher is not None:
            await ended(self._watcher)
            self._watcher = None
        if self._server is not None:
            await self._server.stop()
            self._server = self._pid = None
            await asyncio.to_thread(self._clean_up)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _prepare(self) -> ServerAccount | None:
        cluster = self._cluster
        if ended := end_leftovers((cluster.data, cluster.draft), STOP_SECONDS):
            logger.warning("orphan_postgres_ended", extra={"pids": ended})
        account = cluster.prepare()
        # No server runs in the folder now, so this file is stale. Postgres would trust it, although another
        # process may have that pid today.
        with storage_errors(cluster.data_dir):
            (cluster.data / "postmaster.pid").unlink(missing_ok=True)
        return account

    async def _create(self, account: ServerAccount | None) -> None:
        cluster = self._cluster
        await asyncio.to_thread(cluster.prepare_draft, account)
        steps = (
            ("initdb", cluster.initdb_argv(), ""),
            ("CREATE DATABASE", cluster.create_database_argv(), f"CREATE DATABASE {DATABASE};\n"),
        )
        for name, argv, text in steps:
            command = Command(name, argv, cluster.draft, cluster.log, account, text)
            await (await GuardedProcess.spawn(command)).succeed(INIT_SECONDS)
        await asyncio.to_thread(cluster.finish_draft)

    async def _run(self, account: ServerAccount | None) -> None:
        cluster = self._cluster
        command = Command(
            "Postgres",
            cluster.server_argv(),
            cluster.data,
            cluster.log,
            account,
            remove=cluster.socket_folder,
        )
        self._server = await GuardedProcess.spawn(command)
        try:
            self._pid = await self._ready(self._server)
        except LatentError:
            await self._server.stop()
            raise
        except asyncio.CancelledError:
            self._server.release()
            raise

    async def _ready(self, server: GuardedProcess) -> int:
        deadline = time.monotonic() + START_SECONDS
        while not server.ended:
            pid = await asyncio.to_thread(ready_pid, self._cluster.data, self._ended)
            if pid is not None:
                return pid
            if time.monotonic() > deadline:
                raise TimedOut(f"Postgres was not ready within {START_SECONDS:g} s")
            await asyncio.sleep(_POLL_SECONDS)
        raise server.failure()

    async def _watch(self) -> None:
        """Restart the server whenever it ends by itself, without a limit: even a full disk gets free one day."""
        failures = 0
        while self._server is not None:
            since = time.monotonic()
            status = await self._server.wait()
            self._ended, self._pid = self._pid or self._ended, None
            logger.error("postgres_exited", extra={"exit_status": status})
            if time.monotonic() - since > STEADY_SECONDS:
                failures = 0
            failures = await self._relaunch(failures)

    async def _relaunch(self, failures: int) -> int:
        while True:
            await asyncio.sleep(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
            failures += 1
            try:
                await self._run(await asyncio.to_thread(self._prepare))
            except Exception:
                logger.exception("postgres_start_failed")
            else:
                self._restarts += 1
                return failures

    def _clean_up(self) -> None:
        end_leftovers((self._cluster.data,), GRACE_SECONDS)
        shutil.rmtree(self._cluster.socket_folder, ignore_errors=True)


def _refuse_other_owner(data_dir: Path) -> None:
    owner = owner_of(data_dir)
    if owner is not None and owner.pid != os.getpid():
        raise Conflict(f"{data_dir} is held by process {owner.pid}: stop it first", pid=owner.pid)
