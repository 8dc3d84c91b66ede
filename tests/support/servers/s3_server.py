"""An S3 server on 127.0.0.1 for tests: moto's, which keeps everything in memory.

    python -m tests.support.servers.s3_server

Prints ``{"endpoint": …}`` and runs until its standard input closes, where that is a pipe.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import orjson

from latent_core.runtime.lifeline import watch_parent

ACCESS_KEY: Final = "latent-test"
SECRET_KEY: Final = "latent-test-secret"


@contextmanager
def s3_server(port: int = 0, host: str = "127.0.0.1") -> Iterator[str]:
    """Its endpoint."""
    from moto.server import ThreadedMotoServer  # a dependency of development only

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(host, port, verbose=False)
    server.start()
    try:
        found_host, found_port = server.get_host_and_port()
        yield f"http://{found_host}:{found_port}"
    finally:
        server.stop()


def _main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="an S3 server for tests")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args(arguments)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with s3_server(given.port, given.host) as endpoint:
        if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
            watch_parent(sys.stdin.fileno(), ended.set)
        sys.stdout.write(orjson.dumps({"endpoint": endpoint}).decode() + "\n")
        sys.stdout.flush()
        ended.wait()


if __name__ == "__main__":
    _main(sys.argv[1:])
