"""A temporary compose stack as a context manager: a separate project on a free port, removed at the end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from latent_client import SyncClient
from latent_core.domain.errors import TimedOut, Unavailable
from latent_core.domain.manifest.yaml_reader import load_manifest
from scripts import compose_secrets
from tests.support import MANIFESTS
from tests.support.harness.throwaway import LATENT

REPOSITORY: Final = Path(__file__).resolve().parents[1]
BUILD_SECONDS: Final = 1800.0
READY_SECONDS: Final = 300.0
"""The first start initialises three stores; the first search builds the local embedder's model."""
LOG_LINES: Final = 60
SAMPLES: Final = "samples"


def compose_command() -> list[str]:
    """``docker compose``, or the older ``docker-compose``. Raises ``Unavailable`` if neither exists."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is not None:
            version_check = subprocess.run([*command, "version"], capture_output=True, check=False)
            if version_check.returncode == 0:
                return command
    raise Unavailable(
        "STACK=compose needs Docker with Compose, and neither was found; install it or use the embedded stack"
    )


@dataclass
class ComposeStack:
    """The stack, with the same interface for checks as ``tests.support.harness.throwaway.Throwaway``."""

    folder: Path
    port: int
    files: Sequence[str]
    project: str
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of compose, added to those of this process."""
    options: Sequence[str] = ("--build",)
    """Options of ``compose up``."""
    started_seconds: float = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return (compose_secrets.FOLDER / "mcp_token").read_text("utf-8").strip()

    def start(self) -> None:
        """Build, start, wait until every service answers, and create the sample container."""
        compose_secrets.make(compose_secrets.FOLDER)
        begun = time.monotonic()
        self._compose("up", "--detach", *self.options, seconds=BUILD_SECONDS)
        self._await_ready()
        self.started_seconds = time.monotonic() - begun
        with SyncClient(self.url, self.token) as client:
            client.create(load_manifest(MANIFESTS / f"{SAMPLES}.yaml"))

    def stop(self) -> int:
        """Stop the gateway and the workers as an operator does. Returns 0 if they exit by themselves."""
        return self._compose("stop", "gateway", "worker", seconds=120.0, check=False)

    def remove(self) -> None:
        """Remove the stack and its volumes."""
        self._compose("down", "--volumes", "--remove-orphans", seconds=180.0, check=False)

    def latent(self, *arguments: str | Path, seconds: float) -> subprocess.CompletedProcess[str]:
        """Run the local ``latent`` against the stack."""
        return subprocess.run(
            [*LATENT, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=self._environment() | {"LLC_URL": self.url, "LLC_MCP_TOKEN": self.token},
            cwd=self.folder,
            timeout=seconds,
            check=False,
        )

    def tail(self, lines: int = LOG_LINES) -> str:
        """The last lines of every service's log."""
        done = subprocess.run(
            [*self._command(), "logs", "--no-color", f"--tail={lines}"],
            capture_output=True,
            text=True,
            env=self._environment(),
            cwd=REPOSITORY,
            timeout=60,
            check=False,
        )
        return done.stdout or done.stderr

    def _await_ready(self) -> None:
        until = time.monotonic() + READY_SECONDS
        while not self._ready():
            if time.monotonic() > until:
                raise TimedOut(
                    f"the stack was not ready within {READY_SECONDS:g} s:\n{self.tail()}"
                )
            time.sleep(1)

    def _ready(self) -> bool:
        try:
            answer = httpx.get(f"{self.url}/readyz", timeout=5, trust_env=False)
            return bool(answer.json()["status"] == "ok")
        except (httpx.HTTPError, ValueError):
            return False

    def _compose(self, *arguments: str, seconds: float, check: bool = True) -> int:
        done = subprocess.run(
            [*self._command(), *arguments],
            stdout=sys.stderr,
            env=self._environment(),
            cwd=REPOSITORY,
            timeout=seconds,
            check=False,
        )
        if check and done.returncode != 0:
            raise Unavailable(
                f"compose {arguments[0]} ended with {done.returncode}:\n{self.tail()}"
            )
        return done.returncode

    def _command(self) -> list[str]:
        named = [option for file in self.files for option in ("--file", file)]
        return [*compose_command(), "--project-name", self.project, *named]

    def _environment(self) -> dict[str, str]:
        """The environment without the caller's LLC settings."""
        inherited = os.environ.items()  # noqa: TID251 - handed on to a process, not read
        kept = {name: value for name, value in inherited if not name.startswith("LLC_")}
        return kept | {"LLC_PORT": str(self.port), **self.variables}


@contextmanager
def composed(
    overrides: Sequence[str] = (),
    *,
    variables: Mapping[str, str] | None = None,
    options: Sequence[str] = ("--build",),
) -> Iterator[ComposeStack]:
    """A started stack; ``overrides`` are names in ``docker/``. Stopped and removed at the end."""
    files = ["docker-compose.yml", *(f"docker/{name}.yml" for name in overrides)]
    port = _free_port()
    folder = Path(tempfile.mkdtemp(prefix="latent-"))
    stack = ComposeStack(folder, port, files, f"latent-{port}", variables or {}, options)
    try:
        stack.start()
        yield stack
    finally:
        stack.remove()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
