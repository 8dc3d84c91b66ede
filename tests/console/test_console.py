"""The console in a real browser: signing in, looking, adding, steering; with and without scripts."""

from __future__ import annotations

import importlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, Locator, Request, expect

from latent_client import AsyncClient
from latent_core.domain.job import JobKind, JobState
from latent_core.domain.manifest.model import Acl, Manifest, Roles
from latent_core.domain.token import Scope
from tests.conftest import DIMS
from tests.http.test_http_surface import ingest, settled
from tests.support.harness.browser import (
    CHROMIUM,
    PHONE,
    WAIT_MS,
    WHY_NOT,
    BrowserWindow,
    chromium,
    window,
)
from tests.support.harness.installation import Installation
from tests.support.servers.embedding_server import EmbeddingFault, EmbeddingServer

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]

LAMPS = """# The lamp

Trim the wick at dusk and wind the clockwork before lighting.

## Fog signal

The horn sounds every thirty seconds while the fog lasts.
"""
INJECTED = """# <script>window.pwned = 1</script> Tides

<img src="x" onerror="window.pwned = 2"> The tide <b onclick="window.pwned=3">table</b> hangs beside the door.

[a link](javascript:window.pwned=4) {{ 7 * 7 }} </p></main><script>window.pwned = 5</script>
"""
FIRST_PAGE_BYTES = 100_000
STALLS = "unembeddable"
pymupdf: Any = importlib.import_module("pymupdf")  # it is not typed


def book() -> bytes:
    """Three pages, of which the second speaks of whales."""
    pages = pymupdf.open()
    for number in (1, 2, 3):
        animal = "whale" if number == 2 else "gull"
        pages.new_page().insert_text((72, 72), f"Chapter {number} tells of the {animal}.")
    return bytes(pages.tobytes())


def text_file(name: str, content: bytes) -> FilePayload:
    return {"name": name, "mimeType": "text/plain", "buffer": content}


def manifest(container_id: str, name: str, **more: Any) -> Manifest:
    return Manifest(id=container_id, name=name, embedder="openai/test", dims=DIMS, **more)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def contents(installation: Installation) -> None:
    """Two containers: one with a text, a PDF and something nasty; one that holds little."""
    async with installation.client() as client:
        reader = Roles(owner=["local:you"], reader=["agent:guest"])
        await client.create(
            manifest("light", "Lighthouse", theme="Lamps and fog signals", acl=Acl(roles=reader))
        )
        await client.create(manifest("attic", "Attic"))
        await ingest(client, "light", "lamps.md", LAMPS.encode())
        await ingest(client, "light", "whales.pdf", book())
        await ingest(client, "light", "tides.md", INJECTED.encode())
        await ingest(client, "attic", "box.txt", b"An empty box.")
        await settled(client, "light")
        await settled(client, "attic")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def stranger(
    browser: Browser, installation: Installation, contents: None
) -> AsyncIterator[BrowserWindow]:
    """Somebody who has not signed in."""
    async with window(browser, installation.url) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def desk(stranger: BrowserWindow, installation: Installation) -> AsyncIterator[BrowserWindow]:
    """The owner, signed in. Whatever the test does, the browser's console stays silent."""
    await stranger.sign_in(installation.token)
    yield stranger
    assert stranger.complaints == []


def ingest_row(desk: BrowserWindow, name: str) -> Locator:
    """The line of the request that ingests a file."""
    rows = desk.page.get_by_role("listitem").filter(has_text=name)
    return rows.filter(has=desk.page.get_by_role("link", name="ingest"))


async def document_of(client: AsyncClient, container: str, name: str) -> str:
    async for document in client.documents(container, uri_prefix=f"file:///{name}"):
        return str(document.doc_id)
    raise AssertionError(f"{container} has no {name}")


async def test_a_person_signs_in_with_a_token_and_sees_what_the_containers_hold(
    stranger: BrowserWindow, installation: Installation
) -> None:
    await stranger.go("/console/search?q=horn")
    await expect(stranger.page).to_have_title(re.compile("Sign in"))
    await stranger.page.get_by_label("Token").fill(installation.token)
    await stranger.page.keyboard.press("Enter")
    await stranger.page.wait_for_url("**/console/search?q=horn")
    await stranger.page.get_by_role("link", name="Containers").click()
    card = stranger.page.get_by_role("listitem").filter(has_text="Lighthouse")
    await expect(card).to_contain_text("3")
    await expect(card).to_contain_text("ok last ingest")
    (cookie,) = await stranger.page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert installation.token not in str(await stranger.page.context.storage_state())
    assert stranger.complaints == []


