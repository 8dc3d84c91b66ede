"""A Qdrant server, by the address in ``QDRANT_URL``. Its collection is deleted at the end."""

from __future__ import annotations

import atexit
import importlib
import os
import time
from pathlib import Path

from typing_extensions import override

from benchmarks.compare.peers.qdrant import TEXTS, QdrantPeer

REQUEST_SECONDS = 60
INDEX_SECONDS = 600.0
POLL_SECONDS = 0.05
GREEN_SECONDS = 2.0
"""Without a break: it is green for a moment between the writes and their optimizer."""


class QdrantServerPeer(QdrantPeer):
    """One that an earlier run left is deleted first."""

    def __init__(self, folder: Path) -> None:
        library = importlib.import_module("qdrant_client")
        address = os.environ["QDRANT_URL"]  # noqa: TID251 - the parent process gives it
        client = library.QdrantClient(url=address, timeout=REQUEST_SECONDS)
        client.delete_collection(TEXTS)
        atexit.register(client.delete_collection, TEXTS)
        super().__init__(folder, client)

    @override
    def _until_indexed(self) -> float:
        until = time.monotonic() + INDEX_SECONDS
        green_since: float | None = None
        while (now := time.monotonic()) < until:
            status = self._client.get_collection(TEXTS).status
            if status != self._models.CollectionStatus.GREEN:
                green_since = None
            elif green_since is None:
                green_since = now
            elif now - green_since > GREEN_SECONDS:
                return now - green_since
            time.sleep(POLL_SECONDS)
        raise TimeoutError(f"no index within {INDEX_SECONDS:g} s")


PEER = QdrantServerPeer
