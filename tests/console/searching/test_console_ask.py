"""Asking in the console: streamed and stopped, cited beside the answer, refused with a reason, safe, without scripts."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from latent_core.domain.manifest.model import Acl, Manifest, Roles
from tests.conftest import DIMS, running
from tests.http.test_http_surface import ingest, settled
from tests.support.harness.browser import (
    CHROMIUM,
    WAYS,
    WHY_NOT,
    BrowserWindow,
    chromium,
    signed_in,
)
from tests.support.harness.installation import Installation
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.llm_server import LanguageModelServer, Lie

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]

QUESTION = "At which pressure does the safety valve of the boiler open?"
ANSWER = "The safety valve opens at **7 bar** [1].\n\n- never higher\n- `valve()` says so"
VALVE = """# Boiler

The safety valve of the boiler opens at a pressure of 7 bar.
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model_server() -> AsyncIterator[LanguageModelServer]:
    async with LanguageModelServer() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def model(model_server: LanguageModelServer) -> LanguageModelServer:
    model_server.script.clear()
    model_server.seen.clear()
    model_server.stall_after = None
    model_server.answer = lambda _: ANSWER
    return model_server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    install_root: Path, embedding_server: EmbeddingServer, model_server: LanguageModelServer
) -> AsyncIterator[Installation]:
    file = install_root / "console-ask-providers.yaml"
    url = f"{model_server.base_url}/v1"
    file.write_text(
        f"providers:\n- {{name: lab, kind: openai, base_url: '{url}', reads: [], input_price: 2, output_price: 4}}\n",
        encoding="utf-8",
    )
    async with running(
        install_root, "console-ask", embedding_server.base_url, LLC_PROVIDERS=str(file)
    ) as one:
        async with one.client() as client:
            await client.create(container("boiler", ask={"enabled": True, "provider": "lab/a"}))
            await client.create(container("silent"))
            await ingest(client, "boiler", "valve.md", VALVE.encode())
            await settled(client, "boiler")
        yield one


