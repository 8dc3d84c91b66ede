"""A Qdrant server, by the address in ``QDRANT_URL``. Its collection is deleted at the end."""

from __future__ import annotations

import atexit
import importlib
import os
from pathlib import Path

from benchmarks.compare.peers.qdrant import TEXTS, QdrantPeer

REQUEST_SECONDS = 60


class QdrantServerPeer(QdrantPeer):
    """One that an earlier run left is deleted first."""

    def __init__(self, folder: Path) -> None:
        library = importlib.import_module("qdrant_client")
        address = os.environ["QDRANT_URL"]  # noqa: TID251 - the parent process gives it
        client = library.QdrantClient(url=address, timeout=REQUEST_SECONDS)
        client.delete_collection(TEXTS)
        atexit.register(client.delete_collection, TEXTS)
        super().__init__(folder, client)


PEER = QdrantServerPeer
