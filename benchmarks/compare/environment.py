"""The environment of a peer, made on demand below ``build/``, and the peer as a process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.compare.modes import SERVER
from benchmarks.installation import MEGABYTE, BenchmarkInstallation
from latent_core.domain.errors import TimedOut, Unavailable
from latent_core.models.embedding.minilm import wheel_folder

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
ENVIRONMENTS: Final = ROOT / "build" / "compare"
INSTALL_SECONDS: Final = 900.0
ANSWER_SECONDS: Final = 900.0
"""For the slowest request, which is an ingest."""
STOP_SECONDS: Final = 20.0
LINE_BYTES: Final = 1 << 22
SHARED: Final = {SERVER: "qdrant"}
"""Peers that run in the environment of another one."""


@dataclass(frozen=True, slots=True)
class Model:
    """Files of the embedder of all participants."""

    onnx: Path
    tokenizer: Path


@dataclass(frozen=True, slots=True)
class Peers:
    """The libraries of a comparison. ``qdrant``: the address of a server, or ""."""

    names: Sequence[str]
    qdrant: str


@dataclass(frozen=True, slots=True)
class GivenFiles:
    """What a peer ingests: a line of JSON per text, and an array of their vectors."""

    texts: Path
    vectors: Path

    @classmethod
    def write(cls, folder: Path, texts: Sequence[str], vectors: NDArray[np.float32]) -> Self:
        files = cls(folder / "texts.jsonl", folder / "vectors.npy")
        files.texts.write_text("".join(json.dumps(text) + "\n" for text in texts), "utf-8")
        np.save(files.vectors, vectors)
        return files


async def model_of(installation: BenchmarkInstallation) -> Model:
    """The files that an installation has made by its first search or ingest."""
    models = installation.data_dir / "models"
    (onnx,) = await asyncio.to_thread(lambda: list(models.glob("*/model.onnx")))
    return Model(onnx, wheel_folder() / "tokenizer.json")


async def interpreter_of(peer: str) -> Path:
    """The Python of a peer, with the pinned packages of ``requirements/``; ``Unavailable`` with the reason."""
    peer = SHARED.get(peer, peer)
    requirements = HERE / "requirements" / f"{peer}.txt"
    if not requirements.exists():
        return Path(sys.executable)
    folder = ENVIRONMENTS / peer
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    pinned = requirements.read_text("utf-8")
    if stamp.exists() and stamp.read_text("utf-8") == pinned:
        return python
    await _run(sys.executable, "-m", "venv", "--clear", str(folder))
    await _run(str(python), "-m", "pip", "install", "--quiet", "--no-deps", "-r", str(requirements))
    stamp.write_text(pinned, "utf-8")
    return python


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(INSTALL_SECONDS):
            _, err = await process.communicate()
    except TimeoutError as exc:
        process.kill()
        raise TimedOut(f"{command[-1]} was not installed within {INSTALL_SECONDS:g} s") from exc
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines() or ["no reason was given"]
        raise Unavailable(f"it cannot be installed: {lines[-1]}")


def log_of(folder: Path) -> Path:
    """The log of the peer that stores in ``folder``."""
    return folder.with_name(f"{folder.name}.log")


class PeerProcess:
    """A peer in a process of its own. Asked one request at a time."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._process = process

    @classmethod
    async def start(cls, name: str, folder: Path, model: Model, qdrant: str = "") -> Self:
        """``qdrant``: the address of a server, for the peer that needs one."""
        await asyncio.to_thread(folder.mkdir, parents=True)
        python = await interpreter_of(name)
        with log_of(folder).open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                str(python),
                *("-m", "benchmarks.compare.peers.server", name),
                *(str(folder), str(model.onnx), str(model.tokenizer)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=LINE_BYTES,
                cwd=ROOT,
                env={
                    "PATH": os.defpath,
                    "PYTHONPATH": str(ROOT),
                    "HOME": str(folder.parent),
                    "QDRANT_URL": qdrant,
                },
            )
        return cls(name, process, folder)

    @classmethod
    @asynccontextmanager
    async def running(
        cls, name: str, folder: Path, model: Model, qdrant: str
    ) -> AsyncIterator[PeerProcess]:
        """Started, and stopped when the block ends."""
        process = await cls.start(name, folder, model, qdrant)
        try:
            yield process
        finally:
            await process.stop()

    async def ask(self, **request: Any) -> dict[str, Any]:
        """``Unavailable`` if the peer fails, ``TimedOut`` if it does not answer."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the peer has no pipes")
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError as exc:
            raise TimedOut(f"no answer within {ANSWER_SECONDS:g} s") from exc
        if not line:
            tail = await asyncio.to_thread(self._last_line)
            raise Unavailable(f"the process ended: {tail}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Unavailable(answer["error"])
        return answer

    def memory_mb(self) -> float:
        """PSS of the process and its children, with mapped files."""
        root = psutil.Process(self._process.pid)
        tree = [root, *root.children(recursive=True)]
        total: int = sum(one.memory_full_info().pss for one in tree)
        return round(total / MEGABYTE, 1)

    def _last_line(self) -> str:
        lines = log_of(self.folder).read_text("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "no reason was given"

    async def stop(self) -> None:
        """End its input, so that it can tidy up; kill it if it does not end."""
        if self._process.returncode is not None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