async def test_a_wrong_token_shows_an_error_and_no_content(stranger: BrowserWindow) -> None:
    await stranger.go("/login")
    await stranger.page.get_by_label("Token").fill("lct_wrong")
    await stranger.page.get_by_role("button", name="Sign in").click()
    await expect(stranger.page.get_by_role("alert")).to_have_text("This token is not valid.")
    assert await stranger.page.context.cookies() == []


async def test_signing_out_ends_the_session(desk: BrowserWindow) -> None:
    await desk.page.get_by_role("button", name="Sign out").click()
    await expect(desk.page).to_have_title(re.compile("Sign in"))
    await desk.go("/console/jobs")
    await expect(desk.page).to_have_title(re.compile("Sign in"))


async def test_a_revoked_token_ends_the_session_with_the_next_request(
    stranger: BrowserWindow, http: httpx.AsyncClient
) -> None:
    made = (await http.post("/v1/tokens", json={"principal": "agent:guest"})).json()
    await stranger.sign_in(made["secret"])
    await expect(stranger.page.get_by_role("main")).to_contain_text("Lighthouse")
    revoked = await http.delete(f"/v1/tokens/{made['token']['id']}")
    assert revoked.is_success
    await stranger.go("/console/containers/light")
    await expect(stranger.page).to_have_title(re.compile("Sign in"))


async def test_a_search_answers_in_place_with_marks_pictures_and_reasons(
    desk: BrowserWindow,
) -> None:
    await desk.go("/console/search")
    documents: list[Request] = []
    desk.page.on(
        "request", lambda r: documents.append(r) if r.resource_type == "document" else None
    )
    await desk.page.get_by_role("searchbox").fill("fog horn")
    await desk.page.keyboard.press("Enter")
    hit = desk.page.locator(".hit").filter(has_text="Fog signal")
    await expect(hit.locator("mark").filter(has_text=re.compile("^horn$")).first).to_be_visible()
    await expect(hit).to_contain_text("meaning, rank")
    await expect(hit.locator(".score")).to_have_text(re.compile(r"^\d+ %$"))
    await expect(desk.page.get_by_role("status")).to_contain_text(re.compile(r"in \d+ ms"))
    assert documents == []
    assert re.search(r"/console/search\?q=fog(\+|%20)horn$", desk.page.url)
    shown = await desk.images_shown()
    assert shown
    assert all(shown)
    await desk.page.go_back()
    await expect(desk.page.locator(".hit")).to_have_count(0)


async def test_a_search_is_narrowed_by_container_type_and_word(desk: BrowserWindow) -> None:
    await desk.go("/console/search")
    await desk.page.get_by_label("Lighthouse").check()
    await desk.page.get_by_text("Mode and filters").click()
    await desk.page.get_by_label("Mode", exact=True).select_option("lexical")
    await desk.page.get_by_label("pdf", exact=True).check()
    await desk.page.get_by_label("Must contain").fill("whale")
    await desk.page.get_by_role("searchbox").fill("chapter")
    await desk.page.keyboard.press("Enter")
    await expect(desk.page.locator(".hit")).to_have_count(1)
    await expect(desk.page.locator(".hit")).to_contain_text("page 2")
    await expect(desk.page.locator(".hit")).to_contain_text("exact text “whale”")


async def test_a_question_that_cannot_be_answered_says_what_to_do(desk: BrowserWindow) -> None:
    await desk.go("/console/search?q=lamp&since=yesterday")
    await expect(desk.page.get_by_role("alert")).to_contain_text("filters.modified")
    desk.complaints.clear()  # the browser tells of every answer of 400
    await desk.go("/console/search?q=lamp&c=nowhere")
    await expect(desk.page.get_by_role("alert")).to_contain_text("'nowhere' does not exist")
    desk.complaints.clear()


async def test_a_hit_links_to_its_page_with_text_and_to_its_source(
    desk: BrowserWindow,
) -> None:
    await desk.go("/console/search?q=whale&mode=lexical")
    await desk.page.locator(".hit h2 a").first.click()
    page = desk.page.get_by_role("region", name="Page 2", exact=True)
    await expect(page).to_contain_text("Chapter 2 tells of the whale")
    await expect(desk.page.locator(".chunks .chosen")).to_contain_text("whale")
    assert all(await desk.images_shown())
    lineage = desk.page.get_by_role("region", name="Source and lineage")
    await expect(lineage).to_contain_text("file:///whales.pdf")
    await expect(lineage).to_contain_text("openai/test")
    await desk.page.get_by_role("link", name="Next", exact=True).click()
    await expect(desk.page.get_by_role("region", name="Page 3", exact=True)).to_contain_text("gull")


