"""Golden queries of a container on a running installation: API, command, and the manifest folder at the start."""

from __future__ import annotations

from pathlib import Path

import httpx
import orjson
import pytest

from latent_client import AsyncClient
from latent_core.domain.errors import Conflict, Forbidden, NotFound, PreconditionFailed
from latent_core.domain.golden import GoldenQuery, GoldenSet
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Acl, Manifest, Roles
from latent_core.domain.token import Scope
from latent_core.eval.datasets import read_golden
from latent_core.wire.evaluation import EvalReport, EvalRequest
from latent_core.wire.refresh import PlanAnswer, RefreshRequest, RefreshTarget, Strategy
from tests.conftest import DIMS
from tests.http.test_evaluations import TEXTS, founded
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

LAMP = GoldenQuery(id="lamp", query="When is the lamp lit?", expect_docs=["lamp"])
HORN = GoldenQuery(id="fog/horn", query="When does it blow?", expect=["fog"], min_score=0.5)
TWO = GoldenSet.model_validate(
    {"queries": [LAMP.model_dump(), HORN.model_dump()], "thresholds": {"ndcg@10": 0.4}}
)


async def empty(client: AsyncClient, name: str) -> None:
    await client.create(Manifest(id=name, name=name, embedder="openai/test", dims=DIMS))


async def texts(client: AsyncClient, name: str) -> list[tuple[str, str]]:
    return [(one.id, one.query) for one in (await client.golden_list(name)).queries]


async def test_a_set_is_replaced_read_and_cleared_and_an_old_version_is_refused(
    client: AsyncClient,
) -> None:
    await empty(client, "sets")
    none = await client.golden_list("sets")
    assert (none.etag, none.total, none.queries) == ("0", 0, [])
    first = await client.replace_golden("sets", TWO, if_match="0")
    known = await client.golden_list("sets")
    assert (known.etag, known.total) == (first.etag, 2)
    assert known.thresholds == TWO.thresholds
    assert [GoldenQuery(**one.model_dump(exclude={"etag"})) for one in known.queries] == [
        LAMP,
        HORN,
    ]
    with pytest.raises(PreconditionFailed, match="changed in the meantime"):
        await client.replace_golden("sets", TWO, if_match="0")
    assert (await client.golden_list("sets")).etag == first.etag, "a refused change changes nothing"
    cleared = await client.clear_golden("sets", if_match=first.etag)
    again = await client.golden_list("sets")
    assert (again.total, again.etag) == (0, cleared.etag)
    assert cleared.etag != "0"


async def test_single_queries_are_added_changed_and_removed_by_their_own_version(
    client: AsyncClient,
) -> None:
    await empty(client, "singles")
    added = await client.add_golden("singles", LAMP)
    assert added.created
    with pytest.raises(Conflict, match="already"):
        await client.add_golden("singles", LAMP)
    numbered = await client.add_golden("singles", GoldenQuery(query="fog", expect=["fog"]))
    assert numbered.query.id == "q2"
    other = await client.add_golden("singles", HORN)
    better = LAMP.model_copy(update={"expect_docs": ["lamp", "lens"]})
    changed = await client.change_golden("singles", better, if_match=added.query.etag)
    assert changed.query.expect_docs == ["lamp", "lens"]
    with pytest.raises(PreconditionFailed):
        await client.change_golden("singles", LAMP, if_match=added.query.etag)
    same = await client.change_golden("singles", HORN, if_match=other.query.etag)
    assert same.query.id == "fog/horn", "another query changed in between, which is no matter"
    assert (await client.remove_golden("singles", "fog/horn")).total == 2
    with pytest.raises(NotFound, match="no golden query 'fog/horn'"):
        await client.remove_golden("singles", "fog/horn")
    assert [one for one, _ in await texts(client, "singles")] == ["lamp", "q2"]


async def test_what_is_marked_as_right_is_added_to_the_query_of_the_same_text(
    client: AsyncClient,
) -> None:
    await empty(client, "marked")
    right = GoldenQuery(query="When is the lamp lit?", expect_docs=["lens"])
    first = await client.add_golden("marked", right, merge=True)
    assert (first.created, first.query.id) == (True, "q1")
    more = right.model_copy(update={"expect_docs": ["lamp", "lens"]})
    second = await client.add_golden("marked", more, merge=True)
    assert (second.created, second.query.expect_docs) == (False, ["lens", "lamp"])
    assert second.query.etag != first.query.etag
    assert len(await texts(client, "marked")) == 1


