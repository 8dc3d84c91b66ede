"""Jobs, operations, settings and the audit trail in a real browser: by mouse, by keyboard, on a phone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from latent_client import AsyncClient
from latent_core.domain.job import JobKind, JobState
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.token import Scope
from tests.conftest import DIMS
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
SETTINGS = {"LLC_SEARCH_MAX_CONTAINERS": "7"}
TORN = b"%PDF-1.7 torn"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def contents(installation: Installation) -> None:
    """A container with two documents of one batch, of which one fails."""
    async with installation.client() as client:
        await client.create(Manifest(id="light", name="Light", embedder="openai/test", dims=DIMS))
        await batch(installation, "first")
        jobs = [job.job_id async for job in client.jobs(container_id="light")]
        await client.wait(jobs, timeout_seconds=60)


async def batch(installation: Installation, name: str) -> None:
    """Two files that are one request to the person who sends them."""
    headers = {"Authorization": f"Bearer {installation.token}", "X-Batch-Id": name}
    async with httpx.AsyncClient(base_url=installation.url, headers=headers) as http:
        for filename, content in ((f"{name}.md", b"The lamp is lit."), (f"{name}.pdf", TORN)):
            path = f"/v1/containers/light/uploads?filename={filename}"
            sent = (await http.post(path, content=content)).json()["upload"]
            body = {"container_id": "light", "file_ref": sent["file_ref"]}
            assert (await http.post("/v1/containers/add", json=body)).is_success


async def settled(desk: BrowserWindow) -> None:
    """No barrier, nothing wider than the window."""
    assert await desk.barriers() == []
    assert await desk.overflow() == 0


@pytest.mark.parametrize("way", WAYS)
async def test_a_batch_is_one_line_and_its_failed_job_is_tried_again(
    way: Way, browser: Browser, installation: Installation, client: AsyncClient, contents: None
) -> None:
    await batch(installation, f"by-{way.value}")
    group = await anext(client.job_groups(container_id="light"))
    assert group.jobs.total == 2
    jobs = [job.job_id async for job in client.jobs(group_id=group.group_id)]
    await client.wait(jobs, timeout_seconds=60)
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/jobs?container=light&status=failed")
        line = desk.page.get_by_role("listitem").filter(has_text=f"by-{way.value}")
        await expect(line).to_contain_text("2 jobs")
        await expect(line).to_contain_text("is damaged, or not a PDF")
        await settled(desk)
        await desk.press(line.get_by_role("link", name="ingest"))
        await expect(desk.page.get_by_role("status")).to_contain_text("1 failed")
        await settled(desk)
        await desk.press(desk.page.get_by_role("button", name="Try failed again"))
        await expect(desk.page.get_by_text("1 job queued again.")).to_be_visible()
        await expect(desk.page.get_by_role("status").last).to_contain_text("1 failed")
    (failed,) = [
        job async for job in client.jobs(group_id=group.group_id, states=[JobState.FAILED])
    ]
    history = [event.event async for event in client.events(failed.job_id)]
    assert "requeued" in history


async def test_the_files_of_one_command_are_one_group(
    installation: Installation, client: AsyncClient, contents: None, tmp_path: Path
) -> None:
    for name in ("north", "south"):
        (tmp_path / f"{name}.md").write_text(f"The {name} cliff.", "utf-8")
    code, _, err = await installation.cli("ingest", str(tmp_path), "-c", "light", "--wait")
    assert code == 0, err
    group = await anext(client.job_groups(container_id="light"))
    kinds = [job.kind async for job in client.jobs(group_id=group.group_id)]
    assert kinds.count(JobKind.INGEST) == 2


@pytest.mark.parametrize("way", WAYS)
async def test_all_failed_jobs_of_a_container_are_tried_again_by_one_button(
    way: Way, browser: Browser, installation: Installation, client: AsyncClient, contents: None
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/jobs")
        await desk.choose(desk.page.get_by_label("in state"), "failed")
        await desk.press(desk.page.get_by_role("button", name="Show"))
        await desk.press(desk.page.get_by_role("button", name="Try all failed again"))
        await expect(desk.page.get_by_text("queued again.")).to_be_visible()
    jobs = [job.job_id async for job in client.jobs(container_id="light")]
    await client.wait(jobs, timeout_seconds=60)


@pytest.mark.parametrize("way", WAYS)
async def test_settings_say_where_they_come_from_and_are_found_by_name(
    way: Way, browser: Browser, installation: Installation, contents: None
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/operations/settings")
        await desk.fill(desk.page.get_by_label("whose name contains"), "search_max")
        await desk.press(desk.page.get_by_role("button", name="Show"))
        row = desk.page.get_by_role("row").filter(has_text="LLC_SEARCH_MAX_CONTAINERS")
        await expect(row).to_contain_text("7")
        await expect(row).to_contain_text("environment")
        await expect(desk.page.get_by_text("LLC_PORT")).to_have_count(0)
        await settled(desk)


@pytest.mark.parametrize("way", WAYS)
async def test_the_audit_trail_is_filtered_by_actor_and_action(
    way: Way, browser: Browser, installation: Installation, contents: None
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go("/console/operations/audit")
        main = desk.page.get_by_role("main")
        await desk.fill(desk.page.get_by_label("Action begins with"), "container.create")
        await desk.press(desk.page.get_by_role("button", name="Show"))
        await expect(main).to_contain_text("container.create")
        await expect(main.get_by_text("document.add", exact=True)).to_have_count(0)
        await settled(desk)
        await desk.fill(desk.page.get_by_label("Actor"), "agent:nothing")
        await desk.press(desk.page.get_by_role("button", name="Show"))
        await expect(main).to_contain_text("No change matches.")


@pytest.mark.parametrize("way", WAYS)
async def test_the_overview_shows_services_queue_and_disk(
    way: Way, browser: Browser, installation: Installation, contents: None
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.press(desk.page.get_by_role("link", name="Operations"))
        services = desk.page.get_by_role("region", name="Services")
        await expect(services).to_contain_text("1 connected")
        await expect(services.get_by_text("ok", exact=True)).to_have_count(3)
        await expect(desk.page.get_by_role("region", name="Disk")).to_contain_text("free of")
        await settled(desk)


async def test_a_reader_is_led_to_no_page_of_operations(
    browser: Browser, installation: Installation, client: AsyncClient, contents: None
) -> None:
    made = await client.create_token("agent:guest", scopes=[Scope.READ, Scope.WRITE])
    async with signed_in(browser, installation.url, made.secret) as desk:
        await expect(desk.page.get_by_role("link", name="Jobs")).to_be_visible()
        await expect(desk.page.get_by_role("link", name="Operations")).to_have_count(0)
        answer = await desk.page.request.get(f"{desk.url}/console/operations/settings")
        assert answer.status == 403