async def test_what_stands_in_a_document_is_shown_and_never_run(
    desk: BrowserWindow, client: AsyncClient
) -> None:
    tides = await document_of(client, "light", "tides.md")
    for path in (
        "/console/search?q=tide+table&explain=1",
        f"/console/documents/{tides}",
        "/console/containers/light",
        "/console/search?q=%3Cscript%3Ewindow.pwned%3D6%3C/script%3E",
    ):
        await desk.go(path)
        assert await desk.page.evaluate("window.pwned") is None, path
        assert await desk.page.locator("main [onerror], main [onclick], main script").count() == 0
        assert await desk.page.locator("a[href^='javascript:']").count() == 0
    await desk.go(f"/console/documents/{tides}")
    await expect(desk.page.locator(".chunks")).to_contain_text("{{ 7 * 7 }}")


async def test_jobs_are_followed_cancelled_and_tried_again_without_reloading(
    desk: BrowserWindow, client: AsyncClient, embedding_server: EmbeddingServer, tmp_path: Path
) -> None:
    embedding_server.misbehave(EmbeddingFault.RATE_LIMITED, times=500, only_with=STALLS)
    await desk.go("/console/jobs?container=attic")
    stalled = tmp_path / "stalled.md"
    stalled.write_text(f"This is {STALLS} for now.", encoding="utf-8")
    upload = await client.upload("attic", stalled)
    added = await client.add("attic", file_ref=upload.file_ref)
    row = ingest_row(desk, "stalled.md")
    await expect(row).to_contain_text(re.compile("queued|running"))
    await row.get_by_role("link").first.click()
    await desk.page.get_by_role("button", name="Cancel").click()
    state = desk.page.get_by_role("status")
    await expect(state).to_contain_text("cancelled", timeout=2 * WAIT_MS)
    embedding_server.misbehave(EmbeddingFault.RATE_LIMITED, only_with="what nobody writes")
    await desk.page.get_by_role("button", name="Try again").click()
    await expect(state).to_contain_text("done", timeout=2 * WAIT_MS)
    assert (await client.job(added.job_id)).state is JobState.DONE


async def test_a_failed_job_tells_its_cause_and_its_container_shows_it(
    desk: BrowserWindow, client: AsyncClient, tmp_path: Path
) -> None:
    await client.create(manifest("broken", "Broken"))
    file = tmp_path / "torn.pdf"
    file.write_bytes(b"%PDF-1.7 torn")
    upload = await client.upload("broken", file)
    added = await client.add("broken", file_ref=upload.file_ref)
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.cause is not None
    await desk.go("/console/containers/broken")
    await expect(desk.page.get_by_role("main")).to_contain_text(job.cause.message)
    await desk.page.get_by_role("link", name="Jobs of this container").click()
    await expect(desk.page.get_by_role("main")).to_contain_text(job.cause.message)
    await desk.go(f"/console/jobs/{job.job_id}")
    await expect(desk.page.get_by_role("main")).to_contain_text(job.cause.message)


