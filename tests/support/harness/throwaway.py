"""A whole installation for the length of a block: ``latent up`` in a temporary folder, as a person runs it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from latent_core.domain.errors import TimedOut, Unavailable

START_SECONDS: Final = 180.0
"""The first start on a machine also builds the local embedder's model."""
STOP_SECONDS: Final = 60.0
LATENT: Final = (sys.executable, "-m", "latent_cli")
_SETTINGS: Final = ("LLC_", "MCP_", "NOMIC_", "REG_DB_", "QDRANT_", "MINIO_", "EMBED_", "RERANK_")


@dataclass
class TemporaryInstallation:
    """One installation and its process. ``folder`` is its own and goes with it."""

    folder: Path
    command: tuple[str, ...] = LATENT
    """Of this release, or of an earlier one."""
    started_seconds: float = 0.0
    url: str = ""
    _process: subprocess.Popen[bytes] | None = None

    @property
    def manifests(self) -> Path:
        return self.folder / "manifests"

    @property
    def log(self) -> Path:
        return self.folder / "latent.log"

    @property
    def token(self) -> str:
        return (self.folder / "data" / "token").read_text("utf-8").strip()

    def start(self) -> None:
        """Start and wait until requests are answered."""
        begun = time.monotonic()
        announced = self.folder / "announced"
        with announced.open("wb") as out, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.command, "up", "--json"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env=self._environment(),
                cwd=self.folder,
            )
        while not announced.read_bytes().endswith(b"\n"):
            if self._process.poll() is not None:
                code = self._process.returncode
                raise Unavailable(f"latent up ended with {code} at its start:\n{self.tail()}")
            if time.monotonic() > begun + START_SECONDS:
                limit = f"{START_SECONDS:g} s"
                raise TimedOut(f"latent up did not answer within {limit}:\n{self.tail()}")
            time.sleep(0.05)
        started = orjson.loads(announced.read_bytes())
        if "url" not in started:
            raise Unavailable(f"latent up did not start: {started}")
        self.url = started["url"]
        self.started_seconds = time.monotonic() - begun

    def stop(self) -> int:
        """As by Ctrl-C; the exit code."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def latent(self, *arguments: str | Path, seconds: float) -> subprocess.CompletedProcess[str]:
        """Call the command line on this installation."""
        return subprocess.run(
            [*self.command, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=self._environment(),
            cwd=self.folder,
            timeout=seconds,
            check=False,
        )

    def tail(self, lines: int = 40) -> str:
        """The end of the server's log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text("utf-8", errors="replace").splitlines()[-lines:])

    def _environment(self) -> dict[str, str]:
        """Nothing of the caller's own settings: they would lead to another installation."""
        inherited = os.environ.items()  # noqa: TID251 - handed on to a process, not read
        kept = {name: value for name, value in inherited if not name.startswith(_SETTINGS)}
        return kept | {
            "LLC_DATA_DIR": str(self.folder / "data"),
            "LLC_PORT": "0",
            "LLC_LOG_FORMAT": "json",
            **({"LLC_MANIFEST_DIR": str(self.manifests)} if self.manifests.exists() else {}),
            **({"LLC_URL": self.url} if self.url else {}),
        }


@contextmanager
def throwaway(
    manifests: Path | None = None, prepare: Callable[[Path], object] | None = None
) -> Iterator[TemporaryInstallation]:
    """A started installation, stopped and removed at the end: empty, on a copy of the folder ``manifests``, or on what
    ``prepare`` puts into its folder."""
    folder = Path(tempfile.mkdtemp(prefix="latent-"))
    folder.chmod(0o755)  # as root, Postgres runs as another user
    installation = TemporaryInstallation(folder)
    try:
        if manifests is not None:
            shutil.copytree(manifests, installation.manifests)
        if prepare is not None:
            prepare(folder)
        installation.start()
        yield installation
    finally:
        installation.stop()
        shutil.rmtree(folder, ignore_errors=True)
