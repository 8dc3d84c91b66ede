"""Adding in a real browser: by drop, by the dialogs, by pasting; with a cut connection and a gateway that is killed."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Dialog, Locator, Page, Request, expect

from latent_core.domain.errors import NotFound
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import Manifest
from tests.conftest import DIMS
from tests.support.harness.browser import (
    CHROMIUM,
    WAIT_MS,
    WAYS,
    WHY_NOT,
    BrowserWindow,
    Way,
    chromium,
    signed_in,
    window,
)
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.faulty_link import FaultyLink, LinkState
from tests.support.servers.web_site import WebSite

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
    pytest.mark.timeout(180),
]

pymupdf: Any = importlib.import_module("pymupdf")  # it is not typed
BOX: Final = "harbour"
ADD: Final = f"/console/containers/{BOX}/add"
MEGABYTE: Final = 1024 * 1024
LARGE: Final = 9 * MEGABYTE
INGEST_MS: Final = 2 * WAIT_MS
STORY: Final = (
    "The lamp on the hill was lit every night by a keeper who had never seen the sea. " * 6
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[WebSite]:
    async with WebSite() as one:
        one.page("/lamp", f"<html><title>Lamp</title><body><p>{STORY}</p></body></html>")
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    install_root: Path, embedding_server: EmbeddingServer, site: WebSite
) -> AsyncIterator[Installation]:
    settings = {
        "LLC_EMBED_BASE_URL": embedding_server.base_url,
        "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        "LLC_FETCH_ALLOW": site.origin,
        "LLC_MAX_UPLOAD_BYTES": str(LARGE + MEGABYTE),
        "LLC_LEASE_SECONDS": "5",
    }
    one = Installation(install_root / "adding", settings)
    await one.start()
    try:
        async with one.client() as client:
            await client.create(Manifest(id=BOX, name="Harbour", embedder="openai/test", dims=DIMS))
        yield one
    finally:
        await one.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def desk(browser: Browser, installation: Installation) -> AsyncIterator[BrowserWindow]:
    async with signed_in(browser, installation.url, installation.token) as opened:
        yield opened


def batch(page: Page) -> Locator:
    return page.get_by_role("article").first


async def drop(page: Page, *paths: Path) -> None:
    """As a person drops files of their desktop: the browser reads them and their folders by itself."""
    session = await page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        if kind == "drop":
            await expect(page.get_by_text(re.compile("^Drop to add to"))).to_be_visible()
        event = {"type": kind, "x": 200, "y": 200, "data": data}
        await session.send("Input.dispatchDragEvent", event)
    await session.detach()


async def documents(installation: Installation) -> dict[str, Any]:
    async with installation.client() as client:
        return {one.source_uri: one async for one in client.documents(BOX)}


async def test_fifty_files_of_a_dropped_folder_are_added_with_their_paths(
    desk: BrowserWindow, installation: Installation, tmp_path: Path
) -> None:
    folder = tmp_path / "log book"
    for place in ("1887", "1888/winter", "node_modules/x", "drafts"):
        (folder / place).mkdir(parents=True)
    for number in range(50):
        place = "1887" if number % 2 else "1888/winter"
        text = f"# Day {number}\n\nThe lamp was lit {number} minutes past six."
        (folder / place / f"day {number}.md").write_text(text, encoding="utf-8")
    (folder / "node_modules/x/readme.md").write_text("not ours", encoding="utf-8")
    (folder / "drafts/idea.md").write_text("not yet", encoding="utf-8")
    (folder / ".latentignore").write_text("drafts/\n", encoding="utf-8")
    (folder / ".env").write_text("KEY=1", encoding="utf-8")
    await desk.go(f"/console/containers/{BOX}")
    await drop(desk.page, folder)
    shown = batch(desk.page)
    await expect(shown).to_contain_text("50 files added", timeout=INGEST_MS)
    await expect(shown).to_contain_text("All of them are searchable.")
    await expect(shown).to_contain_text("3 files skipped")
    await expect(shown).to_contain_text("named in .latentignore")
    assert await desk.barriers() == []
    found = {uri for uri in await documents(installation) if uri.startswith("file:///log book/")}
    assert len(found) == 50
    assert {"file:///log book/1888/winter/day 0.md", "file:///log book/1887/day 1.md"} <= found
    await desk.press(shown.get_by_role("button", name="Close"))
    await expect(desk.page.get_by_role("article")).to_have_count(0)
    async with installation.client() as client:
        group = await anext(client.job_groups(container_id=BOX))
        kinds = [job.kind async for job in client.jobs(group_id=group.group_id)]
    assert kinds.count(JobKind.INGEST) == 50


@pytest.mark.parametrize("way", WAYS)
async def test_files_are_chosen_and_a_failed_one_says_why(
    browser: Browser, installation: Installation, tmp_path: Path, way: Way
) -> None:
    good, torn = tmp_path / f"good-{way}.md", tmp_path / f"torn-{way}.pdf"
    good.write_text("# Good\n\nA whole page.", encoding="utf-8")
    torn.write_bytes(b"%PDF-1.7 torn")
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go(ADD)
        keyboard = way is Way.KEYBOARD
        opener = desk.page.get_by_label("Choose files")
        async with desk.page.expect_file_chooser() as choosing:
            await desk.press(opener if keyboard else desk.page.get_by_text("Choose files"))
        await (await choosing.value).set_files([good, torn])
        shown = batch(desk.page)
        await expect(shown).to_contain_text("1 file added", timeout=INGEST_MS)
        await expect(shown).to_contain_text("1 file failed")
        await expect(shown.locator(".batch-failed li")).to_contain_text(torn.name)
        await expect(shown.locator(".batch-failed li span")).to_contain_text("PDF")
        assert await desk.barriers() == []
        assert await desk.overflow() == 0
        uris = await documents(installation)
        assert f"file:///{good.name}" in uris


@pytest.mark.parametrize("way", WAYS)
async def test_a_text_and_an_address_are_added_by_their_forms(
    browser: Browser, installation: Installation, site: WebSite, way: Way
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        page = desk.page
        await desk.go(ADD)
        await desk.fill(page.get_by_label("Text, in Markdown or plain"), f"The horn of {way}.")
        await desk.fill(page.get_by_label("Title"), f"Horn by {way}")
        await desk.choose(page.get_by_label("Keep it as"), "document")
        await desk.press(page.get_by_role("button", name="Add the text"))
        await expect(page.get_by_role("status").first).to_contain_text("The text was added.")
        outcome = page.get_by_role("region", name="What you added")
        await expect(outcome).to_contain_text("done", timeout=INGEST_MS)
        await expect(outcome.get_by_role("link", name="Open the document")).to_be_visible()
        await desk.fill(page.get_by_label("Address"), site.url("/lamp"))
        await desk.press(page.get_by_role("button", name="Add the page"))
        await expect(page.get_by_role("region", name="What you added")).to_contain_text(
            "done", timeout=INGEST_MS
        )
        assert await desk.barriers() == []
        assert await desk.overflow() == 0
    uris = await documents(installation)
    assert f"file:///Horn by {way}.md" in uris
    assert site.url("/lamp") in uris


async def paste(page: Page, text: str) -> None:
    """Outside of any field."""
    script = """text => {
        const data = new DataTransfer();
        data.setData("text/plain", text);
        document.body.dispatchEvent(
            new ClipboardEvent("paste", { clipboardData: data, bubbles: true })
        );
    }"""
    await page.evaluate(script, text)


async def test_pasting_on_any_page_of_a_container_fills_the_form_that_fits(
    desk: BrowserWindow,
) -> None:
    page = desk.page
    await desk.go(f"/console/containers/{BOX}")
    await paste(page, "https://example.org/harbour")
    await page.wait_for_url(f"**{ADD}")
    await expect(page.get_by_label("Address")).to_have_value("https://example.org/harbour")
    await expect(page.get_by_label("Address")).to_be_focused()
    await paste(page, "Two lines\nof text")
    await expect(page.get_by_label("Text, in Markdown or plain")).to_have_value(
        "Two lines\nof text"
    )


def large_file(folder: Path, name: str, size: int = LARGE) -> tuple[Path, str]:
    """A PDF of one page and ``size`` random bytes that nobody reads, and its hash."""
    pages = pymupdf.open()
    pages.new_page().insert_text((72, 72), f"The page of {name}.")
    pages.embfile_add("ballast", Random(name).randbytes(size))
    data = bytes(pages.tobytes())
    (folder / name).write_bytes(data)
    return folder / name, hashlib.sha256(data).hexdigest()


def cut_after_the_first_bytes(page: Page, link: FaultyLink) -> None:
    """The connection breaks once the server has confirmed the beginning of a file."""

    def heard(request: Request) -> None:
        if request.method == "POST" and "/resumable-uploads" in request.url:
            link.become(LinkState.KILLED)

    page.on("requestfinished", heard)


def offsets(page: Page) -> list[int]:
    """Fills with the offsets of the requests that the page sends."""
    sent: list[int] = []

    def heard(request: Request) -> None:
        if request.method in ("POST", "PATCH") and "/resumable-uploads" in request.url:
            sent.append(int(request.headers["upload-offset"]))

    page.on("request", heard)
    return sent


async def has_content(installation: Installation, name: str, sha256: str) -> None:
    """The document has the very bytes of the file."""
    doc_id = document_id(BOX, f"file:///{name}")

    async def there() -> bool:
        async with installation.client() as client:
            with suppress(NotFound):
                return (await client.original(doc_id)).sha256 == sha256
        return False

    await eventually(there, seconds=60, what=name)


async def test_a_file_goes_on_after_its_connection_was_cut_in_the_middle(
    browser: Browser, installation: Installation, tmp_path: Path
) -> None:
    file, sha256 = large_file(tmp_path, "cut.pdf")
    address = urlsplit(installation.url)
    async with FaultyLink(address.hostname or "", address.port or 0) as link:
        url = f"http://127.0.0.1:{link.port}"
        async with signed_in(browser, url, installation.token) as desk:
            await desk.go(ADD)
            sent = offsets(desk.page)
            cut_after_the_first_bytes(desk.page, link)
            await drop(desk.page, file)
            shown = batch(desk.page)
            await expect(shown).to_contain_text("what was sent is kept")
            assert await desk.barriers() == []
            link.become(LinkState.OPEN)
            await expect(shown).to_contain_text("1 file added", timeout=2 * INGEST_MS)
            await expect(shown).not_to_contain_text("what was sent is kept")
            assert sent.count(0) == 1, "the first bytes are not sent again"
            desk.complaints.clear()  # the browser tells of each lost connection
    await has_content(installation, "cut.pdf", sha256)


async def test_a_file_goes_on_after_the_gateway_was_killed_and_started(
    browser: Browser, installation: Installation, tmp_path: Path
) -> None:
    file, sha256 = large_file(tmp_path, "killed.pdf")
    address = urlsplit(installation.url)
    async with FaultyLink(address.hostname or "", address.port or 0) as link:
        url = f"http://127.0.0.1:{link.port}"
        async with signed_in(browser, url, installation.token) as desk:
            await desk.go(ADD)
            sent = offsets(desk.page)
            cut_after_the_first_bytes(desk.page, link)
            await drop(desk.page, file)
            shown = batch(desk.page)
            await expect(shown).to_contain_text("what was sent is kept")
            await installation.kill()
            await installation.start()
            again = urlsplit(installation.url)
            link.lead_to(again.hostname or "", again.port or 0)
            link.become(LinkState.OPEN)
            await expect(shown).to_contain_text("1 file added", timeout=2 * INGEST_MS)
            assert sent.count(0) == 1
            desk.complaints.clear()
    await has_content(installation, "killed.pdf", sha256)


async def test_a_file_over_the_limit_says_so_and_the_others_are_sent(
    desk: BrowserWindow, installation: Installation, tmp_path: Path
) -> None:
    large, _ = large_file(tmp_path, "too large.pdf", LARGE + MEGABYTE)
    small = tmp_path / "small.md"
    small.write_text("# Small", encoding="utf-8")
    await desk.go(ADD)
    await drop(desk.page, large, small)
    shown = batch(desk.page)
    await expect(shown.locator(".batch-failed li")).to_contain_text("too large.pdf")
    await expect(shown.locator(".batch-failed li span")).to_contain_text("LLC_MAX_UPLOAD_BYTES")
    await expect(shown).to_contain_text("1 file added", timeout=INGEST_MS)
    desk.complaints.clear()  # the browser tells of every answer of 413


async def test_leaving_while_files_are_sent_needs_a_confirmation(
    browser: Browser, installation: Installation, tmp_path: Path
) -> None:
    file, _ = large_file(tmp_path, "left.pdf", MEGABYTE)
    address = urlsplit(installation.url)
    async with FaultyLink(address.hostname or "", address.port or 0) as link:
        url = f"http://127.0.0.1:{link.port}"
        async with signed_in(browser, url, installation.token) as desk:
            await desk.go(ADD)
            link.become(LinkState.FROZEN)
            await drop(desk.page, file)
            await expect(batch(desk.page)).to_contain_text("Leaving this page stops")
            async with desk.page.expect_event("dialog") as asking:
                await desk.page.close(run_before_unload=True)
            dialog: Dialog = await asking.value
            assert dialog.type == "beforeunload"
            await dialog.dismiss()
            await desk.press(batch(desk.page).get_by_role("button", name="Stop"))
            link.become(LinkState.KILLED)
            await expect(batch(desk.page)).to_contain_text("1 file failed", timeout=INGEST_MS)
            desk.complaints.clear()


async def test_without_scripts_the_forms_add_the_same(
    browser: Browser, installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "plain.md"
    file.write_text("# Plain", encoding="utf-8")
    async with window(browser, installation.url, java_script_enabled=False) as plain:
        await plain.sign_in(installation.token)
        await plain.go(ADD)
        assert await plain.page.get_by_text("Choose a folder").is_visible() is False
        await plain.page.locator("#files").set_input_files([file])
        await plain.page.get_by_role("button", name="Send").click()
        await expect(plain.page.get_by_role("main")).to_contain_text("plain.md")
        await plain.go(ADD)
        await plain.page.get_by_label("Text, in Markdown or plain").fill("A plain note.")
        await plain.page.get_by_role("button", name="Add the text").click()
        await expect(plain.page.get_by_role("main")).to_contain_text("The text was added.")
    assert "file:///plain.md" in await documents(installation)
