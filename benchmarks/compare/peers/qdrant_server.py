"""A Qdrant server, by the address in ``QDRANT_URL``: the same as in the process, once its indexes are built.

Texts stay on the server and come with the hits, as a client would ask for them.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from benchmarks.compare.peers.qdrant import TEXTS, QdrantPeer

REQUEST_SECONDS = 60


class QdrantServerPeer(QdrantPeer):
    """The collection of an earlier run is deleted."""

    def __init__(self, folder: Path) -> None:
        library = importlib.import_module("qdrant_client")
        address = os.environ["QDRANT_URL"]  # noqa: TID251 - the parent process gives it
        client = library.QdrantClient(url=address, timeout=REQUEST_SECONDS)
        client.delete_collection(TEXTS)
        super().__init__(folder, client)


PEER = QdrantServerPeer
