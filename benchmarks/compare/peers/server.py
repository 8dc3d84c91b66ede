"""One peer as a process: requests and answers are lines of JSON.

python -m benchmarks.compare.peers.server NAME FOLDER MODEL TOKENIZER
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.compare.peers.port import Peer
from benchmarks.compare.peers.query_model import QueryModel

MODES = ("words", "vectors", "hybrid")


class PeerServer:
    """The peer and the model of its queries."""

    def __init__(self, peer: Peer, model: Callable[[], QueryModel]) -> None:
        self._peer = peer
        self._make = model
        self._model: QueryModel | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "ingest":
                return self._ingest(Path(request["texts"]), Path(request["vectors"]))
            case "search":
                begun = time.perf_counter()
                hits = self._search(request["mode"], request["query"], request["k"])
                return {"hits": hits, "ms": (time.perf_counter() - begun) * 1000}
            case "rank":
                ranked = [
                    self._search(request["mode"], query, request["k"])
                    for query in request["queries"]
                ]
                return {"hits": ranked}
            case "modes":
                return {"modes": [mode for mode in MODES if self._has(mode)]}
            case "load":
                return self._load(request["mode"], request["queries"], request["clients"])
        raise ValueError(f"unknown request: {request['op']}")

    def _ingest(self, texts: Path, vectors: Path) -> dict[str, Any]:
        lines = [json.loads(line) for line in texts.read_text("utf-8").splitlines()]
        rows = np.load(vectors)
        begun = time.perf_counter()
        waited = self._peer.ingest(lines, rows) or 0.0
        return {"seconds": time.perf_counter() - begun - waited}

    def _search(self, mode: str, query: str, k: int) -> list[int]:
        if mode == "words":
            return self._peer.words(query, k)
        if self._model is None:
            self._model = self._make()
        vector = self._model.embed(query)
        if mode == "vectors":
            return self._peer.vectors(vector, k)
        return self._peer.hybrid(query, vector, k)

    def _has(self, mode: str) -> bool:
        try:
            self._search(mode, "anything at all", 1)
        except NotImplementedError:
            return False
        return True

    def _load(self, mode: str, queries: Sequence[str], clients: int) -> dict[str, Any]:
        """All queries by so many threads; searches per second. The first error of a search is raised."""
        with ThreadPoolExecutor(clients) as pool:
            begun = time.perf_counter()
            for _ in pool.map(lambda query: self._search(mode, query, 10), queries):
                continue
            return {"per_second": len(queries) / (time.perf_counter() - begun)}


def main(arguments: Sequence[str]) -> None:
    name, folder, model, tokenizer = arguments
    answers, sys.stdout = sys.stdout, sys.stderr  # a library may print
    server: PeerServer | None = None
    for line in sys.stdin:
        try:
            if server is None:
                peer = importlib.import_module(f"benchmarks.compare.peers.{name}").PEER
                server = PeerServer(
                    peer(Path(folder)), lambda: QueryModel(Path(model), Path(tokenizer))
                )
            answer = server.answer(json.loads(line))
        except Exception as exc:  # noqa: BLE001 - the other side reports it and goes on with other peers
            answer = {"error": f"{type(exc).__name__}: {exc}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
