"""The first steps on one page, in a real browser, three ways; and who may take them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hypothesis import given, strategies as st
from playwright.async_api import Browser, FilePayload, expect

from latent_core.domain.ids import CONTAINER_SLUG
from latent_core.domain.token import Scope
from latent_gateway.console.entry.start import id_of
from tests.support.harness.browser import CHROMIUM, WAYS, WHY_NOT, Way, chromium, signed_in
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
with_browser = pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@given(st.text(max_size=300))
async def test_every_name_gives_a_valid_id(name: str) -> None:
    assert CONTAINER_SLUG.fullmatch(id_of(name))


@with_browser
@pytest.mark.parametrize("way", WAYS)
async def test_four_steps_lead_from_nothing_to_a_found_file_and_the_way_to_connect_an_agent(
    browser: Browser, installation: Installation, way: Way
) -> None:
    note: FilePayload = {
        "name": "fog.md",
        "mimeType": "text/markdown",
        "buffer": b"# Fog\n\nThe horn sounds every thirty seconds.",
    }
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        page = desk.page
        await desk.go("/console/start")
        assert await desk.barriers() == []
        await desk.fill(page.get_by_label("Name"), f"Keeper's log {way.value}")
        await desk.press(page.get_by_role("button", name="Create"))
        await page.wait_for_url(f"**/console/start?container=keeper-s-log-{way.value}")
        await expect(page.get_by_text("Nothing yet.")).to_be_visible()
        assert await desk.barriers() == []
        assert await desk.overflow() == 0
        await page.locator("#files").set_input_files(note)
        await expect(page.get_by_text("1 chunk, searchable now")).to_be_visible()
        step = page.locator("[aria-labelledby=step-2]")
        mark = await step.evaluate("step => getComputedStyle(step, '::before').content")
        assert mark == '"✓"'
        connect = page.get_by_role("listitem").filter(has=page.get_by_text("Connect an agent"))
        await expect(connect).to_contain_text(f"--container keeper-s-log-{way.value}")
        await desk.fill(page.get_by_role("searchbox"), "horn")
        await page.keyboard.press("Enter")
        await page.wait_for_url(re.compile(r"/console/search\?c=keeper-s-log"))
        await expect(page.locator(".hit").first).to_contain_text("every thirty seconds")


@with_browser
async def test_a_taken_name_is_an_error_at_its_field_and_what_was_typed_stays(
    browser: Browser, installation: Installation
) -> None:
    async with signed_in(browser, installation.url, installation.token) as desk:
        for _ in range(2):
            await desk.go("/console/start")
            await desk.page.get_by_label("Name").fill("Twice")
            await desk.page.get_by_label("Papers").check()
            await desk.page.get_by_role("button", name="Create").click()
        field = desk.page.get_by_label("Name")
        await expect(field).to_have_attribute("aria-invalid", "true")
        await expect(field).to_have_value("Twice")
        await expect(desk.page.get_by_label("Papers")).to_be_checked()
        await expect(desk.page.locator("#error-name")).to_contain_text("twice")
        desk.complaints.clear()  # the browser reports the answer of 422


@with_browser
async def test_a_reader_without_the_right_to_create_sees_what_to_do_instead(
    browser: Browser, installation: Installation
) -> None:
    async with installation.client() as client:
        made = await client.create_token("agent:first", name="reads", scopes=[Scope.READ])
    async with signed_in(browser, installation.url, made.secret) as desk:
        await desk.go("/console/start")
        await expect(desk.page.get_by_role("main")).to_contain_text("may not create containers")
        await expect(desk.page.get_by_role("button", name="Create")).to_have_count(0)
