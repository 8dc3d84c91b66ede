"""Searching in the console: as one types, by facets and keys, beside the page; saved, cited, and without scripts."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from latent_core.domain.manifest.model import Acl, Manifest, Roles
from latent_core.wire.search import SearchRequest
from tests.conftest import DIMS
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
from tests.support.harness.installation import Installation
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]
BEACON = "beacon-search"
CELLAR = "cellar-search"
pymupdf: Any = importlib.import_module("pymupdf")  # it is not typed

HORN = """---
tags: [signal, steam]
---
# Signals

The foghorn sounds every thirty seconds while the fog lasts.
"""
HOSTILE = """---
tags: ["<img src=x onerror=window.pwned=1>"]
---
# <script>window.pwned = 2</script> Foghorn

<img src="x" onerror="window.pwned = 3"> The foghorn {{ 7 * 7 }} </p></main><script>window.pwned = 4</script>
"""


def paper() -> bytes:
    pages = pymupdf.open()
    pages.set_metadata(
        {"title": "On 100 % steam", "author": "Ada Winter; Ben Tide", "creationDate": "D:19870301"}
    )
    for number in (1, 2):
        pages.new_page().insert_text((72, 72), f"Part {number}: the foghorn is blown by steam.")
    return bytes(pages.tobytes())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def contents(installation: Installation) -> None:
    async with installation.client() as client:
        acl = Acl(roles=Roles(owner=["local:you"], reader=["agent:guest-search"]))
        for container_id, name in ((BEACON, "Beacon"), (CELLAR, "Cellar")):
            await client.create(
                Manifest(id=container_id, name=name, embedder="openai/test", dims=DIMS, acl=acl)
            )
        await ingest(client, BEACON, "signals.md", HORN.encode())
        await ingest(client, BEACON, "hostile.md", HOSTILE.encode())
        await ingest(client, BEACON, "steam.pdf", paper())
        await ingest(client, CELLAR, "crate.txt", b"A crate with the spare parts of a foghorn.")
        await settled(client, BEACON)
        await settled(client, CELLAR)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module", params=WAYS)
async def desk(
    browser: Browser,
    installation: Installation,
    contents: None,
    request: pytest.FixtureRequest,
) -> AsyncIterator[BrowserWindow]:
    way: Way = request.param
    async with signed_in(browser, installation.url, installation.token, way) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def mouse(
    browser: Browser, installation: Installation, contents: None
) -> AsyncIterator[BrowserWindow]:
    async with signed_in(browser, installation.url, installation.token) as opened:
        yield opened


IN_BOTH = f"c={BEACON}&c={CELLAR}"


async def unfold_weak(desk: BrowserWindow) -> None:
    """Which hits are weak is not what these tests are about."""
    await expect(desk.page.locator(".hit").first).to_be_visible()
    await desk.page.locator(".weakhits summary").evaluate_all("all => all.forEach(s => s.click())")


async def unhurt(desk: BrowserWindow) -> None:
    assert await desk.page.evaluate("window.pwned") is None
    assert await desk.barriers() == []
    assert await desk.overflow() == 0


async def test_hits_come_while_one_types_are_narrowed_by_a_facet_and_shown_with_their_page(
    desk: BrowserWindow,
) -> None:
    page = desk.page
    await desk.go(f"/console/search?{IN_BOTH}")
    await desk.fill(page.get_by_role("searchbox"), "fogh")
    await expect(page.get_by_role("status")).to_contain_text("4 hits")
    assert "typing=1" in page.url
    await page.get_by_role("searchbox").fill("foghorn")
    await page.keyboard.press("Enter")
    await page.wait_for_url(lambda url: "typing" not in url)
    if desk.way is Way.PHONE:
        await expect(page.locator("#narrow")).not_to_have_attribute("aria-busy", "true")
        await desk.press(page.get_by_text("Narrow down"))
    cellar = page.get_by_role("checkbox", name="Cellar 1")
    await expect(cellar).to_be_checked()
    await desk.press(cellar)
    await expect(page.locator(".hit")).to_have_count(3)
    pdf = page.get_by_role("checkbox", name="pdf 1")
    await desk.press(pdf)
    await expect(page.locator(".hit")).to_have_count(1)
    assert re.search(r"type=pdf", page.url)
    await desk.press(page.locator("a.beside"))
    panel = page.get_by_role("complementary", name="Passage")
    await expect(panel.locator("mark")).to_have_text(["foghorn"])
    await expect(panel.locator("img")).to_have_attribute("alt", re.compile("Image of page 1"))
    assert all(await desk.images_shown())
    await unhurt(desk)
    await desk.press(panel.get_by_role("button", name="Close"))
    await expect(page.locator("#panel > *")).to_have_count(0)


async def test_keys_go_through_the_hits_open_them_and_show_their_passages(
    mouse: BrowserWindow,
) -> None:
    page, keys = mouse.page, mouse.page.keyboard
    await mouse.go(f"/console/search?q=foghorn&{IN_BOTH}")
    await unfold_weak(mouse)
    titles = page.locator(".hit h2 a")
    await keys.press("j")
    await expect(titles.nth(0)).to_be_focused()
    await keys.press("ArrowDown")
    await expect(titles.nth(1)).to_be_focused()
    await keys.press("k")
    await expect(titles.nth(0)).to_be_focused()
    await keys.press("o")
    first = await titles.nth(0).inner_text()
    panel = page.get_by_role("complementary", name="Passage")
    await expect(panel.get_by_role("heading")).to_have_text(first)
    await keys.press("j")
    await expect(panel.get_by_role("heading")).to_have_text(await titles.nth(1).inner_text())
    await keys.press("Escape")
    await expect(page.locator("#panel > *")).to_have_count(0)
    await expect(titles.nth(1)).to_be_focused()
    await keys.press("/")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await keys.press("ArrowDown")
    await expect(titles.nth(0)).to_be_focused()
    await keys.press("Enter")
    await page.wait_for_url("**/console/documents/**")


async def test_a_model_behind_a_network_is_not_called_for_every_letter(
    mouse: BrowserWindow, embedding_server: EmbeddingServer
) -> None:
    before = embedding_server.stats.requests
    await mouse.go(f"/console/search?c={BEACON}")
    await mouse.page.get_by_role("searchbox").press_sequentially("thick weather sig", delay=5)
    await expect(mouse.page.get_by_text("Words only while you type")).to_be_visible()
    assert embedding_server.stats.requests == before
    await mouse.page.keyboard.press("Enter")
    await expect(mouse.page.locator(".hit .why").first).to_contain_text("meaning")
    assert embedding_server.stats.requests > before


async def test_a_lost_connection_says_so_instead_of_leaving_old_hits(mouse: BrowserWindow) -> None:
    await mouse.go(f"/console/search?q=foghorn&c={BEACON}")
    await expect(mouse.page.locator(".hit").first).to_be_visible()
    await mouse.page.context.set_offline(True)
    await mouse.page.get_by_role("searchbox").fill("steam")
    await expect(mouse.page.get_by_role("alert")).to_contain_text(
        "connection to the server was lost"
    )
    await expect(mouse.page.locator(".hit")).to_have_count(0)
    await mouse.page.context.set_offline(False)
    await mouse.page.get_by_role("searchbox").fill("steam foghorn")
    await expect(mouse.page.locator(".hit").first).to_be_visible()
    mouse.complaints.clear()  # the browser tells of the failed request


async def test_the_counts_of_the_facets_are_those_of_the_api(
    mouse: BrowserWindow, installation: Installation
) -> None:
    await mouse.go(f"/console/search?q=foghorn&{IN_BOTH}")
    async with installation.client() as client:
        answer = await client.search(
            SearchRequest(
                containers=[BEACON, CELLAR],
                query="foghorn",
                top_k=1,
                facets=["container", "source_type", "meta.tags", "max_age"],
            )
        )
    for name, counted in (("type", "source_type"), ("tag", "meta.tags")):
        for one in answer.facets[counted].values:
            choice = mouse.page.locator(f'input[name={name}][value="{one.value}"]')
            await expect(choice.locator("xpath=..").locator(".count")).to_have_text(str(one.count))
    assert {v.value: v.count for v in answer.facets["container"].values} == {BEACON: 3, CELLAR: 1}
    week = mouse.page.get_by_role("radio", name=re.compile("^Past week 4"))
    await week.check()
    await expect(mouse.page.locator(".hit")).to_have_count(4)
    assert "age=7d" in mouse.page.url


async def test_why_is_a_picture_with_the_same_numbers_as_a_table(mouse: BrowserWindow) -> None:
    await mouse.go(f"/console/search?q=foghorn+zeppelin&{IN_BOTH}")
    await unfold_weak(mouse)
    hit = mouse.page.locator(".hit").filter(has_text="Signals")
    await hit.get_by_text("Why", exact=True).click()
    picture = hit.get_by_role("img", name=re.compile(r"Words: place \d of \d"))
    await expect(picture).to_be_visible()
    for label in ("Words", "Meaning"):
        row = hit.locator(".picture tr").filter(has_text=label)
        rank = (await row.inner_text()).split("place ")[1].split()[0]
        await expect(
            picture.locator("text.rank").filter(has_text=re.compile(f"^{rank}$"))
        ).not_to_have_count(0)
    await expect(hit.locator(".word").filter(has_text="foghorn")).to_contain_text("1")
    await expect(hit.locator(".word").filter(has_text="zeppelin")).to_contain_text("not here")
    await unhurt(mouse)


async def test_a_search_is_saved_opened_and_deleted(desk: BrowserWindow) -> None:
    page = desk.page
    name = f"Foghorns {desk.way.value}"
    await desk.go(f"/console/search?q=foghorn&c={BEACON}&tag=steam&age=30d")
    await expect(page.locator(".hit")).to_have_count(1)
    await desk.press(page.get_by_text("Save this search"))
    await desk.fill(page.get_by_label("Name", exact=True), name)
    await desk.press(page.get_by_role("button", name="Save", exact=True))
    await expect(page.locator(".notice")).to_contain_text(f"saved as “{name}”")
    await desk.go("/console/search")
    await desk.press(page.get_by_role("link", name=name))
    await expect(page.locator(".hit")).to_have_count(1)
    await expect(page.get_by_role("searchbox")).to_have_value("foghorn")
    await desk.press(page.get_by_text("Saved searches"))
    await desk.press(page.get_by_role("button", name=f"Delete the saved search {name}"))
    await expect(page.locator(".notice")).to_contain_text("was deleted")
    await expect(page.get_by_role("link", name=name)).to_have_count(0)


async def text_of(desk: BrowserWindow, selector: str) -> str:
    return await desk.page.locator(selector).first.text_content() or ""


async def test_a_search_is_copied_as_calls_that_work(
    mouse: BrowserWindow, installation: Installation, http: httpx.AsyncClient
) -> None:
    await mouse.go(f"/console/search?q=foghorn's+horn&c={BEACON}&type=pdf")
    mcp, curl, python = [
        await text_of(mouse, f"#call-{name}") for name in ("mcp", "curl", "python")
    ]
    accept = {"Accept": "application/json, text/event-stream"}
    answer = await http.post("/mcp", json=orjson.loads(mcp), headers=accept)
    assert "steam.pdf" in answer.text
    environment = {**os.environ, "LATENT_TOKEN": installation.token}  # noqa: TID251
    for command in (("bash", "-c", curl), (sys.executable, "-c", python)):
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, command
        assert "foghorn" in out.decode()


async def test_a_hit_is_copied_as_a_citation(mouse: BrowserWindow) -> None:
    await mouse.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await mouse.go(f"/console/search?q=steam+foghorn&c={BEACON}&type=pdf")
    hit = mouse.page.locator(".hit").first
    await hit.get_by_text("Cite", exact=True).click()
    await hit.get_by_role("button", name="Copy BibTeX").click()
    bibtex = await mouse.page.evaluate("navigator.clipboard.readText()")
    assert bibtex.startswith("@misc{winter1987steam,\n  author = {Ada Winter and Ben Tide},")
    assert r"title = {{On 100 \% steam}}" in bibtex
    plain = await hit.locator("[id^=cite-plain]").text_content()
    assert plain == "Ada Winter, Ben Tide. On 100 % steam (1987), p. 1. steam.pdf"
    markdown = await hit.locator("[id^=cite-markdown]").text_content()
    assert (markdown or "").startswith("Ada Winter, Ben Tide. [On 100 % steam](<http://127.0.0.1")
    await mouse.go(f"/console/search?q=crate&c={CELLAR}")
    await expect(mouse.page.locator("[id^=cite-bibtex]")).to_have_count(0)


async def test_a_hostile_text_is_text_in_hits_facets_and_the_panel(mouse: BrowserWindow) -> None:
    await mouse.go(f"/console/search?q=foghorn&c={BEACON}")
    hostile = mouse.page.locator(".hit").filter(has_text="7 * 7")
    await unfold_weak(mouse)
    await expect(hostile).to_contain_text("{{ 7 * 7 }}")
    await expect(mouse.page.get_by_label("<img src=x onerror=window.pwned=1>")).to_be_visible()
    await hostile.locator("a.beside").click()
    panel = mouse.page.get_by_role("complementary", name="Passage")
    await expect(panel).to_contain_text('<img src="x"')
    await unhurt(mouse)


async def test_everything_works_without_scripts(
    browser: Browser, installation: Installation, contents: None
) -> None:
    async with signed_in(
        browser, installation.url, installation.token, java_script_enabled=False
    ) as desk:
        await desk.go(f"/console/search?{IN_BOTH}")
        await desk.page.get_by_role("searchbox").fill("foghorn")
        await desk.page.get_by_role("button", name="Search").click()
        await expect(desk.page.locator(".hit")).to_have_count(4)
        await desk.page.get_by_role("checkbox", name="pdf 1").check()
        await desk.page.get_by_role("button", name="Apply").click()
        await expect(desk.page.locator(".hit")).to_have_count(1)
        await desk.page.locator("a.beside").click()
        await expect(desk.page.locator(".passage mark")).to_have_text(["foghorn"])
        assert await desk.page.locator(".passage img").count() == 1


async def test_a_reader_searches_and_sees_only_what_it_may_read(
    browser: Browser, installation: Installation, contents: None, http: httpx.AsyncClient
) -> None:
    made = (await http.post("/v1/tokens", json={"principal": "agent:guest-search"})).json()
    async with signed_in(browser, installation.url, made["secret"]) as desk:
        await desk.go("/console/search?q=foghorn")
        await expect(desk.page.get_by_role("checkbox", name="Beacon 3")).to_be_visible()
        await expect(desk.page.locator("input[name=c]")).to_have_count(2)
        await expect(desk.page.get_by_role("link", name="Ask")).to_have_count(0)
        await desk.go("/console/ask")
        await expect(desk.page.get_by_role("main")).to_contain_text(
            "no language model is configured"
        )
        desk.complaints.clear()  # the browser tells of every answer of 404


async def test_a_change_without_the_token_of_the_session_is_refused(
    mouse: BrowserWindow, installation: Installation
) -> None:
    cookies = {c["name"]: c["value"] for c in await mouse.page.context.cookies()}
    async with httpx.AsyncClient(base_url=installation.url, cookies=cookies) as plain:
        for path in ("/console/search/saved", "/console/search/saved/1/delete", "/console/ask"):
            answer = await plain.post(
                path, data={"name": "x", "search": "q=a"}, headers={"Origin": installation.url}
            )
            assert answer.status_code == 403
