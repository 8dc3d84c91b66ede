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
POLL_SECONDS = 0.5
GREEN_POLLS = 4
"""In a row: it is green for a moment between the writes and their optimizer."""


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
    def _until_indexed(self) -> None:
        until = time.monotonic() + INDEX_SECONDS
        green = 0
        while green < GREEN_POLLS:
            if time.monotonic() > until:
                raise TimeoutError(f"no index within {INDEX_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
            status = self._client.get_collection(TEXTS).status
            green = green + 1 if status == self._models.CollectionStatus.GREEN else 0


PEER = QdrantServerPeer
