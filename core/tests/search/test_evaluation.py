"""Figures of rankings against ir_measures, intervals, gates, judged sets on disk."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random

import ir_measures
import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.errors import Invalid
from latent_core.domain.golden import GoldenQuery, GoldenSet, Thresholds
from latent_core.domain.manifest.model import Fusion, FusionMethod, SearchMode
from latent_core.eval.datasets import (
    QueryResult,
    QuerySet,
    judged,
    read_judged,
)
from latent_core.eval.metrics import of_documents, of_ranking
from latent_core.eval.reporting import (
    candidates,
    is_baseline,
    mean_interval,
    paired_interval,
    report,
    suggestion,
)
from latent_core.wire.evaluation import EvalRequest, JudgedQuery, KeptRun, Setup
from latent_core.wire.search import Hit
from tests.support import hits as made

MEASURES = [ir_measures.parse_measure(name) for name in ("nDCG@10", "R@20", "R@100", "RR")]
NAMES = [f"d{n}" for n in range(130)]


def hit(name: str, text: str = "") -> Hit:
    """Known by its name, outside too."""
    return made.hit(name, text, title=name, external_id=name)


@settings(max_examples=60, deadline=None)
@given(
    run=st.lists(st.sampled_from(NAMES), unique=True, max_size=120),
    grades=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), min_size=1, max_size=30),
)
def test_the_figures_are_those_of_trec_eval(run: list[str], grades: dict[str, int]) -> None:
    ours = of_documents(
        {name: float(grade) for name, grade in grades.items()}, [hit(n) for n in run]
    )
    qrels = [ir_measures.Qrel("q", name, grade) for name, grade in grades.items()]
    scored = [ir_measures.ScoredDoc("q", name, -float(rank)) for rank, name in enumerate(run)]
    theirs = ir_measures.calc_aggregate(
        MEASURES, qrels, scored or [ir_measures.ScoredDoc("q", "", 0)]
    )
    required = [float(theirs[measure]) for measure in MEASURES]
    got = [ours.ndcg, ours.recall_20, ours.recall_100, ours.reciprocal_rank]
    assert got == pytest.approx(required, abs=1e-9)


def test_a_document_counts_at_its_first_hit_and_without_hits_all_is_0() -> None:
    twice = of_documents({"a": 1.0}, [hit("b"), hit("b"), hit("a"), hit("a")])
    assert twice.reciprocal_rank == 1 / 2
    assert twice.ndcg == pytest.approx(1 / math.log2(3))
    nothing = of_documents({"a": 1.0}, [])
    assert (nothing.ndcg, nothing.recall_100, nothing.reciprocal_rank, nothing.hits) == (0, 0, 0, 0)


def test_an_interval_holds_its_mean_and_a_paired_one_is_narrower_than_either() -> None:
    random = Random(5)
    easy = [random.random() for _ in range(200)]
    better = [min(1.0, value + 0.05) for value in easy]
    single, gain = mean_interval(easy), paired_interval(better, easy)
    assert single.low < single.value < single.high
    assert 0 < gain.low < gain.value < gain.high
    assert gain.high - gain.low < (single.high - single.low) / 4
    assert mean_interval(easy) == single
    assert mean_interval([0.5]).low == 0.5


def test_an_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    random = Random(7)
    covered = 0
    for _ in range(200):
        found = mean_interval([float(random.random() < 0.6) for _ in range(80)])
        covered += found.low <= 0.6 <= found.high
    assert 180 <= covered <= 200


def answers(*ndcgs: float) -> list[QueryResult]:
    """Queries whose only document stands at such a rank that the figure is about this."""
    found = []
    for number, ndcg in enumerate(ndcgs):
        query = JudgedQuery(id=f"q{number}", query="q", relevant={"a": 1.0})
        rank = round(2 ** (1 / ndcg)) - 1 if ndcg else 0
        hits = [hit(f"x{n}") for n in range(rank - 1)] + [hit("a")] if ndcg else []
        found.append(judged(query, hits))
    return found


def kept(ndcg: float, p95: float) -> KeptRun:
    means = report(
        Setup(mode=SearchMode.HYBRID),
        answers(1.0),
        [p95],
        Thresholds(),
        None,
        golden=False,
        partial=0,
    ).means
    return KeptRun(setup="s", dataset="d", means=means.model_copy(update={"ndcg_at_10": ndcg}))


def reported(last: KeptRun | None, **more: object) -> list[str]:
    thresholds = Thresholds.model_validate({"ndcg@10": 0.4})
    found = report(
        Setup(mode=SearchMode.HYBRID),
        answers(1.0, 0.5, 0.0),
        [10.0, 20.0, 30.0],
        thresholds,
        last,
        golden=False,
        partial=0,
        **more,  # type: ignore[arg-type]
    )
    assert found.means.zero_hit_rate == pytest.approx(1 / 3)
    return found.gates


def test_a_run_that_is_worse_than_the_last_by_more_than_is_allowed_fails() -> None:
    assert reported(None) == []
    assert reported(kept(0.505, 29.0)) != []
    assert [g[:7] for g in reported(kept(0.6, 100.0))] == ["nDCG@10", "Recall@"]
    slow = reported(kept(0.5, 20.0), metrics=["latency"])
    assert len(slow) == 1
    assert slow[0].startswith("p95 latency rose")
    assert reported(kept(0.9, 20.0), metrics=[]) == []


def test_a_golden_query_that_fails_fails_the_run_and_a_judged_one_does_not() -> None:
    for golden in (True, False):
        found = report(
            Setup(mode=SearchMode.LEXICAL),
            answers(1.0, 0.0),
            [1.0],
            Thresholds(),
            None,
            golden=golden,
            partial=0,
        )
        assert found.passed is not golden


def test_a_suggestion_is_worth_it_only_when_it_is_surely_better() -> None:
    current = answers(*[0.5] * 30)
    setups = candidates()
    assert len({setup.name for setup in setups}) == len(setups)
    assert Fusion(method=FusionMethod.AUTO) in [setup.fusion for setup in setups]
    better, worse = answers(*[1.0] * 30), answers(*[0.0] * 30)
    found = suggestion(current, [(setups[0], worse), (setups[1], better), (setups[2], current)])
    assert (found.best, found.worth_it) == (setups[1], True)
    lucky = answers(*[0.5] * 29, 1.0)
    assert not suggestion(current, [(setups[0], lucky)]).worth_it


def test_a_setup_is_named_by_what_decides_its_ranking() -> None:
    assert Setup(mode=SearchMode.LEXICAL, fusion=Fusion(k=10)).name == "lexical"
    fused = Setup(mode=SearchMode.HYBRID, fusion=Fusion(k=10, weights={"bm25": 0.3}))
    assert fused.name == "hybrid, rrf k=10, bm25=0.3"


def test_the_dataset_hash_depends_only_on_queries_and_expectations() -> None:
    def of(expected: str, **thresholds: float) -> str:
        golden = GoldenSet(
            queries=[GoldenQuery(query="q", expect_docs=[expected])],
            thresholds=Thresholds.model_validate(thresholds),
        )
        return QuerySet.of(EvalRequest(golden=golden), {}).dataset

    assert of("a") == of("a", **{"ndcg@10": 0.5}) != of("b")


def test_thresholds_of_the_manifest_hold_where_the_set_names_none() -> None:
    golden = GoldenSet(
        queries=[GoldenQuery(query="q", expect_docs=["a"])],
        thresholds=Thresholds.model_validate({"ndcg@10": 0.5}),
    )
    found = QuerySet.of(EvalRequest(golden=golden), {"ndcg@10": 0.9, "recall@20": 0.8}).thresholds
    assert (found.ndcg_at_10, found.recall_at_20) == (0.5, 0.8)


def write_set(folder: Path, queries: str, qrels: str, name: str = "qrels/test.tsv") -> Path:
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "queries.jsonl").write_text(queries, encoding="utf-8")
    (folder / name).write_text(qrels, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "qrels"),
    [
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\td7\t2\n1\td9\t0\n3\td1\t0\n"),
        ("qrels.tsv", "1\td7\t2\n1\td9\t0\n3\td1\t0\n"),
        ("qrels.tsv", "1 0 d7 2\n1 0 d9 0\n3 0 d1 0\n"),
    ],
)
def test_a_set_is_read_in_either_layout_and_queries_without_an_answer_are_left_out(
    tmp_path: Path, name: str, qrels: str
) -> None:
    queries = (
        '{"_id": "1", "text": "lamps"}\n\n{"_id": 2, "text": "x"}\n{"_id": "3", "text": "y"}\n'
    )
    (only,) = read_judged(write_set(tmp_path, queries, qrels, name))
    assert (only.id, only.query, dict(only.relevant)) == ("1", "lamps", {"d7": 2.0})


@pytest.mark.parametrize(
    ("queries", "qrels", "summary"),
    [
        ("{", "1\td\t1\n", "queries.jsonl:1"),
        ("[]", "1\td\t1\n", "queries.jsonl:1: expected an object"),
        ('{"_id": "1", "text": ""}', "1\td\t1\n", "queries.jsonl:1"),
        ('{"_id": "1", "text": "a"}', "1\td\t1\n1\td\tmany\n", "test.tsv:2: 'many'"),
        ('{"_id": "1", "text": "a"}', "1\td\n", "test.tsv:1: expected query"),
        ('{"_id": "1", "text": "a"}', "2\td\t1\n", "no query with a relevant document"),
    ],
)
def test_a_set_that_cannot_be_read_is_refused_with_the_place(
    tmp_path: Path, queries: str, qrels: str, summary: str
) -> None:
    with pytest.raises(Invalid) as refused:
        read_judged(write_set(tmp_path, queries, qrels))
    assert summary in refused.value.message


def test_a_ranking_of_nothing_relevant_is_0_whatever_was_judged() -> None:
    assert of_ranking([], [], hits=0).ndcg == 0.0
    assert of_ranking([0.0, 0.0], [0.0], hits=2).recall_100 == 0.0


def test_a_run_with_an_answer_that_was_not_whole_fails() -> None:
    for partial in (0, 1):
        found = report(
            Setup(mode=SearchMode.HYBRID),
            answers(1.0, 1.0),
            [1.0],
            Thresholds(),
            None,
            golden=True,
            partial=partial,
        )
        assert found.passed is (partial == 0)
        for save in (False, True):
            assert is_baseline(EvalRequest(save=save), [found]) is (partial == 0)
