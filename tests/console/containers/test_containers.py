"""Containers in the console: create from a template, edit with a plan, change the state, delete; in three ways."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from latent_client import AsyncClient
from latent_core.domain.errors import NotFound
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Manifest, parse_manifest
from latent_core.domain.manifest.templates import template
from latent_core.domain.manifest.yaml_reader import load_manifest
from tests.conftest import DIMS
from tests.support.harness.browser import (
    CHROMIUM,
    WAYS,
    WHY_NOT,
    BrowserWindow,
    Way,
    chromium,
    signed_in,
    window,
)
from tests.support.harness.installation import Installation

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]
SHARED_STACK = True


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@asynccontextmanager
async def owner(
    browser: Browser, installation: Installation, way: Way = Way.MOUSE
) -> AsyncIterator[BrowserWindow]:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        yield desk


async def founded(client: AsyncClient, name: str, **more: Any) -> Manifest:
    words = {"id": name, "name": name.title(), "embedder": "openai/test", "dims": DIMS, **more}
    manifest = parse_manifest(words)
    await client.create(manifest)
    return manifest


async def with_text(client: AsyncClient, name: str, folder: Path) -> None:
    file = folder / "tides.md"
    await asyncio.to_thread(file.write_text, "# Tides\n\nThe harbour is deep.\n", "utf-8")
    upload = await client.upload(name, file)
    added = await client.add(name, file_ref=upload.file_ref)
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE, job


async def usable(desk: BrowserWindow) -> None:
    assert await desk.barriers() == []
    assert await desk.overflow() == 0


@pytest.mark.parametrize("way", WAYS)
async def test_a_container_is_created_from_a_template_and_keeps_its_comments(
    way: Way, browser: Browser, installation: Installation, client: AsyncClient
) -> None:
    name = f"library-{way.value}"
    async with owner(browser, installation, way) as desk:
        await desk.press(desk.page.get_by_role("link", name="New container"))
        await desk.press(desk.page.get_by_role("link", name=re.compile("^Papers")))
        await desk.page.wait_for_url("**kind=papers")
        await usable(desk)
        await desk.fill(desk.page.get_by_label("Id", exact=True), "No Slug")
        await desk.press(desk.page.get_by_role("button", name="Create container"))
        await expect(desk.page.get_by_text("must be 1 to 63 of a-z")).to_be_visible()
        await desk.fill(desk.page.get_by_label("Id", exact=True), name)
        await desk.fill(desk.page.get_by_label("Theme"), "whales: and tides")
        await desk.press(desk.page.get_by_role("button", name="Create container"))
        await expect(desk.page.get_by_role("status")).to_contain_text("was created")
        await expect(desk.page.get_by_role("heading", name=name)).to_be_visible()
        desk.complaints[:] = [one for one in desk.complaints if "422" not in one]
    stored = parse_manifest((await client.describe(name)).manifest)
    expected = template("papers").filled({"id": name, "theme": "whales: and tides"})
    assert stored == expected
    file = installation.manifests / f"{name}.yaml"
    assert "# pages that are read and drawn" in await asyncio.to_thread(file.read_text, "utf-8")
    assert await asyncio.to_thread(load_manifest, file) == expected


@pytest.mark.parametrize("way", WAYS)
async def test_the_form_shows_what_a_change_does_before_it_is_saved_and_starts_the_reparse(
    way: Way, browser: Browser, installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    name = f"edited-{way.value}"
    await founded(client, name)
    await with_text(client, name, tmp_path)
    async with owner(browser, installation, way) as desk:
        await desk.go(f"/console/containers/{name}")
        await desk.press(desk.page.get_by_role("link", name="Settings"))
        plan = desk.page.locator("#plan")
        await expect(plan).to_contain_text("Nothing changes")
        await desk.fill(desk.page.get_by_label("Theme"), "tides")
        await expect(plan).to_contain_text("at once")
        await desk.press(desk.page.get_by_text("Documents and chunks"))
        await desk.fill(desk.page.get_by_label("Chunk size"), "many")
        await expect(plan).to_contain_text("'many' is not a whole number")
        await expect(plan.get_by_role("button", name="Save")).to_have_count(0)
        await desk.fill(desk.page.get_by_label("Chunk size"), "64")
        await expect(plan).to_contain_text("re-chunk")
        await expect(plan).to_contain_text("1 document, 1 chunk")
        await usable(desk)
        await desk.press(plan.get_by_label("Read all documents again now"))
        await desk.press(plan.get_by_role("button", name="Save"))
        await expect(desk.page.get_by_role("status").first).to_contain_text(
            "The manifest was saved, and the reparse refresh has begun."
        )
    stored = parse_manifest((await client.describe(name)).manifest)
    assert (stored.theme, stored.chunker.size) == ("tides", 64)
    kinds = [job.kind.value async for job in client.jobs(container_id=name)]
    assert "refresh" in kinds


@pytest.mark.parametrize("way", WAYS)
async def test_yaml_is_checked_as_one_types_with_the_line_and_the_remedy(
    way: Way, browser: Browser, installation: Installation, client: AsyncClient
) -> None:
    name = f"written-{way.value}"
    await founded(client, name)
    async with owner(browser, installation, way) as desk:
        await desk.go(f"/console/containers/{name}/settings")
        await desk.press(desk.page.get_by_role("link", name="YAML"))
        source = desk.page.get_by_label("Keys that differ from the defaults")
        written = await source.input_value()
        await desk.fill(source, f"{written}dedub:\n  semantic_threshold: 0.5\n")
        plan = desk.page.locator("#plan")
        await expect(plan).to_contain_text("unknown key 'dedub'; did you mean 'dedup'?")
        number = written.count("\n") + 1
        await desk.press(plan.get_by_role("button", name=f"Line {number}"))
        assert (
            await source.evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)")
            == "dedub:"
        )
        await usable(desk)
        await desk.fill(source, f"{written}dedup:\n  semantic_threshold: 0.5\n")
        await expect(plan).to_contain_text("compared again for near-duplicates")
        await desk.press(plan.get_by_role("button", name="Save"))
        await expect(desk.page.get_by_role("status").first).to_contain_text("was saved")
    stored = parse_manifest((await client.describe(name)).manifest)
    assert stored.dedup.semantic_threshold == 0.5


@pytest.mark.parametrize("way", WAYS)
async def test_a_container_is_archived_opened_and_deleted_by_its_typed_name(
    way: Way, browser: Browser, installation: Installation, client: AsyncClient
) -> None:
    name = f"doomed-{way.value}"
    await founded(client, name)
    async with owner(browser, installation, way) as desk:
        await desk.go(f"/console/containers/{name}/settings")
        await desk.press(desk.page.get_by_role("button", name="Make archived"))
        await expect(desk.page.get_by_role("status").first).to_contain_text("archived")
        await expect(
            desk.page.get_by_text("Only an active container can be deleted")
        ).to_be_visible()
        await desk.press(desk.page.get_by_role("button", name="Make active"))
        await expect(desk.page.get_by_role("status").first).to_contain_text("is now active")
        await usable(desk)
        await desk.press(desk.page.get_by_text("Delete this container"))
        await desk.fill(desk.page.get_by_label(re.compile("to confirm")), "another")
        await desk.press(desk.page.get_by_role("button", name=f"Delete {name}"))
        await expect(desk.page.get_by_text("was not deleted: 'another' was typed")).to_be_visible()
        assert (await client.describe(name)).state.value == "active"
        await desk.go(f"/console/containers/{name}/settings")
        await desk.press(desk.page.get_by_text("Delete this container"))
        await desk.fill(desk.page.get_by_label(re.compile("to confirm")), name)
        await desk.press(desk.page.get_by_role("button", name=f"Delete {name}"))
        await expect(desk.page.get_by_role("status").first).to_contain_text(f"'{name}' is deleted")
        desk.complaints[:] = [one for one in desk.complaints if "400" not in one]
    with pytest.raises(NotFound):
        await client.describe(name)


async def test_changes_of_two_people_are_joined_and_shown_before_they_are_saved(
    browser: Browser, installation: Installation, client: AsyncClient
) -> None:
    began = await founded(client, "joined")
    async with owner(browser, installation) as desk:
        await desk.go("/console/containers/joined/settings")
        etag = (await client.describe("joined")).etag
        await client.update(began.model_copy(update={"theme": "theirs"}), if_match=etag)
        await desk.fill(desk.page.get_by_label("Name"), "Mine")
        plan = desk.page.locator("#plan")
        await expect(plan).to_contain_text("Somebody else changed this manifest meanwhile")
        await expect(plan).to_contain_text("→ theirs")
        await desk.press(plan.get_by_role("button", name="Save"))
        await expect(desk.page.get_by_role("status").first).to_contain_text("was saved")
        await expect(desk.page.get_by_label("Theme")).to_have_value("theirs")
    stored = parse_manifest((await client.describe("joined")).manifest)
    assert (stored.name, stored.theme) == ("Mine", "theirs")


async def test_without_scripts_the_plan_is_a_page_of_its_own(
    browser: Browser, installation: Installation, client: AsyncClient
) -> None:
    await founded(client, "plain")
    async with window(browser, installation.url, java_script_enabled=False) as desk:
        await desk.sign_in(installation.token)
        await desk.go("/console/containers/plain/settings")
        await desk.page.get_by_label("Theme").fill("by hand")
        await desk.page.get_by_role("button", name="Show what changes").click()
        await expect(desk.page.locator("#plan")).to_contain_text("by hand")
        await desk.page.get_by_role("button", name="Save", exact=True).click()
        await expect(desk.page.get_by_role("status").first).to_contain_text("was saved")
    assert (await client.describe("plain")).manifest["theme"] == "by hand"


async def test_sizes_over_time_are_a_drawing_and_a_table(
    browser: Browser, installation: Installation, client: AsyncClient
) -> None:
    await founded(client, "measured-sizes")
    async with owner(browser, installation, Way.PHONE) as desk:
        async with await psycopg.AsyncConnection.connect(installation.dsn) as conn:
            for days in (0, 1, 5):
                await conn.execute(MEASURED, {"days": days})
        await desk.go("/console/containers/measured-sizes/settings")
        await expect(desk.page.locator(".chart rect")).to_have_count(12)
        sizes = desk.page.get_by_role("row").filter(has_text="Postgres")
        await expect(sizes.first).to_contain_text("3.0 MB")
        await desk.press(desk.page.get_by_text("By day"))
        await expect(
            desk.page.get_by_role("region", name="Sizes by day").get_by_role("row")
        ).to_have_count(4)
        await usable(desk)


MEASURED = """
INSERT INTO container_sizes SELECT 'measured-sizes', (now() AT TIME ZONE 'UTC')::date - %(days)s::integer, now(),
       1, 2, 3, 3000000, 4, 4000000, 5, 5000000, 6, 6000000, 0, 0
