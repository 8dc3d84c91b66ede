"""The log of queries on a running installation: off by default, for owners, without who searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.rows import dict_row

from latent_client import AsyncClient
from latent_core.domain.errors import Forbidden
from latent_core.domain.golden import GoldenQuery
from latent_core.domain.manifest.model import Acl, Manifest, Roles
from latent_core.domain.token import Scope
from latent_core.wire.queries import QueryKind
from latent_core.wire.search import SearchRequest
from tests.conftest import DIMS
from tests.http.test_evaluations import founded
from tests.support.harness.installation import Installation, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True


async def switched(client: AsyncClient, name: str, keep_days: int | None) -> None:
    described = await client.describe(name)
    manifest = Manifest.model_validate(
        {**described.manifest, "query_log": {"keep_days": keep_days}}
    )
    await client.update(manifest, if_match=described.etag)


async def search(client: AsyncClient, query: str, *names: str, **parts: Any) -> None:
    await client.search(SearchRequest(containers=list(names), query=query, top_k=3, **parts))


def logged(installation: Installation, name: str) -> list[dict[str, Any]]:
    with psycopg.connect(installation.dsn, row_factory=dict_row) as conn:
        return conn.execute(
            "SELECT query, mode, filtered, containers, hits, all_hits, relevance FROM query_log"
            " WHERE container_id = %s ORDER BY id",
            [name],
        ).fetchall()


async def until_logged(installation: Installation, name: str, number: int) -> list[dict[str, Any]]:
    async def enough() -> bool:
        return len(logged(installation, name)) >= number

    await eventually(enough)
    found = logged(installation, name)
    assert len(found) == number
    return found


async def test_nothing_is_logged_until_the_manifest_says_so_and_nothing_is_read_once_it_is_off(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await founded(client, "quiet", tmp_path)
    await search(client, "before", "quiet")
    off = await client.logged_queries("quiet")
    assert (off.keep_days, off.queries) == (None, [])
    await switched(client, "quiet", 7)
    await search(client, "the  lamp at dusk", "quiet")
    (row,) = await until_logged(installation, "quiet", 1)
    assert (row["query"], row["mode"], row["containers"]) == ("the lamp at dusk", "hybrid", 1)
    assert row["hits"] == row["all_hits"] > 0
    on = await client.logged_queries("quiet")
    assert (on.keep_days, on.logged, [one.query for one in on.queries]) == (
        7,
        1,
        ["the lamp at dusk"],
    )
    await switched(client, "quiet", None)
    assert (await client.logged_queries("quiet")).queries == []


async def test_frequent_queries_those_without_hits_and_weak_ones_are_listed(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await founded(client, "listed", tmp_path)
    await switched(client, "listed", 30)
    for query in ("lamp dusk keeper", "Lamp Dusk Keeper", "fog"):
        await search(client, query, "listed", mode="lexical")
    for query in ("zanzibar", "zanzibar"):
        await search(client, query, "listed", mode="lexical")
    await search(client, "fog", "listed", filters={"source_type": ["code"]}, mode="lexical")
    await until_logged(installation, "listed", 6)
    with psycopg.connect(installation.dsn, autocommit=True) as conn:
        conn.execute(
            "UPDATE query_log SET relevance = CASE query WHEN 'fog' THEN 0.2 ELSE 0.9 END"
            " WHERE container_id = 'listed' AND hits > 0"
        )
    await client.add_golden("listed", GoldenQuery(query="zanzibar", expect=["clove"]))
    frequent = (await client.logged_queries("listed")).queries
    assert [(one.query, one.times, one.golden) for one in frequent][:2] in (
        [("zanzibar", 2, True), ("fog", 2, False)],
        [("fog", 2, False), ("zanzibar", 2, True)],
    )
    assert ("Lamp Dusk Keeper", 2) in [(one.query, one.times) for one in frequent]
    without = (await client.logged_queries("listed", QueryKind.WITHOUT_HITS)).queries
    assert [(one.query, one.times, one.all_hits) for one in without] == [("zanzibar", 2, 0)]
    weak = (await client.logged_queries("listed", QueryKind.WEAK)).queries
    assert [(one.query, one.times) for one in weak] == [("fog", 1)], "filtered ones do not count"
    code, out, err = await installation.cli("queries", "listed", "--without-hits")
    assert (code, "zanzibar" in out, "fog" in out) == (0, True, False), err
    code, out, err = await installation.cli("queries", "listed", "--clear", "--yes")
    assert (code, "6 entries" in out) == (0, True), err
    assert (await client.logged_queries("listed")).logged == 0


async def test_a_search_of_several_containers_is_logged_in_those_that_keep_a_log(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    for name in ("one", "two", "three"):
        await founded(client, name, tmp_path)
    await switched(client, "one", 30)
    await switched(client, "two", 30)
    await search(client, "lamp dusk keeper", "one", "two", "three")
    (first,) = await until_logged(installation, "one", 1)
    (second,) = await until_logged(installation, "two", 1)
    assert logged(installation, "three") == []
    assert first["containers"] == second["containers"] == 3
    assert first["all_hits"] == second["all_hits"] >= first["hits"]


async def test_what_is_typed_on_the_way_counts_as_one_query_and_a_further_page_as_none(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await founded(client, "typing", tmp_path)
    await switched(client, "typing", 30)
    for query in ("l", "la", "lam", "lamp", "lamp ke", "lamp kee"):
        await search(client, query, "typing", as_you_type=True)
    request = SearchRequest(containers=["typing"], query="lamp keeper", top_k=1)
    answer = await client.search(request)
    assert answer.next_cursor is not None
    await client.search(request.model_copy(update={"cursor": answer.next_cursor}))
    found = await until_logged(installation, "typing", 1)
    assert [row["query"] for row in found] == ["lamp keeper"]


async def test_the_log_is_for_owners(
    client: AsyncClient, installation: Installation, http: httpx.AsyncClient
) -> None:
    roles = Roles(owner=["local:you"], writer=["agent:writes"])
    await client.create(
        Manifest(id="private", name="p", embedder="openai/test", dims=DIMS, acl=Acl(roles=roles))
    )
    token = await client.create_token("agent:writes", scopes=[Scope.READ, Scope.WRITE, Scope.ADMIN])
    async with AsyncClient(installation.url, token.secret) as writer:
        with pytest.raises(Forbidden):
            await writer.logged_queries("private")
        with pytest.raises(Forbidden):
            await writer.clear_logged_queries("private")
    refused = await http.get("/v1/containers/private/queries?days=400")
    assert refused.status_code == 400


async def test_a_query_stands_in_no_log_of_the_process(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await founded(client, "silent-log", tmp_path)
    await switched(client, "silent-log", 30)
    await search(client, "a-very-private-question", "silent-log")
    await until_logged(installation, "silent-log", 1)
    assert "a-very-private-question" not in installation.log.read_text()
