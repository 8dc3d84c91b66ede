"""Golden queries: both shapes, figures, rules and gates."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import ir_measures
import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.errors import Invalid
from latent_core.domain.golden import GoldenQuery, Thresholds, parse_golden
from latent_core.eval.datasets import read_golden
from latent_core.eval.gates import (
    means_of,
    percentile,
    query_failures,
    regressions,
    threshold_failures,
)
from latent_core.eval.metrics import QueryFigures, of_golden, of_strings
from latent_core.wire.evaluation import Means
from latent_core.wire.search import Hit
from tests.support import MANIFESTS, REPOSITORY
from tests.support.hits import doc, hit


def query(**parts: Any) -> GoldenQuery:
    return GoldenQuery.model_validate({"query": "q", **parts})


def failures_of(golden: GoldenQuery, hits: list[Hit]) -> list[str]:
    return query_failures(golden, hits, of_golden(golden, hits))


def test_both_forms_are_read_and_queries_without_an_id_are_numbered() -> None:
    long = {
        "queries": [
            {
                "id": "lens",
                "query": "who",
                "expect_docs": ["a"],
                "expect_keywords": ["k"],
                "min_score": 0.5,
            },
            {"query": "what", "expect_docs": ["b"]},
        ],
        "thresholds": {"ndcg@10": 0.7, "recall@20": 0.8, "p95_latency_ms": 200},
    }
    golden = parse_golden(long)
    assert [q.id for q in golden.queries] == ["lens", "q2"]
    assert golden.thresholds.ndcg_at_10 == 0.7
    short = parse_golden({"queries": [{"q": "who", "expect": ["Fresnel"]}]})
    assert (short.queries[0].query, short.queries[0].expect) == ("who", ["Fresnel"])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"queries": []}, "eval.json: queries: the list is empty"),
        ({}, "queries: Field required"),
        ([], "eval.json: Input should be a valid dictionary"),
        ({"queries": [{"query": "x"}]}, "queries.0: expects nothing"),
        ({"queries": [{"q": "", "expect": ["a"]}]}, "at least 1 character"),
        ({"queries": [{"q": "x", "expect": [""]}]}, "queries.0.expect.0"),
        ({"queries": [{"q": "x", "expects": ["a"]}]}, "queries.0.expects"),
        ({"queries": [{"q": "x", "expect": ["a"]}], "thresholds": {"ndcg": 1}}, "thresholds.ndcg"),
        ({"queries": [{"id": "a", "q": "x", "expect": ["a"]}] * 2}, "ids stand twice: a"),
        ({"queries": [{"q": "x", "expect": ["a"], "min_score": 2}]}, "queries.0.min_score"),
    ],
)
def test_what_cannot_be_judged_is_refused_by_place_and_key(data: Any, text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_golden(data, where="eval.json")
    assert text in caught.value.message


@pytest.mark.parametrize("name", [str(doc("b")), "file:///b", "ext-b"])
def test_an_expected_document_is_named_by_id_uri_or_external_id(name: str) -> None:
    hits = [hit("a"), hit("b", external_id="ext-b")]
    found = of_golden(query(expect_docs=[name]), hits)
    assert (found.ndcg, found.recall_20) == (1 / math.log2(3), 1.0)


def test_a_document_counts_once_where_it_is_first_met() -> None:
    hits = [hit("x"), hit("x"), hit("a"), hit("a"), hit("b")]
    expected = (1 / math.log2(3) + 1 / math.log2(4)) / (1 + 1 / math.log2(3))
    assert of_golden(query(expect_docs=["file:///a", "file:///b"]), hits).ndcg == pytest.approx(
        expected
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 40), unique=True, max_size=25),
    st.sets(st.integers(0, 40), min_size=1, max_size=15),
)
def test_figures_agree_with_the_reference_implementation(
    ranking: list[int], relevant: set[int]
) -> None:
    expected = query(expect_docs=[f"file:///{n}" for n in relevant])
    found = of_golden(expected, [hit(str(n)) for n in ranking])
    qrels = [ir_measures.Qrel("q", str(n), 1) for n in relevant]
    run = [ir_measures.ScoredDoc("q", str(n), -rank) for rank, n in enumerate(ranking)]
    measures = [ir_measures.nDCG @ 10, ir_measures.R @ 20]
    oracle = ir_measures.calc_aggregate(measures, qrels, run)
    assert found.ndcg == pytest.approx(oracle[measures[0]] if ranking else 0.0)
    assert found.recall_20 == pytest.approx(oracle[measures[1]] if ranking else 0.0)


def test_an_expected_string_is_found_in_title_or_text_whatever_its_case_and_spacing() -> None:
    hits = [hit("a", "nothing"), hit("b", "the  FRESNEL\nlens"), hit("c", title="Colza oil")]
    found = of_strings(["fresnel lens"], hits)
    assert (found.ndcg, found.recall_20) == (1 / math.log2(3), 1.0)
    half = of_strings(["colza", "walrus"], hits)
    assert (half.ndcg, half.recall_20) == (0.25, 0.5)


def test_without_a_hit_a_query_counts_zero_and_fails() -> None:
    assert of_golden(query(expect_docs=["a"]), []) == QueryFigures(0.0, 0.0, 0.0, 0.0, 0)
    assert failures_of(query(expect_docs=["a"]), []) == ["no hit"]


def test_the_rules_of_a_query_are_each_reported() -> None:
    hits = [hit("x", "text"), hit("a", "the lamp", "Lamp")]
    golden_query = query(
        expect_docs=["file:///a", "file:///b", "file:///c"],
        expect_keywords=["lamp", "Lamp oil"],
        expect=["LAMP", "wick"],
        min_score=0.9,
    )
    failures = failures_of(golden_query, hits)
    assert [f.split(" 0.")[0] for f in failures] == [
        "nDCG@10",
        "recall@20",
        "keyword not in the first ten: Lamp oil",
        "not in the first ten: wick",
    ]
    assert failures_of(query(expect_docs=["file:///a"], min_score=0.6), hits) == []


def test_a_keyword_must_stand_in_the_text_of_the_first_ten() -> None:
    others = [hit(str(n), "x") for n in range(10)]
    late = failures_of(
        query(expect_docs=["file:///0"], expect_keywords=["oil"]), [*others, hit("a", "oil")]
    )
    assert late == ["keyword not in the first ten: oil"]
    title = failures_of(
        query(expect_docs=["file:///a"], expect_keywords=["oil"]), [hit("a", "x", "oil")]
    )
    assert title != []


def means(ndcg: float, recall: float, p95_ms: float) -> Means:
    figures = QueryFigures(ndcg, recall, recall, ndcg, 1)
    return means_of([figures], [p95_ms])


def test_thresholds_are_gates_over_the_means() -> None:
    thresholds = Thresholds.model_validate(
        {"ndcg@10": 0.8, "recall@20": 0.9, "p95_latency_ms": 100}
    )
    two = [QueryFigures(0.7, 1.0, 1.0, 1.0, 1), QueryFigures(0.9, 1.0, 1.0, 1.0, 1)]
    good = means_of(two, [10, 20, 100])
    assert good.ndcg_at_10 == pytest.approx(0.8)
    assert threshold_failures(thresholds, good) == []
    bad = threshold_failures(thresholds, means(0.75, 0.9, 101))
    assert [gate.split(" ")[0] for gate in bad] == ["nDCG@10", "p95"]


def test_a_run_may_lose_two_percent_and_be_a_fifth_slower() -> None:
    last = means(0.8, 1.0, 100)
    assert regressions(means(0.785, 0.99, 119), last) == []
    worse = regressions(means(0.78, 0.97, 121), last)
    assert [found.split(" ")[0] for found in worse] == ["nDCG@10", "p95", "Recall@20"]
    assert regressions(means(0.78, 0.97, 121), last, ()) == []


def test_a_rise_of_a_few_milliseconds_says_nothing() -> None:
    quick = means(0.8, 0.9, 2)
    assert regressions(means(0.8, 0.9, 6.9), quick) == []
    assert regressions(means(0.8, 0.9, 7.1), quick) != []


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_the_smallest_value_that_enough_others_do_not_exceed(
    values: list[float], share: float
) -> None:
    found = percentile(values, share)
    assert sum(v <= found for v in values) >= share * len(values)
    assert sum(v < found for v in values) < share * len(values)


CHECK: Final = REPOSITORY / "scripts" / "check_manifests.py"


def test_the_golden_queries_of_the_ordered_manifest_have_the_shape_of_the_contract() -> None:
    golden = read_golden(MANIFESTS / "expressionist-art.eval.json")
    assert len(golden.queries) == len({one.id for one in golden.queries}) == 5
    assert all(one.expect_docs and one.expect_keywords for one in golden.queries)
    assert golden.thresholds.p95_latency_ms


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("art.eval.json", '{"queries": []}', "art.eval.json"),
        ("art/eval.json", '{"queries": [{"id": "a", "query": "b"}]}', "expects nothing"),
        ("other.eval.json", '{"queries": [{"q": "b", "expect": ["c"]}]}', "no manifest other.yaml"),
    ],
)
def test_the_check_of_manifests_reads_golden_queries(
    tmp_path: Path, name: str, content: str, words: str
) -> None:
    (tmp_path / "art.yaml").write_text("id: art\nname: Art\n", encoding="utf-8")
    (tmp_path / "art").mkdir()
    (tmp_path / name).write_text(content, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(CHECK), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, words in done.stderr) == (1, True), done


def test_golden_queries_are_read_from_yaml_as_from_json(tmp_path: Path) -> None:
    file = tmp_path / "golden.yml"
    file.write_text("queries:\n- {q: lamp, expect: [lamp]}\nthresholds: {ndcg@10: 0.5}\n")
    assert read_golden(file) == parse_golden(
        {"queries": [{"q": "lamp", "expect": ["lamp"]}], "thresholds": {"ndcg@10": 0.5}}
    )
    file.write_text("queries: [")
    with pytest.raises(Invalid, match="cannot be read"):
        read_golden(file)
