"""Documents in the console, in a real browser: found, changed in bulk, read with the passage boxed; nothing of them runs."""

from __future__ import annotations

import io
import zipfile
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Request, expect

from latent_client import AsyncClient
from latent_core.domain.manifest.model import Acl, Roles
from latent_core.domain.token import Scope
from tests.http.test_http_surface import add, manifest
from tests.http.test_page_boxes import report
from tests.support.harness.browser import CHROMIUM, WAYS, WHY_NOT, Way, chromium, signed_in
from tests.support.harness.installation import Installation

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]
SHARED_STACK = True

DESKTOP = "papers"
READER = "agent:papers-reader"
HOSTILE = """# <script>window.pwned = 1</script>

<img src="https://example.org/x.png" onerror="window.pwned = 2"> ![lamp](https://example.org/y.png)
[run](javascript:window.pwned=3) [data](data:text/html,x) [fine](https://example.org/lamp) <b onclick="x">bold</b>

| a | <i>b</i> |
|---|---:|
| {{ 7 * 7 }} | <svg onload="window.pwned=4"> |

```html
<script>window.pwned = 5</script>
```
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ids(installation: Installation) -> dict[str, UUID]:
    async with installation.client() as client:
        acl = Acl(roles=Roles(owner=["local:you"], reader=[READER]))
        await client.create(manifest(DESKTOP, acl=acl))
        files = {
            "annual.pdf": report(),
            "hostile.md": HOSTILE.encode(),
            "lamp.py": b"def lamp():\n    return 'lit'  # at dusk\n",
            "torn.pdf": b"%PDF-1.7 torn",
        }
        added = [await add(client, DESKTOP, name, data) for name, data in files.items()]
        await client.wait([one.job_id for one in added], timeout_seconds=110)
        return {one.source_uri[8:]: one.doc_id async for one in client.documents(DESKTOP)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest.mark.parametrize("way", WAYS)
async def test_a_bad_document_is_found_first_selected_and_deleted(
    browser: Browser,
    installation: Installation,
    client: AsyncClient,
    ids: dict[str, UUID],
    way: Way,
) -> None:
    name = f"bad-{way}.pdf"
    torn = await add(client, DESKTOP, name, b"%PDF-1.7 torn")
    await client.wait([torn.job_id], timeout_seconds=120)
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go(f"/console/containers/{DESKTOP}")
        rows = (
            desk.page.get_by_role("table").get_by_role("row")
            if way is not Way.PHONE
            else (desk.page.locator(".docs tbody tr"))
        )
        first = rows.filter(has_text=".").first
        await expect(first).to_contain_text("is damaged")
        await expect(first).to_contain_text("delete the document")
        assert await desk.overflow() <= 0
        assert await desk.barriers() == []
        await desk.fill(desk.page.get_by_label("Path contains"), f"bad-{way}")
        await expect(desk.page.locator(".docs tbody tr")).to_have_count(1)
        await desk.press(desk.page.get_by_role("checkbox", name=f"Select {name}"))
        await expect(desk.page.locator("[data-count]")).to_have_text("1 selected")
        await desk.press(desk.page.locator(".bulk summary"))
        await desk.press(desk.page.get_by_role("button", name="Delete selected documents"))
        await expect(desk.page.get_by_role("status").first).to_contain_text("1 document: deleted")
    left = {one.source_uri[8:] async for one in client.documents(DESKTOP)}
    assert name not in left
    assert {one.source_uri[8:] for one in await client.trash(DESKTOP)} >= set()


async def test_selected_originals_are_downloaded_and_read_again(
    browser: Browser, installation: Installation, ids: dict[str, UUID]
) -> None:
    async with signed_in(browser, installation.url, installation.token) as desk:
        await desk.go(f"/console/containers/{DESKTOP}?sort=path&type=code")
        await desk.page.get_by_role("checkbox", name="Select lamp.py").check()
        async with desk.page.expect_download() as started:
            await desk.page.get_by_role("button", name="Download originals").click()
        file = await (await started.value).path()
        with zipfile.ZipFile(io.BytesIO(file.read_bytes())) as archive:
            assert archive.namelist() == ["lamp.py"]
        await desk.page.get_by_role("button", name="Ingest again").click()
        await expect(desk.page.get_by_role("status").first).to_contain_text(
            "1 document: read again"
        )
        assert "type=code" in desk.page.url, "the filter stays"


@pytest.mark.parametrize("way", WAYS)
async def test_the_passage_of_a_hit_is_marked_in_the_text_and_boxed_on_the_page(
    browser: Browser,
    installation: Installation,
    client: AsyncClient,
    ids: dict[str, UUID],
    way: Way,
) -> None:
    chunks = [one async for one in client.chunks(DESKTOP, doc_id=ids["annual.pdf"])]
    hit = next(one for one in chunks if "Page 2" in one.text and "horn" in one.text)
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go(f"/console/documents/{ids['annual.pdf']}?chunk={hit.chunk_id}&q=horns")
        chosen = desk.page.locator(".passages .chosen")
        await expect(chosen.locator("mark")).to_have_text("horn")
        await expect(chosen).to_be_in_viewport() if way is not Way.PHONE else None
        await drawn(desk.page)
        passage = desk.page.locator("#boxes rect.passage")
        await expect(passage).to_have_count(hit.text.count("Page 2"))
        await expect(desk.page.locator("#boxes rect.word")).to_have_count(1)
        sheet = await desk.page.locator(".sheet").bounding_box()
        word = await desk.page.locator("#boxes rect.word").bounding_box()
        assert sheet is not None
        assert word is not None
        # The third line of the report: 340 of 800 points from the top, 87 to 120 of 600 from the left.
        assert 0.39 < (word["y"] - sheet["y"]) / sheet["height"] < 0.43
        assert 0.13 < (word["x"] - sheet["x"]) / sheet["width"] < 0.17
        assert await desk.overflow() <= 0
        assert await desk.barriers() == []
        await desk.press(desk.page.get_by_role("link", name="Previous", exact=True))
        await expect(desk.page.get_by_role("region", name="Page 1", exact=True)).to_be_visible()


async def drawn(page: object) -> None:
    """Wait until the job has drawn the page's image, and its boxes are read."""
    for _ in range(60):
        if await page.locator("#boxes rect").count():  # type: ignore[attr-defined]
            return
        await page.wait_for_timeout(500)  # type: ignore[attr-defined]
        await page.reload()  # type: ignore[attr-defined]
    raise AssertionError("the page has no boxes")