ON CONFLICT (container_id, day) DO UPDATE SET postgres_bytes = 3000000, vector_bytes = 4000000,
       original_bytes = 5000000, page_file_bytes = 6000000
"""


async def test_a_reader_sees_no_button_and_every_route_refuses(
    browser: Browser, installation: Installation, client: AsyncClient
) -> None:
    roles = {"owner": ["local:you"], "reader": ["agent:settings-reader"]}
    await founded(client, "looked-at", acl={"roles": roles})
    made = await client.create_token("agent:settings-reader")
    async with signed_in(browser, installation.url, made.secret) as desk:
        await desk.go("/console/containers/looked-at/settings")
        await expect(desk.page.get_by_role("heading", name="Sizes")).to_be_visible()
        await expect(desk.page.get_by_text("agent:settings-reader").last).to_be_visible()
        assert await desk.page.locator("main form, main button, main textarea").count() == 0
        await usable(desk)
        await desk.go("/")
        assert await desk.page.get_by_role("link", name="New container").count() == 0
    async with person(installation, made.secret) as (http, csrf):
        base = "/console/containers/looked-at"
        sent = {
            "csrf": csrf,
            "name": "Taken",
            "do": "save",
            "state": "archived",
            "typed": "looked-at",
        }
        for path in (f"{base}/settings", f"{base}/state", f"{base}/delete", "/console/new"):
            refused = await http.post(path, data=sent)
            assert refused.status_code == 403, (path, refused.text[:300])
        assert (await http.get("/console/new")).status_code == 403
    assert (await client.describe("looked-at")).state.value == "active"


async def test_a_change_needs_the_token_of_its_session_and_a_plan_that_was_seen(
    installation: Installation, client: AsyncClient
) -> None:
    await founded(client, "guarded")
    async with person(installation, installation.token) as (http, csrf):
        path = "/console/containers/guarded/settings"
        opened = (await http.get(path)).text
        fields = dict(re.findall(r'<input[^>]* name="([\w.]+)"[^>]* value="([^"]*)"', opened))
        fields = {key: value for key, value in fields.items() if key not in SWITCHES}
        fields |= {
            "as": "yaml",
            "source": f"id: guarded\nname: G\nembedder: openai/test\ndims: {DIMS}\n",
            "do": "save",
        }
        forged = await http.post(path, data={**fields, "csrf": "x"})
        assert forged.status_code == 403
        not_planned = await http.post(path, data={**fields, "csrf": csrf})
        assert (not_planned.status_code, "1 change" in not_planned.text) == (200, True)
        assert (await client.describe("guarded")).manifest["name"] == "Guarded"
        planned = re.search(r'name="planned" value="(\w+)"', not_planned.text)
        assert planned is not None
        saved = await http.post(path, data={**fields, "csrf": csrf, "planned": planned[1]})
        assert saved.status_code == 303
    assert (await client.describe("guarded")).manifest["name"] == "G"


SWITCHES = ("follow",)


@asynccontextmanager
async def person(
    installation: Installation, token: str
) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    """A session without a browser, and its token for changes."""
    headers = {"Origin": installation.url}
    async with httpx.AsyncClient(base_url=installation.url, headers=headers, timeout=30) as http:
        assert (await http.post("/login", data={"token": token})).status_code == 303
        found = re.search(r'name="csrf-token" content="([^"]+)"', (await http.get("/")).text)
        assert found is not None
        yield http, found[1]
