"""The file of ``--password-file``."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from latent_cli.output import notes, safe
from latent_core.domain.errors import Invalid
from latent_core.wire.documents import MAX_PASSWORD_CHARS

MAX_LINE_BYTES: Final = 4 * MAX_PASSWORD_CHARS + 2
OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_password(file: Path) -> str:
    """The first line. ``Invalid`` says why there is none; a note warns if others can read the file."""
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            line = opened.readline(MAX_LINE_BYTES + 1)
    except OSError as exc:
        raise Invalid(f"--password-file {file} cannot be read: {exc.strerror or exc}") from exc
    try:
        password = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as exc:
        raise Invalid(f"--password-file {file} must be UTF-8") from exc
    if not password:
        raise Invalid(f"--password-file {file}: its first line is empty; it must be the password")
    if len(password) > MAX_PASSWORD_CHARS:
        raise Invalid(
            f"--password-file {file}: its first line has more than {MAX_PASSWORD_CHARS} characters"
        )
    if stat.S_ISREG(mode) and mode & OF_OTHERS:
        notes().print(safe(f"note: others can read {file}; run chmod 600 on it"))
    return password
