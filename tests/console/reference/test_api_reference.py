"""The API reference in a real browser: found, read, tried with one's own token; three ways."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from latent_core.domain.manifest.model import Manifest
from tests.conftest import DIMS
from tests.support.harness.browser import (
    CHROMIUM,
    PHONE,
    WAYS,
    WHY_NOT,
    Way,
    chromium,
    signed_in,
)
from tests.support.harness.installation import Installation

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def contents(installation: Installation) -> None:
    async with installation.client() as client:
        await client.create(Manifest(id="tower", name="Tower", embedder="openai/test", dims=DIMS))


@pytest.mark.parametrize("way", WAYS)
async def test_an_operation_is_found_as_one_types_and_tried_with_ones_own_token(
    browser: Browser, installation: Installation, contents: None, way: Way
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/api")
        assert await desk.barriers() == []
        await desk.fill(desk.page.get_by_role("searchbox"), "containers describe")
        await expect(desk.page.locator(".operations li")).to_have_count(1)
        await desk.press(desk.page.get_by_role("link", name="/v1/containers/describe"))
        await expect(desk.page.get_by_role("region", name="Parameters").first).to_contain_text(
            "container_id"
        )
        assert await desk.barriers() == []
        assert await desk.overflow() == 0
        await desk.fill(desk.page.get_by_label("Token"), installation.token)
        await desk.fill(desk.page.locator("[data-name=container_id]"), "tower")
        await desk.press(desk.page.get_by_role("button", name="Send"))
        answer = desk.page.locator("#try-answer")
        await expect(answer).to_contain_text("200")
        await expect(answer).to_contain_text('"name": "Tower"')
        await expect(desk.page.locator("#try-curl")).to_contain_text("describe?container_id=tower")


async def test_a_wrong_token_and_a_wrong_body_show_the_answer_of_the_api(
    browser: Browser, installation: Installation, contents: None
) -> None:
    async with signed_in(browser, installation.url, installation.token) as desk:
        await desk.go("/console/api?q=POST+/v1/containers/search")
        await desk.page.locator(".operations a").first.click()
        await desk.page.get_by_label("Token").fill("lct_wrong")
        await desk.page.get_by_role("button", name="Send").click()
        await expect(desk.page.locator("#try-answer .bad")).to_contain_text("401")
        await desk.page.get_by_label("Token").fill(installation.token)
        await desk.page.get_by_role("textbox", name="Body").fill("{not json")
        await desk.page.get_by_role("button", name="Send").click()
        await expect(desk.page.locator("#try-answer .bad")).to_contain_text("400")
        await expect(desk.page.locator("#try-answer pre")).to_contain_text("INVALID")
        desk.complaints.clear()  # the browser reports every answer of 400 and more


async def test_errors_keep_the_navigation(browser: Browser, installation: Installation) -> None:
    async with signed_in(browser, installation.url, installation.token) as desk:
        for path in ("/console/api/never", "/console/nowhere", "/console/containers/never"):
            await desk.go(path)
            await expect(desk.page.get_by_role("alert")).to_be_visible()
            await expect(desk.page.get_by_role("link", name="Search", exact=True)).to_be_visible()
            assert await desk.barriers() == []
        desk.complaints.clear()


async def test_every_operation_has_a_page_that_fits_a_phone(
    browser: Browser, installation: Installation
) -> None:
    async with signed_in(browser, installation.url, installation.token, viewport=PHONE) as desk:
        await desk.go("/console/api")
        links = desk.page.locator(".operations a")
        paths = await links.evaluate_all("found => found.map(one => one.getAttribute('href'))")
        assert len(paths) > 60
        for path in paths[::9]:
            await desk.go(path)
            assert await desk.overflow() == 0, path
        for path in paths:
            answer = await desk.page.request.get(f"{desk.url}{path}")
            assert answer.status == 200, path
