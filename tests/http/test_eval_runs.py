"""Stored runs of a running installation: every one is listed, and two are compared query by query."""

from __future__ import annotations

from pathlib import Path

import httpx
import orjson
import pytest

from latent_client import AsyncClient
from latent_core.domain.errors import NotFound
from latent_core.domain.golden import GoldenQuery, GoldenSet
from latent_core.wire.evaluation import EvalRequest
from tests.http.test_evaluations import TEXTS, evaluated, founded
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True


def expecting(**docs: str) -> GoldenSet:
    """Each text as a query, which expects the document that is named or else its own."""
    queries = [
        GoldenQuery(id=key, query=text, expect_docs=[docs.get(key, key)])
        for key, text in TEXTS.items()
    ]
    return GoldenSet(queries=queries)


async def test_runs_that_fail_are_stored_too_but_only_baselines_are_compared_with(
    client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "history", tmp_path)
    right, wrong = expecting(), expecting(horn="absent")
    good = await evaluated(client, "history", EvalRequest(golden=right, rounds=1))
    bad = await evaluated(client, "history", EvalRequest(golden=wrong, rounds=1))
    only = await evaluated(client, "history", EvalRequest(golden=right, rounds=1, compare=True))
    assert (good.passed, bad.passed, only.passed) == (True, False, True)
    second, first = await client.eval_history("history")
    assert (first.passed, first.baseline, first.queries, first.golden) == (True, True, 3, True)
    assert (second.passed, second.baseline) == (False, False)
    assert "1 of 3 queries fail" in second.gates[-1]
    assert first.embedder == "openai/test"
    assert [run.dataset for run in await client.eval_runs("history")] == [first.dataset]
    detailed = await client.eval_run("history", second.id)
    assert detailed.verdicts is not None
    ranks = {verdict.id: verdict.reciprocal_rank for verdict in detailed.verdicts}
    assert ranks == {"lamp": 1.0, "lens": 1.0, "horn": 0.0}


async def test_two_runs_are_compared_query_by_query(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await founded(client, "compared", tmp_path)
    await evaluated(client, "compared", EvalRequest(golden=expecting(horn="absent"), rounds=1))
    renamed = expecting()
    renamed.queries[1] = renamed.queries[1].model_copy(update={"query": "mercury"})
    await evaluated(client, "compared", EvalRequest(golden=renamed, rounds=1))
    after, before = await client.eval_history("compared")
    found = await client.eval_difference("compared", after.id, since=before.id)
    assert (found.better, found.worse, found.same) == (1, 0, 1)
    assert (found.only_before, found.only_after) == (1, 1), "another text is another query"
    (change,) = found.changes
    assert (change.id, change.change) == ("horn", 1.0)
    assert (change.before.failures != [], change.after.failures) == (True, [])
    assert found.ndcg_at_10 is not None
    assert found.ndcg_at_10.value == 0.5
    code, out, err = await installation.cli(
        "eval-runs", "compared", "--run", str(after.id), "--since", str(before.id), "--json"
    )
    assert code == 0, err
    assert [one["id"] for one in orjson.loads(out)["changes"]] == ["horn"]
    code, out, err = await installation.cli("eval-runs", "compared")
    assert (code, str(after.id) in out) == (0, True), err
    code, out, err = await installation.cli("eval-runs", "compared", "--run", str(after.id))
    assert (code, "mercury" in out) == (0, True), err


async def test_a_run_of_another_container_does_not_exist(
    client: AsyncClient, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "lonely", tmp_path)
    await evaluated(client, "lonely", EvalRequest(golden=expecting(), rounds=1))
    (run,) = await client.eval_history("lonely")
    await founded(client, "stranger", tmp_path)
    with pytest.raises(NotFound, match="no evaluation run"):
        await client.eval_run("stranger", run.id)
    answer = await http.get(f"/v1/containers/stranger/eval/runs/{run.id}/difference?since={run.id}")
    assert answer.status_code == 404
