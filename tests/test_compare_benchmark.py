"""The comparison with other libraries: its harness with a peer that needs no package, and its page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.compare.bars import bars_of
from benchmarks.compare.environment import ENVIRONMENTS, GivenFiles, Model, PeerProcess, Peers
from benchmarks.compare.figures import FiguresFile, PeerFigures
from benchmarks.compare.judged import judged_by_all
from benchmarks.compare.modes import OURS, PEERS, TITLES
from benchmarks.compare.page import FEATURES, page_of
from benchmarks.compare.peers.port import best, fused
from benchmarks.compare.run import OtherLibrary, measure_latencies
from benchmarks.installation import running
from benchmarks.quality import SearchJudgedSet, read_set
from latent_core.domain.errors import Unavailable
from tests.support import REPOSITORY

TEXTS = ["the lamp is lit", "the lens turns", "a gull on the roof", "the lamp and the lens"]


async def test_a_peer_is_filled_searched_and_measured_in_its_own_process(tmp_path: Path) -> None:
    lines, rows = tmp_path / "texts.jsonl", tmp_path / "vectors.npy"
    lines.write_text("".join(json.dumps(text) + "\n" for text in TEXTS), "utf-8")
    np.save(rows, np.eye(4, dtype=np.float32))
    process = await PeerProcess.start("exact", tmp_path / "exact", Model(tmp_path, tmp_path))
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
    process = await PeerProcess.start(name, tmp_path / name, Model(tmp_path, tmp_path))
    try:
        await process.ask(op="ingest", texts=str(lines), vectors=str(rows))
        answer = await process.ask(op="search", mode="words", query="gull roof", k=2)
        assert answer["hits"][0] == 2
    finally:
        await process.stop()


async def test_a_peer_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    process = await PeerProcess.start("unknown", tmp_path / "unknown", Model(tmp_path, tmp_path))
    with pytest.raises(Unavailable, match="No module named"):
        await process.ask(op="modes")
    await process.stop()


def test_lists_are_fused_by_ranks_and_ties_by_position() -> None:
    assert fused([[1, 2, 3], [3, 2]], 2) == [3, 2]
    assert fused([[5], [4]], 2) == [4, 5]
    assert best(np.array([0.1, 0.9, 0.5]), 2) == [1, 2]


def figures(name: str, **changed: Any) -> dict[str, Any]:
    given = {
        "name": name,
        "chunks": 1000,
        "ingested_per_second": 10.0,
        "latency": {"words": {"p50_ms": 8.0, "p95_ms": 9.5}},
        "per_second": 40.0,
        "memory_mb": 300.0,
        "disk_mb": 120.0,
        "reason": "",
    }
    return given | changed


def speed_of(*results: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "1000": {"date": "2026-11-26", "cores": 2, "load": [0.5, 1.0], "results": list(results)}
    }


def test_the_page_marks_the_best_of_each_row_also_where_it_is_not_ours() -> None:
    other = figures("bm25s", latency={"words": {"p50_ms": 2.0, "p95_ms": 12.0}})
    gone = figures("chroma", reason="it cannot be installed: no wheel")
    elsewhere = figures("qdrant_server", memory_mb=None, disk_mb=None)
    speed = speed_of(figures("latent"), other, elsewhere, gone)
    page = page_of({"speed": speed, "judged": {}})
    assert "|  | Latent Containers | bm25s | Qdrant server |" in page
    assert "| words, p50, ms | 8 | **2** | 8 |" in page
    assert "| words, p95, ms | **9.5** | 12 | **9.5** |" in page
    assert "| vectors, p50, ms |  |  |  |" in page
    assert "| disk, MB | **120** | **120** |  |" in page
    assert "- Chroma: not measured, since it cannot be installed: no wheel" in page


def test_the_page_marks_a_difference_in_quality_only_beyond_its_interval() -> None:
    results = [
        {"name": "latent", "ndcg": {"hybrid": 0.5}, "difference": {}, "reason": ""},
        judged_figures("bm25s", 0.45, low=0.01, high=0.09),
        judged_figures("lancedb", 0.49, low=-0.01, high=0.03),
        judged_figures("sqlite", 0.6, low=-0.12, high=-0.08),
    ]
    entry = {"date": "2026-11-26", "load": [0, 0], "documents": 1400, "chunks": 1500, "queries": 9}
    page = page_of({"speed": {}, "judged": {"cran": entry | {"results": results}}})
    assert "| cran (1,400, 9) | .500 | .450 ↓ | .490 | **.600 ↑** |" in page
    assert "| cran | `.010 to .090` | `-.010 to .030` | `-.120 to -.080` |" in page
    assert "### Words" not in page


def judged_figures(name: str, value: float, *, low: float, high: float) -> dict[str, Any]:
    interval = {"value": (low + high) / 2, "low": low, "high": high}
    return {
        "name": name,
        "ndcg": {"hybrid": value},
        "difference": {"hybrid": interval},
        "reason": "",
    }


def test_the_drawing_has_a_bar_for_each_participant_with_the_mode() -> None:
    hybrid = {"p50_ms": 20.0, "p95_ms": 25.0}
    able = figures("latent", latency={"hybrid": hybrid, "words": hybrid})
    drawn = bars_of(speed_of(able, figures("chroma", latency={})))
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert drawn.count("has no such mode") == 3
    assert "20 / 25" in drawn


def test_a_run_replaces_only_the_figures_it_has_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    first = FiguresFile(file)
    first.add_speed(1000, [PeerFigures("latent", 1000, per_second=1.0)])
    first.add_speed(2000, [PeerFigures("latent", 2000, per_second=2.0)])
    second = FiguresFile(file)
    second.add_speed(1000, [PeerFigures("latent", 1000, per_second=3.0)])
    speed = FiguresFile(file).all["speed"]
    assert {size: entry["results"][0]["per_second"] for size, entry in speed.items()} == {
        "1000": 3.0,
        "2000": 2.0,
    }


def written_set(folder: Path) -> SearchJudgedSet:
    folder.mkdir()
    documents = [
        json.dumps({"_id": f"d{number}", "title": "", "text": text})
        for number, text in enumerate(TEXTS)
    ]
    (folder / "corpus.jsonl").write_text("\n".join(documents) + "\n", "utf-8")
    queries = [
        json.dumps({"_id": "q1", "text": "a gull on a roof"}),
        json.dumps({"_id": "q2", "text": "turning lenses"}),
    ]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n", "utf-8")
    qrels = "query-id\tcorpus-id\tscore\nq1\td2\t1\nq2\td1\t1\n"
    (folder / "qrels.tsv").write_text(qrels, "utf-8")
    return read_set(folder)


def made(folder: Path) -> Path:
    """Postgres runs as another user, where the tests run as root."""
    folder.parent.chmod(0o755)
    folder.mkdir(mode=0o755)
    return folder


async def test_a_judged_set_is_ranked_by_ours_and_by_a_peer_with_the_same_chunks(
    tmp_path: Path,
) -> None:
    judged = written_set(tmp_path / "lighthouse")
    peers = Peers(["exact", "unknown"], qdrant="")
    async with running(made(tmp_path / "latent")) as installation:
        found = await judged_by_all(installation, judged, peers, made(tmp_path / "store"))
    ours, by_ranks, exact, unknown = found.results
    assert ours.ndcg == {"words": 1.0, "vectors": 1.0, "hybrid": 1.0}
    assert by_ranks.ndcg == {"hybrid": 1.0}
    # "lenses" is in no text as it is written, and only ours stems words.
    assert exact.ndcg == {"words": 0.5, "vectors": 1.0, "hybrid": 1.0}
    assert exact.difference["words"].value == 0.5
    assert exact.difference["hybrid"].value == 0
    assert "No module named" in unknown.reason
    assert (found.documents, found.chunks, found.queries) == (4, 4, 2)


async def test_a_peer_that_fails_while_it_is_searched_keeps_its_reason_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    given = GivenFiles.write(tmp_path, TEXTS, np.eye(4, dtype=np.float32))
    participants = []
    async with AsyncExitStack() as started:
        for name in ("stays", "fails"):
            process = await started.enter_async_context(
                PeerProcess.running("exact", tmp_path / name, Model(tmp_path, tmp_path), "")
            )
            await process.ask(op="ingest", texts=str(given.texts), vectors=str(given.vectors))
            peer = OtherLibrary(process, len(TEXTS))
            peer.figures.name, peer.modes = name, ["words"]
            participants.append(peer)
        await process.stop()
        await measure_latencies("words", participants, ["lamp"] * 15)
    stays, fails = (one.figures for one in participants)
    assert stays.latency["words"].p50_ms > 0
    assert not stays.reason
    assert fails.reason
    assert not fails.latency


def test_every_feature_has_an_answer_and_an_address_that_fit_the_table() -> None:
    features = json.loads(FEATURES.read_text("utf-8"))
    for row in features["rows"]:
        assert OURS in row["cells"]
        assert set(row["cells"]) <= set(features["peers"]) <= set(TITLES)
        for name, cell in row["cells"].items():
            assert cell["answer"] in {"yes", "partly", "no"}
            if name == OURS:
                assert (REPOSITORY / "docs" / cell["source"]).is_file()
            else:
                assert cell["source"].startswith("https://")
            assert not set("|]") & set(cell["words"])
