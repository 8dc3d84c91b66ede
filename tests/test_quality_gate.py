"""``python -m benchmarks.run --gate``: figures that are worse than their bars end the run with an error."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import languages, quality, report, run
from benchmarks.quality import SearchQuality
from benchmarks.report import BenchmarkResults
from latent_core.wire.evaluation import Interval

NONE = Interval(value=0, low=0, high=0)
GOOD = SearchQuality(
    name="xquad-de",
    embedder="local-multilingual",
    documents=240,
    queries=1190,
    bm25s=0.945,
    lexical=0.941,
    semantic=0.955,
    hybrid=0.957,
    hybrid_dbsf=None,
    hybrid_auto=0.960,
    best=0.960,
    best_fusion="auto",
    against_better=NONE,
    auto_against_better=NONE,
)


def missed(row: SearchQuality) -> list[str]:
    found = report.bars(BenchmarkResults({}, quality=[row]))
    return [bar.what.removeprefix(f"{row.name}: ") for bar in found if not bar.held]


@pytest.mark.parametrize(
    ("figures", "bars"),
    [
        ({}, []),
        ({"semantic": 0.8999}, ["semantic nDCG@10"]),
        ({"name": "xquad-es", "semantic": 0.8999}, ["semantic nDCG@10"]),
        ({"hybrid_auto": 0.9359}, ["hybrid by auto"]),
        ({"hybrid": 0.9459, "semantic": 0.951}, []),
        ({"hybrid": 0.9359, "semantic": 0.945}, ["hybrid by rrf"]),
        ({"hybrid": 0.934, "semantic": 0.955}, ["hybrid nDCG@10", "hybrid by rrf"]),
        ({"lexical": 0.93}, ["lexical nDCG@10"]),
        # The built-in model reads English: only that its vectors do no harm is required.
        ({"embedder": "local", "semantic": 0.68, "hybrid": 0.9365, "hybrid_auto": 0.9365}, []),
        ({"embedder": "local", "semantic": 0.68, "hybrid_auto": 0.9355}, ["hybrid by auto"]),
        (
            {"name": "xquad-zh", "hybrid": 0.929, "lexical": 0.94, "semantic": 0.92},
            ["hybrid nDCG@10"],
        ),
        ({"name": "xquad-zh", "hybrid_auto": 0.9355, "semantic": 0.92}, ["hybrid by auto"]),
        ({"name": "cranfield", "semantic": 0.4, "hybrid_auto": 0.3, "hybrid": 0.94}, []),
    ],
)
def test_a_figure_below_its_bar_is_missed_by_name(
    figures: dict[str, float | str], bars: list[str]
) -> None:
    assert missed(replace(GOOD, **figures)) == bars  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([GOOD], None),
        (
            [GOOD, replace(GOOD, name="xquad-es", semantic=0.61)],
            r"^missed: xquad-es: semantic nDCG@10 is 0\.6100; it must be >= 0\.9000$",
        ),
        ([], "nothing was measured"),
    ],
)
def test_the_run_ends_with_an_error_if_a_bar_is_missed_or_nothing_was_measured(
    rows: list[SearchQuality], message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measured(_arguments: object, results: BenchmarkResults) -> None:
        results.quality += rows

    monkeypatch.setitem(run.PARTS, "quality", measured)
    command = ["run", "--only", "quality"]
    monkeypatch.setattr(sys, "argv", command)
    run.main()
    monkeypatch.setattr(sys, "argv", [*command, "--gate"])
    if message is None:
        run.main()
        return
    with pytest.raises(SystemExit, match=message) as ended:
        run.main()
    assert ended.value.code != 0


def test_a_missing_folder_of_judged_sets_does_not_pass_the_gate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["run", "--only", "quality", "--gate"])
    with pytest.raises(SystemExit, match="--data"):
        run.main()


def test_the_published_files_of_xquad_become_judged_sets(tmp_path: Path) -> None:
    questions = [{"id": "q1", "question": "Wie viele?", "answers": [{"text": "308"}]}]
    article = {"title": "Spiel", "paragraphs": [{"context": "Nur 308 Punkte.", "qas": questions}]}
    published = tmp_path / "xquad.de.json"
    published.write_text(json.dumps({"data": [article, article]}), encoding="utf-8")
    assert languages.convert(published, tmp_path) == "de"
    judged = quality.read_set(tmp_path / "xquad" / "de")
    assert (judged.name, judged.ids) == ("xquad-de", ["p0-0", "p1-0"])
    assert judged.texts[0] == "Spiel\nNur 308 Punkte."
    assert judged.queries == {"q1": "Wie viele?"}
    assert [(qrel.query_id, qrel.doc_id) for qrel in judged.qrels] == [
        ("q1", "p0-0"),
        ("q1", "p1-0"),
    ]
