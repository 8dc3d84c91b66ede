"""The comparison with other libraries: its harness with a peer that needs no package, and its page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.compare.environment import ENVIRONMENTS, PeerProcess
from benchmarks.compare.page import page_of
from benchmarks.compare.peers.port import best, fused
from benchmarks.compare.run import PEERS, OtherLibrary
from latent_core.domain.errors import Unavailable

TEXTS = ["the lamp is lit", "the lens turns", "a gull on the roof", "the lamp and the lens"]


async def test_a_peer_is_filled_searched_and_measured_in_its_own_process(tmp_path: Path) -> None:
    lines, rows = tmp_path / "texts.jsonl", tmp_path / "vectors.npy"
    lines.write_text("".join(json.dumps(text) + "\n" for text in TEXTS), "utf-8")
    np.save(rows, np.eye(4, dtype=np.float32))
    process = await PeerProcess.start("exact", tmp_path / "exact", tmp_path, tmp_path)
    try:
        await process.ask(op="ingest", texts=str(lines), vectors=str(rows))
        answer = await process.ask(op="search", mode="words", query="lamp lens", k=2)
        assert answer["hits"][0] == 3
        assert answer["ms"] > 0
        answer = await process.ask(op="load", mode="words", queries=["lamp"] * 8, clients=4)
        assert answer["per_second"] > 0
        assert process.memory_mb() > 1
        with pytest.raises(Unavailable, match="unknown request"):
            await process.ask(op="dance")
        peer = OtherLibrary(process, len(TEXTS))
        assert await peer.search("words", "gull") > 0
    finally:
        await process.stop()


@pytest.mark.parametrize("name", [one for one in PEERS if one != "chroma"])
async def test_each_library_finds_words_by_its_adapter(name: str, tmp_path: Path) -> None:
    if not (ENVIRONMENTS / name / "installed.txt").exists():
        pytest.skip(f"{name} is not installed: `make compare` does it")
    lines, rows = tmp_path / "texts.jsonl", tmp_path / "vectors.npy"
    lines.write_text("".join(json.dumps(text) + "\n" for text in TEXTS), "utf-8")
    np.save(rows, np.eye(4, dtype=np.float32))
    process = await PeerProcess.start(name, tmp_path / name, tmp_path, tmp_path)
    try:
        await process.ask(op="ingest", texts=str(lines), vectors=str(rows))
        answer = await process.ask(op="search", mode="words", query="gull roof", k=2)
        assert answer["hits"][0] == 2
    finally:
        await process.stop()


async def test_a_peer_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    process = await PeerProcess.start("unknown", tmp_path / "unknown", tmp_path, tmp_path)
    with pytest.raises(Unavailable, match="No module named"):
        await process.ask(op="modes")
    await process.stop()


def test_lists_are_fused_by_ranks_and_ties_by_position() -> None:
    assert fused([[1, 2, 3], [3, 2]], 2) == [3, 2]
    assert fused([[5], [4]], 2) == [4, 5]
    assert best(np.array([0.1, 0.9, 0.5]), 2) == [1, 2]


def test_the_page_marks_the_best_of_each_row_whoever_it_is() -> None:
    ours = {
        "name": "latent",
        "chunks": 1000,
        "ingested_per_second": 10.0,
        "latency": {"words": {"p50_ms": 8.0, "p95_ms": 9.5}},
        "per_second": 40.0,
        "memory_mb": 300.0,
        "disk_mb": 120.0,
        "reason": "",
    }
    other = ours | {"name": "bm25s", "latency": {"words": {"p50_ms": 2.0, "p95_ms": 12.0}}}
    gone = ours | {"name": "chroma", "reason": "it cannot be installed: no wheel"}
    page = page_of({"date": "2026-11-26", "load": [0.5, 1.0], "results": [ours, other, gone]})
    assert "| | Latent Containers | bm25s |" in page
    assert "| words, p50, ms | 8 | **2** |" in page
    assert "| words, p95, ms | **9.5** | 12 |" in page
    assert "| vectors, p50, ms |  |  |" in page
    assert "- Chroma: not measured, since it cannot be installed: no wheel" in page
