"""Backups, exports, the doctor, models, refresh and processing in a real browser: by mouse, by keyboard, on a phone."""

from __future__ import annotations

import importlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from latent_client import AsyncClient
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Manifest
from tests.http.test_http_surface import ingest
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

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]
pymupdf: Any = importlib.import_module("pymupdf")  # it is not typed


def book() -> bytes:
    pages = pymupdf.open()
    for number in (1, 2):
        pages.new_page().insert_text((72, 72), f"Chapter {number} tells of the whale.")
    return bytes(pages.tobytes())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def contents(installation: Installation) -> None:
    async with installation.client() as client:
        await client.create(Manifest(id="light", name="Light"))
        await ingest(client, "light", "whales.pdf", book())


async def checked(desk: BrowserWindow) -> None:
    """No barrier, nothing wider than the window."""
    assert await desk.barriers() == []
    assert await desk.overflow() == 0


def newest_backup(desk: BrowserWindow) -> Locator:
    lines = desk.page.get_by_role("list", name="Backups, newest first").get_by_role("listitem")
    return lines.first


@pytest.mark.parametrize("way", WAYS)
async def test_a_backup_is_made_and_verified(
    way: Way, browser: Browser, installation: Installation, contents: None
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/operations/backups")
        await desk.press(desk.page.get_by_role("button", name="Create backup"))
        await expect(desk.page.get_by_text("is being written by job")).to_be_visible()
        await desk.press(newest_backup(desk).get_by_role("button", name="Verify"))
        await expect(newest_backup(desk)).to_contain_text("verified just now")
        await checked(desk)


@pytest.mark.parametrize("way", WAYS)
async def test_a_backup_is_restored_as_another_container_and_deleted(
    way: Way, browser: Browser, installation: Installation, client: AsyncClient, contents: None
) -> None:
    accepted = await client.backup("light")
    await client.wait([accepted.job_id], timeout_seconds=60)
    backup = max(one.id for one in await client.backups("light"))
    target = f"restored-{way.value}"
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/operations/backups?container=light")
        line = newest_backup(desk)
        await desk.press(line.get_by_text("Restore", exact=False).first)
        await desk.fill(line.get_by_label("As container"), target)
        await desk.press(line.get_by_role("button", name="Restore backup"))
        await desk.page.wait_for_url("**/console/jobs/*")
        restored = desk.page.url.rpartition("/")[2]
        (ended,) = await client.wait([restored], timeout_seconds=60)
        assert ended.state is JobState.DONE
        await desk.go("/console/operations/backups?container=light")
        await desk.press(line.get_by_text("Delete", exact=True))
        await desk.fill(line.get_by_label("to confirm"), str(backup))
        await desk.press(line.get_by_role("button", name="Delete backup"))
        await expect(desk.page.get_by_text(f"Backup {backup} was deleted.")).to_be_visible()
    assert target in {one.id for one in await client.containers()}
    assert backup not in {one.id for one in await client.backups("light")}


@pytest.mark.parametrize("way", WAYS)
async def test_a_container_is_exported_downloaded_and_imported_again(
    way: Way,
    browser: Browser,
    installation: Installation,
    client: AsyncClient,
    contents: None,
    tmp_path: Path,
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/operations/transfers")
        await desk.choose(desk.page.get_by_label("Container", exact=True), "light")
        # Without vectors on one way: an export that exists already would be sent at once.
        if way is not Way.MOUSE:
            await desk.press(
                desk.page.get_by_label("with vectors" if way is Way.PHONE else "with originals")
            )
        await desk.press(desk.page.get_by_role("button", name="Export", exact=True))
        download = desk.page.get_by_role("link", name="Download").first
        await expect(download).to_be_visible()
        await checked(desk)
        async with desk.page.expect_download() as coming:
            await desk.press(download)
        file = tmp_path / "light.latent.zst"
        await (await coming.value).save_as(file)
        target = f"imported-{way.value}"
        await desk.page.get_by_label("File of an export").set_input_files(file)
        await desk.fill(desk.page.get_by_label("As container"), target)
        await desk.press(desk.page.get_by_role("button", name="Import", exact=True))
        await desk.page.wait_for_url("**/console/jobs/*")
        await expect(desk.page.get_by_role("status").last).to_contain_text("done")
    assert target in {one.id for one in await client.containers()}


@pytest.mark.parametrize("way", WAYS)
async def test_the_doctor_runs_in_the_background_and_its_report_is_shown(
    way: Way, browser: Browser, installation: Installation, contents: None
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/operations/doctor")
        await desk.choose(desk.page.get_by_label("Compare", exact=True), "light")
        await desk.press(desk.page.get_by_role("button", name="Compare"))
        main = desk.page.get_by_role("main")
        await expect(main).to_contain_text("everything agrees")
        await expect(main).to_contain_text("light")
        await checked(desk)


@pytest.mark.parametrize("way", WAYS)
async def test_what_the_doctor_finds_is_repaired_after_a_confirmation(
    way: Way, browser: Browser, installation: Installation, contents: None
) -> None:
    async with await psycopg.AsyncConnection.connect(installation.dsn) as conn:
        for table in ("unmerged_postings", "postings"):
            await conn.execute(f"DELETE FROM {table} WHERE container_id = 'light'")  # type: ignore[arg-type]
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/operations/doctor")
        await desk.choose(desk.page.get_by_label("Compare", exact=True), "light")
        await desk.press(desk.page.get_by_role("button", name="Compare"))
        main = desk.page.get_by_role("main")
        await expect(main).to_contain_text("repair: rebuild")
        await checked(desk)
        await desk.press(main.get_by_text(re.compile("^Repair [0-9]+ difference")))
        await desk.press(main.get_by_role("button", name="Repair now"))
        await expect(main.get_by_role("region", name="Repairs")).to_contain_text("rebuild")
        await checked(desk)
        await desk.choose(desk.page.get_by_label("Compare", exact=True), "light")
        await desk.press(desk.page.get_by_role("button", name="Compare"))
        await expect(main).to_contain_text("everything agrees")


@pytest.mark.parametrize("way", WAYS)
async def test_a_model_is_tested_and_an_unknown_one_says_why_not(
    way: Way, browser: Browser, installation: Installation, contents: None
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/operations/models")
        await desk.fill(desk.page.get_by_label("Model", exact=True), "local")
        await desk.press(desk.page.get_by_role("button", name="Test"))
        main = desk.page.get_by_role("main")
        await expect(main).to_contain_text("384")
        await expect(main).to_contain_text("texts per second")
        await checked(desk)
        await desk.fill(desk.page.get_by_label("Model", exact=True), "nowhere/nothing")
        await desk.press(desk.page.get_by_role("button", name="Test"))
        await expect(main).to_contain_text("there is no provider 'nowhere'")


@pytest.mark.parametrize("way", WAYS)
async def test_a_refresh_is_planned_begun_and_rolled_back(
    way: Way, browser: Browser, installation: Installation, client: AsyncClient, contents: None
) -> None:
    container = f"refreshed-{way.value}"
    await client.create(Manifest(id=container, name="Refreshed"))
    job_id = await ingest(client, container, "lamp.md", b"The lamp is lit at dusk.")
    await client.wait([job_id], timeout_seconds=60)
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go(f"/console/containers/{container}")
        await desk.press(desk.page.get_by_role("link", name="Refresh"))
        await desk.press(desk.page.get_by_label("switch even if a gate fails"))
        await desk.press(desk.page.get_by_role("button", name="Plan"))
        await expect(desk.page.get_by_text("nothing has been changed")).to_be_visible()
        await expect(desk.page.get_by_role("main")).to_contain_text("1 document, 1 chunk")
        await checked(desk)
        await desk.press(desk.page.get_by_role("button", name="Start"))
        main = desk.page.get_by_role("main")
        await expect(main).to_contain_text("The refresh has begun")
        await expect(main).to_contain_text("is kept for a rollback")
        await desk.press(desk.page.get_by_text("Roll back", exact=True))
        await desk.press(desk.page.get_by_role("button", name="Roll back now"))
        await expect(main).to_contain_text("is searched with local")
        await checked(desk)


@pytest.mark.parametrize("way", WAYS)
async def test_chosen_pdfs_are_processed_and_their_progress_is_shown(
    way: Way, browser: Browser, installation: Installation, contents: None
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/containers/light/processing")
        main = desk.page.get_by_role("main")
        await expect(main).to_contain_text("2 of 2 pages are read and drawn")
        await checked(desk)
        await desk.press(desk.page.get_by_role("button", name="Process selected"))
        await expect(desk.page.get_by_role("alert")).to_contain_text("no document is chosen")
        await desk.go("/console/containers/light/processing")
        await desk.press(desk.page.get_by_role("checkbox", name="whales.pdf"))
        await expect(desk.page.get_by_text("1 chosen")).to_be_visible()
        await desk.press(desk.page.get_by_role("button", name="Process selected"))
        await expect(main).to_contain_text("1 document complete already.")
        desk.complaints.clear()  # of the refused form
