"""Postgres refuses to run as root, so a process of root runs it as a dedicated system user.

That user may read the server's programs and traverse the folders above them and above the data. Every permission
granted for that is logged. Nothing but the programs becomes readable.
"""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from latent_core.domain.errors import Invalid

logger = logging.getLogger(__name__)

OUR_USER = "latent-postgres"
KNOWN_USERS = (OUR_USER, "postgres", "_postgres")
CREATE_SECONDS = 30.0
_CREATE_ATTEMPTS = 5  # another start may hold the lock of /etc/passwd

_USERADD = ("--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent")
_ADDUSER = ("-S", "-D", "-H")  # BusyBox


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """The system user that runs the server."""

    uid: int
    gid: int


def server_account(data: Path) -> ServerAccount | None:
    """The user that runs the server of the folder ``data``; None for the current user.

    For root: the owner of the existing cluster if that is another user, else a system user, created if missing.
    """
    if os.geteuid() != 0:
        return None
    if (data / "PG_VERSION").is_file() and (owner := data.stat()).st_uid != 0:
        return ServerAccount(owner.st_uid, owner.st_gid)
    return _find(OUR_USER) or _create() or _any_known()


def _find(name: str) -> ServerAccount | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return ServerAccount(entry.pw_uid, entry.pw_gid)


def _create() -> ServerAccount | None:
    for _ in range(_CREATE_ATTEMPTS):
        for program, options in (("useradd", _USERADD), ("adduser", _ADDUSER)):
            if path := shutil.which(program):
                subprocess.run(
                    [path, *options, OUR_USER],
                    check=False,
                    capture_output=True,
                    timeout=CREATE_SECONDS,
                )
                break
        if account := _find(OUR_USER):
            logger.info("postgres_user_created", extra={"user": OUR_USER})
            return account
    return None


def _any_known() -> ServerAccount:
    for name in KNOWN_USERS:
        if account := _find(name):
            return account
    raise Invalid(
        f"Postgres does not run as root, and the system user {OUR_USER} could not be created: "
        "create it, or start as another user"
    )


def own(folder: Path, account: ServerAccount | None) -> None:
    """Make the account the owner of the folder and its content."""
    if account is None or folder.stat().st_uid == account.uid:
        return
    for path in reversed(list(_tree(folder))):  # the folder last: its owner marks completion
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def open_path(path: Path, account: ServerAccount | None) -> None:
    """Let the account traverse the folders above ``path``."""
    if account is None:
        return
    for folder in path.resolve().parents:
        if not _may_traverse(folder.stat(), account):
            logger.info("folder_made_traversable", extra={"path": str(folder)})
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)


def _may_traverse(folder: os.stat_result, account: ServerAccount) -> bool:
    if folder.st_uid == account.uid:
        return bool(folder.st_mode & stat.S_IXUSR)
    if folder.st_gid == account.gid:
        return bool(folder.st_mode & stat.S_IXGRP)
    return bool(folder.st_mode & stat.S_IXOTH)


def open_programs(folder: Path, account: ServerAccount | None) -> None:
    """Let the account read the folder's content and run its executables (o+rX)."""
    if account is None:
        return
    open_path(folder, account)
    for path in _tree(folder):
        mode = path.stat().st_mode
        mode_needed = mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
        if mode_needed != mode:
            path.chmod(mode_needed)


def _tree(folder: Path) -> Iterator[Path]:
    yield folder
    yield from folder.rglob("*")