async def test_nothing_of_a_document_runs_or_loads(
    browser: Browser, installation: Installation, ids: dict[str, UUID]
) -> None:
    async with signed_in(browser, installation.url, installation.token) as desk:
        foreign: list[str] = []

        def heard(request: Request) -> None:
            if not request.url.startswith(installation.url):
                foreign.append(request.url)

        desk.page.on("request", heard)
        await desk.go(f"/console/documents/{ids['hostile.md']}?q=lamp")
        text = desk.page.locator(".passages")
        await expect(text).to_contain_text("{{ 7 * 7 }}")
        await expect(text).to_contain_text("window.pwned = 5")
        await expect(text.locator("table td.right")).to_have_count(1)
        assert await desk.page.evaluate("window.pwned") is None
        assert (
            await text.locator(
                "script, img, svg, iframe, style, [style], [onerror], [onclick], [onload]"
            ).count()
            == 0
        )
        links = await text.locator(".prose a").evaluate_all("all => all.map((a) => a.href)")
        assert links == ["https://example.org/lamp"]
        assert foreign == []
        await desk.go(f"/console/documents/{ids['lamp.py']}")
        await expect(desk.page.locator(".prose .k").first).to_have_text("def")


async def test_a_reader_sees_no_button_that_changes_and_is_refused_by_the_route(
    browser: Browser, installation: Installation, client: AsyncClient, ids: dict[str, UUID]
) -> None:
    made = await client.create_token(READER, name="papers", scopes=[Scope.READ])
    async with signed_in(browser, installation.url, made.secret) as desk:
        for path in (f"/console/containers/{DESKTOP}", f"/console/documents/{ids['lamp.py']}"):
            await desk.go(path)
            for name in ("Ingest again", "Delete selected documents", "Delete this document"):
                await expect(desk.page.get_by_role("button", name=name)).to_have_count(0)
        token = await desk.page.locator("meta[name=csrf-token]").get_attribute("content")
        for change in ("reingest", "delete"):
            form = {"change": change, "doc": str(ids["lamp.py"]), "csrf": token or ""}
            answer = await desk.page.request.post(
                f"{installation.url}/console/containers/{DESKTOP}/documents",
                form=form,
                headers={"Origin": installation.url},
                max_redirects=0,
            )
            assert answer.status == 403, change
            form["csrf"] = "0" * 64
            answer = await desk.page.request.post(
                f"{installation.url}/console/containers/{DESKTOP}/documents",
                form=form,
                headers={"Origin": installation.url},
                max_redirects=0,
            )
            assert "older than your session" in await answer.text()
    assert (await client.document(DESKTOP, ids["lamp.py"])).doc_id == ids["lamp.py"]