def container(container_id: str, **more: Any) -> Manifest:
    acl = Acl(roles=Roles(owner=["local:you"]))
    return Manifest(
        id=container_id, name=container_id, embedder="openai/test", dims=DIMS, acl=acl, **more
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def mouse(
    browser: Browser, installation: Installation, model: LanguageModelServer
) -> AsyncIterator[BrowserWindow]:
    async with signed_in(browser, installation.url, installation.token) as opened:
        yield opened


@pytest.mark.parametrize("way", WAYS)
async def test_a_question_is_answered_with_citations_that_open_their_passages(
    browser: Browser, installation: Installation, model: LanguageModelServer, way: Any
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        page = desk.page
        await desk.go("/console/search?q=which+pressure+has+the+boiler")
        await desk.press(page.get_by_role("link", name="Ask this question"))
        await expect(page.get_by_role("textbox", name="Question")).to_have_value(
            "which pressure has the boiler"
        )
        assert model.seen == []
        await desk.press(page.get_by_role("link", name="Ask", exact=True))
        await expect(page.get_by_role("checkbox")).to_have_count(1)
        await desk.fill(page.get_by_role("textbox", name="Question"), QUESTION)
        await desk.press(page.get_by_role("button", name="Ask"))
        answer = page.locator(".answertext")
        await expect(answer.locator("strong")).to_have_text("7 bar")
        await expect(answer.locator("li")).to_have_text(["never higher", "valve() says so"])
        await expect(page.locator("#asked")).to_contain_text("lab/a")
        await expect(page.locator("#asked")).to_contain_text("tokens read")
        await expect(page.locator("#asked")).to_contain_text(re.compile(r"cost 0\.\d{6}"))
        await desk.press(answer.get_by_role("link", name="Source 1"))
        panel = page.get_by_role("complementary", name="Passage")
        await expect(panel).to_contain_text("opens at a pressure of 7 bar")
        assert await desk.barriers() == []
        assert await desk.overflow() == 0
        assert len(model.seen) == 1


async def test_the_text_is_shown_while_it_is_written_and_the_stop_button_ends_the_call(
    mouse: BrowserWindow, model: LanguageModelServer
) -> None:
    model.stall_after = 3
    await mouse.go("/console/ask")
    await mouse.page.get_by_role("textbox", name="Question").fill(QUESTION)
    await mouse.page.get_by_role("button", name="Ask").click()
    await expect(mouse.page.locator(".answertext")).to_contain_text("The safety")
    await expect(mouse.page.locator("#asked")).to_contain_text("passage")
    await mouse.page.get_by_role("button", name="Stop").click()
    await expect(mouse.page.locator("#asked")).to_contain_text("(stopped)")
    await expect(mouse.page.get_by_role("button", name="Stop")).to_be_hidden()


async def test_a_refusal_says_why(mouse: BrowserWindow, model: LanguageModelServer) -> None:
    model.answer = lambda _: "NO_ANSWER The sources speak of pressure only."
    await mouse.go("/console/ask")
    await mouse.page.get_by_role("textbox", name="Question").fill(QUESTION)
    await mouse.page.keyboard.press("Enter")
    await expect(mouse.page.locator("#asked")).to_contain_text("the sources do not hold one")
    await expect(mouse.page.locator("#asked")).to_contain_text("pressure only")
    calls = len(model.seen)
    await mouse.page.get_by_role("textbox", name="Question").fill("zzyzx qqfoo?")
    await mouse.page.keyboard.press("Enter")
    await expect(mouse.page.locator("#asked")).to_contain_text("nothing relevant was found")
    await expect(mouse.page.locator("#asked")).to_contain_text("nothing was spent")
    assert len(model.seen) == calls


async def test_an_answer_that_ends_too_early_says_so(
    mouse: BrowserWindow, model: LanguageModelServer
) -> None:
    model.script = [Lie.HUNG_UP] * 5
    await mouse.go("/console/ask")
    await mouse.page.get_by_role("textbox", name="Question").fill(QUESTION)
    await mouse.page.get_by_role("button", name="Ask").click()
    await expect(mouse.page.get_by_role("alert")).to_be_visible()
    mouse.complaints.clear()  # the browser may tell of an answer of 503


async def test_nothing_that_a_model_writes_runs_or_loads(
    mouse: BrowserWindow, model: LanguageModelServer
) -> None:
    hostile = (
        '<img src=x onerror="window.pwned=1"> <script>window.pwned=2</script> '
        "![p](http://127.0.0.1:1/q.png) [a](javascript:window.pwned=3) [1]"
    )
    model.answer = lambda _: f"{hostile}\n\n```\n{hostile}\n```\n- {hostile}\n# {hostile}"
    requests: list[str] = []
    mouse.page.on("request", lambda one: requests.append(one.url))
    await mouse.go("/console/ask")
    await mouse.page.get_by_role("textbox", name="Question").fill(QUESTION)
    await mouse.page.get_by_role("button", name="Ask").click()
    answer = mouse.page.locator(".answertext")
    await expect(answer.locator("pre")).to_contain_text("onerror")
    await expect(mouse.page.locator("#asked .sources").first).to_be_attached()
    assert await answer.locator("img, script").count() == 0
    assert {await a.get_attribute("href") for a in await answer.locator("a").all()} == {
        await mouse.page.locator("#asked .sources a.cite").first.get_attribute("href")
    }
    assert await mouse.page.evaluate("window.pwned") is None
    assert not [url for url in requests if not url.startswith(mouse.url)]


async def test_without_scripts_the_whole_answer_comes_as_a_page(
    browser: Browser, installation: Installation, model: LanguageModelServer
) -> None:
    async with signed_in(
        browser, installation.url, installation.token, java_script_enabled=False
    ) as desk:
        await desk.go(f"/console/ask?q={QUESTION}")
        await expect(desk.page.get_by_role("textbox", name="Question")).to_have_value(QUESTION)
        assert model.seen == []
        await desk.page.get_by_role("button", name="Ask").click()
        await expect(desk.page.locator(".answertext strong")).to_have_text("7 bar")
        await desk.page.get_by_role("link", name="Source 1", exact=True).click()
        await expect(desk.page.locator(".passage")).to_contain_text("7 bar")
        await desk.go("/console/ask")
        await desk.page.get_by_role("checkbox").uncheck()
        await desk.page.get_by_role("textbox", name="Question").fill(QUESTION)
        await desk.page.get_by_role("button", name="Ask").click()
        await expect(desk.page.get_by_role("alert")).to_contain_text(
            "choose at least one container"
        )
        desk.complaints.clear()  # the browser tells of every answer of 400
