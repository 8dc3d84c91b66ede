"""Tabs Quality and Queries in a real browser, by mouse, by keyboard and on a phone; rights without one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from latent_client import AsyncClient
from latent_core.domain.golden import GoldenQuery, GoldenSet
from latent_core.domain.manifest.model import Acl, Manifest, Roles
from latent_core.domain.token import Scope
from latent_core.wire.evaluation import EvalRequest
from latent_core.wire.search import SearchRequest
from tests.conftest import DIMS
from tests.http.test_evaluations import evaluated
from tests.http.test_http_surface import ingest, settled
from tests.support.harness.browser import (
    CHROMIUM,
    WAYS,
    WHY_NOT,
    BrowserWindow,
    Way,
    chromium,
    signed_in,
)
from tests.support.harness.console_http import sign_in, stranger
from tests.support.harness.installation import Installation, eventually

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]
SHARED_STACK = True

TEXTS = {
    "lamp.md": b"# Lamp\n\nThe lamp is lit at dusk by the keeper.\n",
    "horn.md": b"# Horn\n\nThe horn blows when there is fog.\n",
    "lens.md": b"# Lens\n\nThe lens turns in a bath of mercury.\n",
}
LAMP = "when is the lamp lit"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


async def container(client: AsyncClient, name: str, **more: Any) -> None:
    """One with three texts, which a guest may read."""
    roles = Roles(owner=["local:you"], reader=["agent:guest"])
    acl = Acl(roles=roles)
    await client.create(
        Manifest(id=name, name=name.title(), embedder="openai/test", dims=DIMS, acl=acl, **more)
    )
    for file, text in TEXTS.items():
        await ingest(client, name, file, text)
    await settled(client, name)


@asynccontextmanager
async def desk_of(
    browser: Browser, installation: Installation, way: Way
) -> AsyncIterator[BrowserWindow]:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        yield desk


async def fine(desk: BrowserWindow) -> None:
    """No barriers, and nothing beyond the window."""
    assert await desk.barriers() == []
    assert await desk.overflow() == 0


async def uri_of(client: AsyncClient, name: str, file: str) -> str:
    found = [d.source_uri async for d in client.documents(name)]
    return next(uri for uri in found if uri.endswith(file))


@pytest.mark.parametrize("way", WAYS)
async def test_a_golden_query_is_made_by_marking_a_hit_and_measured(
    browser: Browser, installation: Installation, client: AsyncClient, way: Way
) -> None:
    name = f"golden-{way.value}"
    await container(client, name)
    async with desk_of(browser, installation, way) as desk:
        page = desk.page
        await desk.go(f"/console/containers/{name}")
        await desk.press(page.get_by_role("link", name="Quality", exact=True))
        await expect(page.get_by_text("No golden queries yet")).to_be_visible()
        await fine(desk)
        await desk.fill(page.get_by_label("A query that must be answered"), LAMP)
        await desk.press(page.get_by_role("button", name="Add"))
        row = page.get_by_role("listitem").filter(has_text="lit at dusk")
        await desk.press(row.get_by_role("button", name="Right"))
        await expect(page.get_by_role("button", name="Save")).to_be_visible()
        await expect(page.get_by_text("1 right document among")).to_be_visible()
        await fine(desk)
        (query,) = (await client.golden_list(name)).queries
        assert (query.query, query.expect_docs) == (LAMP, [await uri_of(client, name, "lamp.md")])
        await desk.press(page.get_by_role("link", name="Golden queries"))
        await desk.press(page.get_by_role("button", name="Measure now"))
        await expect(page.get_by_text("Measured: nDCG@10")).to_be_visible()
        await desk.press(page.get_by_role("link", name="See every query"))
        await expect(page.get_by_role("cell", name="right at")).to_be_visible()
        await fine(desk)


@pytest.mark.parametrize("way", WAYS)
async def test_a_golden_query_is_edited_marked_otherwise_and_removed(
    browser: Browser, installation: Installation, client: AsyncClient, way: Way
) -> None:
    name = f"reworked-{way.value}"
    await container(client, name)
    lamp, horn = [await uri_of(client, name, f"{one}.md") for one in ("lamp", "horn")]
    await client.add_golden(name, GoldenQuery(id="lit", query=LAMP, expect_docs=[lamp]))
    async with desk_of(browser, installation, way) as desk:
        page = desk.page
        await desk.go(f"/console/containers/{name}/quality/query?id=lit")
        row = page.get_by_role("listitem").filter(has_text="there is fog")
        await desk.press(row.get_by_role("button", name="Right"))
        await expect(page.get_by_text("2 right documents among")).to_be_visible()
        focused = await page.evaluate("document.activeElement.id")
        assert focused.startswith("mark-"), "the focus stays where it was"
        row = page.get_by_role("listitem").filter(has_text="lit at dusk")
        await desk.press(row.get_by_role("button", name="Right"))
        await expect(page.get_by_text("1 right document among")).to_be_visible()
        assert (await client.golden_list(name)).queries[0].expect_docs == [horn]
        await desk.fill(page.get_by_label("Right documents"), "")
        await desk.press(page.get_by_role("button", name="Save"))
        await expect(page.get_by_role("alert")).to_contain_text("must expect something")
        desk.complaints.clear()  # the browser notes the status of the form that was refused
        await fine(desk)
        await desk.fill(page.get_by_label("Words in the texts"), "dusk")
        await desk.press(page.get_by_role("button", name="Save"))
        await expect(page.get_by_text("The golden query is saved.")).to_be_visible()
        assert (await client.golden_list(name)).queries[0].expect_keywords == ["dusk"]
        await desk.press(page.get_by_text("Remove", exact=True))
        await desk.press(page.get_by_role("button", name="Remove it"))
        await expect(page.get_by_text("The golden query lit is removed.")).to_be_visible()
    assert (await client.golden_list(name)).total == 0


async def runs(client: AsyncClient, name: str) -> None:
    """Two runs of which the second is better for one query."""
    lamp, horn = [await uri_of(client, name, f"{one}.md") for one in ("lamp", "horn")]
    for right in ("file:///nowhere.md", horn):
        queries = [
            GoldenQuery(id="lit", query=LAMP, expect_docs=[lamp]),
            GoldenQuery(id="fog", query="horn in the fog", expect_docs=[right]),
        ]
        request = EvalRequest(golden=GoldenSet(queries=queries), rounds=1)
        await evaluated(client, name, request)


@pytest.mark.parametrize("way", WAYS)
async def test_two_runs_are_seen_as_curves_and_compared_query_by_query(
    browser: Browser, installation: Installation, client: AsyncClient, way: Way
) -> None:
    name = f"runs-{way.value}"
    await container(client, name)
    await runs(client, name)
    async with desk_of(browser, installation, way) as desk:
        page = desk.page
        await desk.go(f"/console/containers/{name}/quality")
        curve = page.get_by_role("img", name="Quality over the runs")
        await expect(curve).to_be_visible()
        assert await curve.locator("circle.failed").count() == 2, "one run, two lines"
        await fine(desk)
        await desk.press(page.get_by_role("row").nth(1).get_by_role("link"))
        await desk.press(page.get_by_role("button", name="Compare"))
        row = page.get_by_role("row").filter(has_text="horn in the fog")
        await expect(row).to_contain_text("+")
        await expect(row).to_contain_text("nothing right → right at")
        await expect(page.get_by_role("row")).to_have_count(2)
        await fine(desk)


@pytest.mark.parametrize("way", WAYS)
async def test_the_log_is_switched_on_read_and_a_query_of_it_becomes_golden(
    browser: Browser, installation: Installation, client: AsyncClient, way: Way
) -> None:
    name = f"asked-{way.value}"
    await container(client, name)
    async with desk_of(browser, installation, way) as desk:
        page = desk.page
        await desk.go(f"/console/containers/{name}/queries")
        await expect(page.get_by_text("Queries are not logged")).to_be_visible()
        await fine(desk)
        await desk.fill(page.get_by_label("Keep queries for"), "14")
        await desk.press(page.get_by_role("button", name="Log queries"))
        await expect(page.get_by_text("kept for 14 days", exact=False).first).to_be_visible()
        for query, mode in ((LAMP, "hybrid"), ("zanzibar", "lexical")):
            await client.search(
                SearchRequest.model_validate(
                    {"containers": [name], "query": query, "top_k": 3, "mode": mode}
                )
            )

        async def both() -> bool:
            return (await client.logged_queries(name)).logged == 2

        await eventually(both)
        await desk.go(f"/console/containers/{name}/queries")
        await fine(desk)
        await desk.press(page.get_by_role("link", name="Without hits"))
        await expect(page.get_by_role("row").filter(has_text="zanzibar")).to_be_visible()
        await expect(page.get_by_role("row").filter(has_text=LAMP)).to_have_count(0)
        await desk.press(page.get_by_role("link", name="Most asked"))
        await desk.press(page.get_by_role("button", name=f"Make golden {LAMP}"))
        await expect(page.get_by_text("A golden query was made.")).to_be_visible()
        await desk.press(page.get_by_role("link", name="Queries", exact=True))
        await expect(page.get_by_role("row").filter(has_text=LAMP)).to_contain_text("golden")
        await desk.press(page.get_by_text("Switch off", exact=True).first)
        await desk.press(page.get_by_role("button", name="Switch off"))
        await expect(page.get_by_text("Queries are not logged")).to_be_visible()
    assert (await client.golden_list(name)).total == 1
    assert (await client.describe(name)).manifest["query_log"]["keep_days"] is None


async def test_a_reader_sees_golden_queries_and_no_button_and_every_change_is_refused(
    browser: Browser, installation: Installation, client: AsyncClient
) -> None:
    await container(client, "guarded-golden")
    await client.add_golden("guarded-golden", GoldenQuery(id="lit", query=LAMP, expect=["dusk"]))
    guest = await client.create_token(
        "agent:guest", scopes=[Scope.READ], containers=["guarded-golden"]
    )
    async with signed_in(browser, installation.url, guest.secret) as desk:
        for path in ("quality", "quality/query?id=lit"):
            await desk.go(f"/console/containers/guarded-golden/{path}")
            await expect(desk.page.get_by_text(LAMP).first).to_be_visible()
            buttons = await desk.page.get_by_role("button").all_inner_texts()
            assert buttons == ["Sign out"]
        tabs = desk.page.get_by_role("navigation", name="Container").get_by_role("link")
        assert "Queries" not in await tabs.all_inner_texts()
    base = "/console/containers/guarded-golden"
    forms: dict[str, dict[str, str]] = {
        "quality/measure": {},
        "quality/mark": {"query": "fog", "doc": "file:///horn.md"},
        "quality/save": {"query": "fog", "keywords": "fog"},
        "quality/remove": {"id": "lit"},
        "queries/switch": {"keep_days": "3"},
        "queries/clear": {},
    }
    async with stranger(installation.url) as http:
        await sign_in(http, guest.secret)
        assert (await http.get(f"{base}/queries")).status_code == 403
        for path, fields in forms.items():
            answer = await http.post(f"{base}/{path}", data=fields)
            assert answer.status_code == 403, path
    assert [one.id for one in (await client.golden_list("guarded-golden")).queries] == ["lit"]


async def test_a_change_without_the_sessions_token_is_refused(
    installation: Installation, client: AsyncClient
) -> None:
    await container(client, "forged")
    async with stranger(installation.url) as http:
        await sign_in(http, installation.token)
        del http.headers["X-CSRF-Token"]
        for path in ("quality/measure", "quality/mark", "quality/save", "queries/switch"):
            answer = await http.post(
                f"/console/containers/forged/{path}", data={"query": "x", "doc": "y"}
            )
            assert answer.status_code == 403, path
    assert (await client.golden_list("forged")).total == 0


async def test_the_quality_pages_work_without_scripts(
    browser: Browser, installation: Installation, client: AsyncClient
) -> None:
    await container(client, "plain-quality")
    async with signed_in(
        browser, installation.url, installation.token, java_script_enabled=False
    ) as desk:
        page = desk.page
        await desk.go(f"/console/containers/plain-quality/quality/query?q={LAMP}")
        row = page.get_by_role("listitem").filter(has_text="lit at dusk")
        await row.get_by_role("button", name="Right").click()
        await expect(page.get_by_role("button", name="Save")).to_be_visible()
    assert (await client.golden_list("plain-quality")).total == 1


async def test_a_hundred_thousand_logged_queries_are_listed_by_an_index(
    installation: Installation, client: AsyncClient
) -> None:
    await container(client, "busy", query_log={"keep_days": 30})
    with psycopg.connect(installation.dsn, autocommit=True) as conn:
        conn.execute(
            "INSERT INTO query_log (container_id, at, query, mode, filtered, containers, hits, all_hits)"
            " SELECT 'busy', now(), 'query ' || n % 5000, 'hybrid', false, 1, 1, 1"
            " FROM generate_series(1, 100000) AS n"
        )
    found = await client.logged_queries("busy", limit=10)
    assert (found.logged, len(found.queries)) == (50_000, 10)
    async with stranger(installation.url) as http:
        await sign_in(http, installation.token)
        answer = await http.get("/console/containers/busy/queries")
    assert "50,000 searches" in answer.text
