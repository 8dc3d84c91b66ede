"""SQLite with FTS5 (BM25, Porter's stemmer) and sqlite-vec (exact scan), fused by reciprocal ranks."""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.compare.peers.port import Rows, Vector, fused

DEPTH = 100


class SqlitePeer:
    def __init__(self, folder: Path) -> None:
        # Python's own module is often built without extensions.
        self._library = importlib.import_module("apsw")
        self._extension = importlib.import_module("sqlite_vec").loadable_path()
        self._file = str(folder / "texts.db")
        self._of_thread = threading.local()
        self._database.execute("PRAGMA journal_mode = WAL")

    @property
    def _database(self) -> Any:
        """A connection of each thread: they search at the same time."""
        if not hasattr(self._of_thread, "connection"):
            connection = self._library.Connection(self._file)
            connection.enable_load_extension(True)
            connection.load_extension(self._extension)
            self._of_thread.connection = connection
        return self._of_thread.connection

    def ingest(self, texts: Sequence[str], vectors: Rows) -> None:
        dims = vectors.shape[1]
        with self._database as database:
            database.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize='porter')")
            database.execute(
                f"CREATE VIRTUAL TABLE points USING vec0(vector float[{dims}] distance_metric=cosine)"
            )
            database.executemany(
                "INSERT INTO words (rowid, text) VALUES (?, ?)", enumerate(texts, start=1)
            )
            database.executemany(
                "INSERT INTO points (rowid, vector) VALUES (?, ?)",
                ((number, row.tobytes()) for number, row in enumerate(vectors, start=1)),
            )
            database.execute("INSERT INTO words (words) VALUES ('optimize')")

    def words(self, query: str, k: int) -> list[int]:
        terms = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        found = self._database.execute(
            "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (terms, k)
        )
        return [number - 1 for (number,) in found]

    def vectors(self, vector: Vector, k: int) -> list[int]:
        found = self._database.execute(
            "SELECT rowid FROM points WHERE vector MATCH ? AND k = ? ORDER BY distance",
            (vector.tobytes(), k),
        )
        return [number - 1 for (number,) in found]

    def hybrid(self, query: str, vector: Vector, k: int) -> list[int]:
        return fused([self.words(query, DEPTH), self.vectors(vector, DEPTH)], k)


PEER = SqlitePeer
