"""Evaluations on a running installation: the job, its gates, what is kept, and the command."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from latent_client import AsyncClient
from latent_core.domain.errors import Forbidden, Invalid
from latent_core.domain.golden import GoldenSet, parse_golden
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Fusion, FusionMethod, Manifest, SearchMode
from latent_core.domain.manifest.templates import golden_queries
from latent_core.eval.datasets import read_golden
from latent_core.wire.evaluation import EvalReport, EvalRequest, JudgedQuery
from latent_core.wire.search import SearchRequest
from tests.conftest import DIMS
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

TEXTS = {
    "lamp": "The lamp is lit at dusk by the keeper.",
    "lens": "The lens turns in a bath of mercury.",
    "horn": "The horn blows when there is fog.",
}


async def founded(client: AsyncClient, name: str, folder: Path) -> None:
    await client.create(Manifest(id=name, name=name, embedder="openai/test", dims=DIMS))
    corpus = folder / "corpus.jsonl"
    lines = [orjson.dumps({"_id": key, "title": "", "text": text}) for key, text in TEXTS.items()]
    corpus.write_bytes(b"\n".join(lines))
    upload = await client.upload(name, corpus)
    added = await client.add(name, file_ref=upload.file_ref)
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE, job


def golden(**thresholds: float) -> GoldenSet:
    queries = [{"id": key, "query": text, "expect_docs": [key]} for key, text in TEXTS.items()]
    return parse_golden({"queries": queries, "thresholds": thresholds})


async def evaluated(client: AsyncClient, name: str, request: EvalRequest) -> EvalReport:
    queued = await client.evaluate(name, request)
    (job,) = await client.wait([queued.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE, job
    assert job.progress_done == job.progress_total
    return EvalReport.model_validate(job.result)


async def test_every_mode_is_measured_and_a_run_that_passes_is_kept_to_compare_with(
    client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "measured", tmp_path)
    modes = [SearchMode.SEMANTIC, SearchMode.LEXICAL, SearchMode.HYBRID]
    first = await evaluated(client, "measured", EvalRequest(golden=golden(), modes=modes))
    assert [s.setup.mode for s in first.setups] == modes
    for setup in first.setups:
        assert setup.means.ndcg_at_10 == setup.means.recall_at_20 == setup.means.mrr == 1.0
        assert (setup.means.zero_hit_rate, setup.compared) == (0.0, None)
    assert (first.passed, first.kept) == (True, True)
    runs = await client.eval_runs("measured")
    assert {run.setup for run in runs} == {s.name for s in first.setups}

    again = await evaluated(client, "measured", EvalRequest(golden=golden(), compare=True))
    (setup,) = again.setups
    assert setup.compared is not None
    assert setup.compared.ndcg_at_10.value == 0.0
    assert not again.kept


async def test_a_gate_that_fails_keeps_the_last_run_unless_it_is_to_be_saved(
    client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "gated", tmp_path)
    wrong = [JudgedQuery(id="q", query=TEXTS["lamp"], relevant={"horn": 1.0, "absent": 2.0})]
    assert (await evaluated(client, "gated", EvalRequest(judged=wrong))).passed
    failed = await evaluated(client, "gated", EvalRequest(golden=golden(p95_latency_ms=0.001)))
    assert (failed.passed, failed.kept) == (False, False)
    assert "p95 latency" in failed.setups[0].gates[0]
    assert len(await client.eval_runs("gated")) == 1
    saved = await evaluated(
        client, "gated", EvalRequest(golden=golden(p95_latency_ms=0.001), save=True)
    )
    assert (saved.passed, saved.kept) == (False, True)
    assert len(await client.eval_runs("gated")) == 2


async def test_suggestions_try_other_fusions_and_a_request_may_name_its_own(
    client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "tuned", tmp_path)
    report = await evaluated(client, "tuned", EvalRequest(golden=golden(), suggest=True, rounds=1))
    assert report.suggestion is not None
    assert len(report.suggestion.tried) > 10
    assert not report.suggestion.worth_it, "all is found already"
    weighted = Fusion(method=FusionMethod.WEIGHTED, weights={"bm25": 0.0})
    request = SearchRequest(
        containers=["tuned"], query="lamp", top_k=3, fusion=weighted, explain=True
    )
    answer = await client.search(request)
    assert answer.diagnostics is not None
    assert "weighted with weights {'bm25': 0.0}" in " ".join(answer.diagnostics.plan)


async def test_an_unavailable_mode_is_refused_before_any_query_runs(
    client: AsyncClient,
) -> None:
    await client.create(
        Manifest(id="plain-runs", name="Plain runs", embedder="openai/test", dims=DIMS)
    )
    eval_request = EvalRequest(golden=golden(), modes=[SearchMode.SEMANTIC, SearchMode.MULTIVECTOR])
    with pytest.raises(Forbidden, match="not available yet"):
        await client.evaluate("plain-runs", eval_request)


async def test_without_a_query_to_ask_the_request_is_refused(
    client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "silent", tmp_path)
    with pytest.raises(Invalid, match="has no golden queries"):
        await client.evaluate("silent", EvalRequest())


async def test_golden_queries_of_a_template_are_installed_with_its_container(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    embedder = ("--embedder", "openai/test", "--dims", str(DIMS))
    code, out, err = await installation.cli(
        "container", "create", "beacon", "--from", "samples", *embedder
    )
    assert code == 0, (out, err)
    shipped = golden_queries("samples")
    assert shipped is not None
    exported = tmp_path / "beacon.yaml"
    code, out, err = await installation.cli("golden", "export", "beacon", str(exported))
    assert code == 0, (out, err)
    assert read_golden(exported) == shipped
    exported.unlink()
    code, out, err = await installation.cli("eval", "beacon", "--json")
    (setup,) = orjson.loads(out)["setups"]
    assert setup["queries"] == len(shipped.queries)
    assert code == 1, "the container is empty"
    assert os.listdir(tmp_path) == []


async def test_the_command_asks_the_servers_golden_queries_and_ends_with_1_when_a_gate_fails(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "asked", tmp_path)
    await client.replace_golden("asked", golden(), if_match="0")
    exported = tmp_path / "eval_last_run.json"
    code, out, err = await installation.cli("eval", "asked", "--export", str(exported))
    assert code == 0, (out, err)
    assert "all gates pass; saved for later comparison" in out
    assert "reranking: not measured: no reranker is configured" in out
    assert "latent models add cross-encoder/" in out
    assert EvalReport.model_validate_json(exported.read_bytes()).passed
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "lamp dusk keeper"}\n')
    (tmp_path / "qrels.tsv").write_text("1\tlamp\t1\n")
    code, out, err = await installation.cli(
        "eval", "asked", "--dataset", str(tmp_path), "--modes", "lexical,hybrid", "--json"
    )
    assert code == 0, (out, err)
    assert [s["queries"] for s in orjson.loads(out)["setups"]] == [1, 1]
    failing = tmp_path / "golden.json"
    failing.write_text('{"queries": [{"q": "lamp", "expect": ["never written"]}]}')
    code, out, err = await installation.cli("eval", "asked", "--dataset", str(failing))
    assert code == 1, (out, err)
    assert "gate fails" in out
    assert "not in the first ten: never written" in out