async def test_without_scripts_everything_is_read_and_files_are_sent(
    browser: Browser, installation: Installation, client: AsyncClient, contents: None
) -> None:
    async with window(browser, installation.url, java_script_enabled=False) as plain:
        await plain.sign_in(installation.token)
        await plain.page.get_by_role("searchbox").fill("fog horn")
        await plain.page.get_by_role("button", name="Search").click()
        await expect(plain.page.locator(".hit mark").first).to_be_visible()
        await plain.page.locator(".hit h2 a").first.click()
        await expect(plain.page.locator(".chunks .chosen")).to_contain_text("horn")
        await plain.go("/console/containers/attic/add")
        await plain.page.locator("#files").set_input_files(
            text_file("plain.txt", b"Sent by a plain form.")
        )
        await plain.page.get_by_role("button", name="Send").click()
        await plain.page.wait_for_url("**/console/jobs?container=attic")
        await expect(plain.page.get_by_role("main")).to_contain_text("plain.txt")
        assert plain.complaints == []
    jobs = [job async for job in client.jobs(container_id="attic")]
    (sent,) = (j for j in jobs if j.source_uri == "file:///plain.txt" and j.kind is JobKind.INGEST)
    (job,) = await client.wait([sent.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE


async def test_everything_is_reached_with_the_keyboard_alone(
    stranger: BrowserWindow, installation: Installation
) -> None:
    page = stranger.page
    await stranger.go("/login")
    await expect(page.get_by_label("Token")).to_be_focused()
    await page.keyboard.type(installation.token)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{stranger.url}/")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("/")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await page.keyboard.type("fog horn")
    await page.keyboard.press("Enter")
    first = page.locator(".hit h2 a").first
    await expect(first).to_be_visible()
    for _ in range(40):
        await page.keyboard.press("Tab")
        if await first.evaluate("element => element === document.activeElement"):
            break
    await expect(first).to_be_focused()
    outline = await first.evaluate("element => getComputedStyle(element).outlineStyle")
    assert outline == "solid"
    await page.keyboard.press("Enter")
    await expect(page.locator(".chunks .chosen")).to_be_visible()
    assert stranger.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_is_open_to_everybody_in_light_and_dark_and_fits_a_phone(
    scheme: str,
    browser: Browser,
    installation: Installation,
    client: AsyncClient,
    contents: None,
) -> None:
    whales = await document_of(client, "light", "whales.pdf")
    job = await anext(client.jobs())
    async with window(browser, installation.url, color_scheme=scheme, viewport=PHONE) as phone:
        await phone.go("/login")
        assert await phone.barriers() == []
        await phone.sign_in(installation.token)
        for path in (
            "/",
            "/console/search",
            "/console/search?q=chapter+fog+horn&explain=1&type=pdf&type=markdown",
            "/console/containers/light",
            f"/console/documents/{whales}?page=2",
            "/console/jobs",
            f"/console/jobs/{job.job_id}",
        ):
            await phone.go(path)
            assert await phone.overflow() <= 0, path
            assert await phone.barriers() == [], path
        background = await phone.page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness = sum(int(part) for part in re.findall(r"\d+", background)[:3])
        assert brightness < 128 if scheme == "dark" else brightness > 640
        assert phone.complaints == []


async def test_the_first_page_is_small(desk: BrowserWindow) -> None:
    """As sent without compression, script and style included."""
    front = await (await desk.page.request.get(f"{desk.url}/")).text()
    assets = set(re.findall(r'(?:src|href)="(/console/static/[^"]+)"', front))
    assert len(assets) >= 3
    sizes = [len(front.encode())]
    for asset in assets:
        answer = await desk.page.request.get(f"{desk.url}{asset}")
        sizes.append(len(await answer.body()))
    assert sum(sizes) < FIRST_PAGE_BYTES


async def test_pages_may_load_and_be_framed_by_nothing_foreign(desk: BrowserWindow) -> None:
    answer = await desk.page.request.get(f"{desk.url}/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"


async def test_a_change_from_another_origin_is_refused(
    desk: BrowserWindow, client: AsyncClient
) -> None:
    job = await anext(client.jobs())
    address = f"{desk.url}/console/jobs/{job.job_id}/cancel"
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {}):
        answer = await desk.page.request.post(address, headers=headers, max_redirects=0)
        assert answer.status == 403, headers
        assert "does not come from a page of this console" in await answer.text()


async def test_a_reader_sees_no_more_than_may_be_read_and_nothing_to_change(
    stranger: BrowserWindow, http: httpx.AsyncClient, client: AsyncClient
) -> None:
    made = (
        await http.post("/v1/tokens", json={"principal": "agent:guest", "name": "console"})
    ).json()
    await stranger.sign_in(made["secret"])
    main = stranger.page.get_by_role("main")
    await expect(main).to_contain_text("Lighthouse")
    await expect(main).not_to_contain_text("Attic")
    await stranger.go("/console/containers/light")
    await expect(main).not_to_contain_text("Send")
    await stranger.go("/console/jobs")
    await expect(stranger.page.get_by_role("button", name="Cancel")).to_have_count(0)
    box = await document_of(client, "attic", "box.txt")
    summary = []
    for path in (
        "/console/containers/attic",
        "/console/containers/never",
        f"/console/documents/{box}",
        f"/console/documents/{box[:-4]}0000",
        "/console/search?q=box&c=attic",
    ):
        answer = await stranger.page.request.get(f"{stranger.url}{path}")
        assert answer.status == 404, path
        text = await answer.text()
        assert "An empty box" not in text
        summary.append(re.sub(r"attic|never|[0-9a-f-]{36}", "X", text))
    assert summary[0] == summary[1]
    assert summary[2] == summary[3]


async def test_a_note_shows_who_wrote_it_with_which_token(
    desk: BrowserWindow, installation: Installation, client: AsyncClient
) -> None:
    made = await client.create_token(
        "agent:scribe", name="laptop", scopes=[Scope.READ, Scope.WRITE], containers=["attic"]
    )
    async with installation.client(made.secret) as scribe:
        note = await scribe.add("attic", text="The frame is oak.", title="Frame")
        await scribe.wait([note.job_id], timeout_seconds=60)
    await desk.go(f"/console/documents/{note.doc_id}")
    shown = await desk.page.locator("main").inner_text()
    assert "agent:scribe" in shown
    assert "token laptop" in shown
    assert "note of an agent" in shown