async def test_a_change_without_if_match_or_with_another_id_is_refused(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    await empty(client, "strict")
    await client.add_golden("strict", LAMP)
    path = "/v1/containers/strict/golden"
    body = LAMP.model_dump(exclude_defaults=True)
    assert (await http.put(path, json={"queries": [body]})).status_code == 428
    assert (await http.put(f"{path}/lamp", json=body)).status_code == 428
    wrong = await http.put(f"{path}/other", json=body, headers={"If-Match": '"1"'})
    assert (wrong.status_code, "the address names" in wrong.text) == (400, True)
    control = await http.post(path, json={"query": "a\u0000b", "expect": ["x"]})
    assert control.status_code == 400


async def test_pages_of_the_list_are_the_whole_list(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    await empty(client, "paged")
    queries = [GoldenQuery(id=f"n{n}", query=f"lamp {n}", expect=["lamp"]) for n in range(7)]
    await client.replace_golden("paged", GoldenSet(queries=queries), if_match="0")
    seen, cursor = [], ""
    while cursor is not None:
        path = f"/v1/containers/paged/golden?limit=3{cursor and '&cursor='}{cursor}"
        page = (await http.get(path)).json()
        seen += [one["id"] for one in page["queries"]]
        assert page["total"] == 7
        cursor = page["next_cursor"]
    assert seen == [one.id for one in queries]


async def test_readers_see_golden_queries_and_only_owners_change_them(
    client: AsyncClient, installation: Installation
) -> None:
    roles = Roles(owner=["local:you"], writer=["agent:w"], reader=["agent:r"])
    await client.create(
        Manifest(id="owned", name="o", embedder="openai/test", dims=DIMS, acl=Acl(roles=roles))
    )
    await client.add_golden("owned", LAMP)
    scopes = [Scope.READ, Scope.WRITE, Scope.ADMIN]
    for name in ("agent:w", "agent:r"):
        token = await client.create_token(name, scopes=scopes)
        async with AsyncClient(installation.url, token.secret) as other:
            assert (await other.golden_list("owned")).total == 1
            with pytest.raises(Forbidden, match=r"acl\.roles\.owner"):
                await other.add_golden("owned", HORN)


async def test_an_evaluation_and_a_refresh_take_the_containers_own_queries(
    client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "judged", tmp_path)
    queries = [GoldenQuery(id=k, query=text, expect_docs=[k]) for k, text in TEXTS.items()]
    await client.replace_golden("judged", GoldenSet(queries=queries), if_match="0")
    queued = await client.evaluate("judged", EvalRequest(rounds=1))
    (job,) = await client.wait([queued.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE, job
    report = EvalReport.model_validate(job.result)
    assert (report.setups[0].queries, report.setups[0].verdicts[0].reciprocal_rank) == (3, 1.0)
    target = RefreshTarget(embedder="openai/other", version="1", dims=DIMS)
    planned = await client.refresh(
        "judged", RefreshRequest(strategy=Strategy.PARALLEL, to=target), dry_run=True
    )
    assert isinstance(planned, PlanAnswer)
    assert planned.plan.golden_queries == 3


async def test_golden_queries_by_command(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await empty(client, "typed")
    file = tmp_path / "golden.json"
    file.write_text(TWO.model_dump_json(by_alias=True, exclude_defaults=True))
    code, out, err = await installation.cli("golden", "import", "typed", str(file))
    assert (code, "typed has 2 golden queries" in out) == (0, True), err
    code, out, err = await installation.cli("golden", "import", "typed", str(file))
    assert (code, "--yes" in err) == (2, True)
    code, out, err = await installation.cli("golden", "import", "typed", str(file), "--yes")
    assert code == 0, err
    exported = tmp_path / "out.yaml"
    code, _, err = await installation.cli("golden", "export", "typed", str(exported))
    assert code == 0, err
    assert read_golden(exported) == TWO
    code, _, err = await installation.cli(
        "golden", "add", "typed", "oil", "--expect", "colza", "--id", "oil"
    )
    assert code == 0, err
    code, _, err = await installation.cli("golden", "remove", "typed", "lamp")
    assert code == 0, err
    code, out, err = await installation.cli("golden", "list", "typed", "--json")
    assert [one["id"] for one in orjson.loads(out)["queries"]] == ["fog/horn", "oil"]


async def test_a_container_is_created_with_golden_queries(client: AsyncClient) -> None:
    manifest = Manifest(id="born", name="born", embedder="openai/test", dims=DIMS)
    created = await client.create(manifest, golden=TWO)
    assert created.files == ["born.yaml"]
    assert (await client.golden_list("born")).total == 2


async def test_a_set_that_is_not_valid_says_which_key_is_wrong(http: httpx.AsyncClient) -> None:
    answer = await http.put(
        "/v1/containers/sets/golden",
        json={"queries": [{"query": "lamp"}]},
        headers={"If-Match": '"0"'},
    )
    assert (answer.status_code, "expects nothing" in answer.text) == (400, True)
