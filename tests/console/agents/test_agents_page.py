"""Agents in the console: connected by a click, seen at work, revoked; by mouse, by keyboard and on a phone."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import pytest
import pytest_asyncio
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from playwright.async_api import Browser, Page, expect

from latent_core.domain.token import Scope, TokenState
from tests.http.test_http_surface import manifest, settled
from tests.mcp.test_mcp import answered, connected
from tests.support.harness.browser import CHROMIUM, WAYS, WHY_NOT, Way, chromium, signed_in
from tests.support.harness.console_http import sign_in, stranger
from tests.support.harness.installation import Installation

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]
SHARED_STACK = True

SHELF: Final = "connect-shelf"
ATTIC: Final = "connect-attic"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def contents(installation: Installation) -> None:
    async with installation.client() as client:
        await client.create(manifest(SHELF))
        await client.create(manifest(ATTIC))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@asynccontextmanager
async def agent_of(entry: dict[str, Any]) -> AsyncIterator[Client]:
    """An agent with exactly the entry that the page showed."""
    async with httpx2.AsyncClient(headers=entry["headers"], timeout=30, trust_env=False) as http:
        transport = streamable_http_client(entry["url"], http_client=http)
        async with Client(transport, mode="legacy") as client:
            yield client


async def shown_entry(page: Page, client: str) -> dict[str, Any]:
    """Of the configuration that a person copies."""
    text = await page.locator(f"#config-{client}").text_content()
    entry: dict[str, Any] = json.loads(text or "")["mcpServers"]["latent"]
    return entry


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_is_connected_by_a_click_and_speaks_with_the_json_that_is_shown(
    browser: Browser, installation: Installation, contents: None, way: Way
) -> None:
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.press(desk.page.get_by_role("link", name="Agents", exact=True))
        await expect(desk.page.get_by_role("heading", name="Agents", level=1)).to_be_visible()
        await expect(desk.page.locator("#address")).to_have_text(f"{installation.url}/mcp")
        await expect(desk.page.locator("#command-claude-code")).to_be_visible()
        await desk.press(desk.page.get_by_role("link", name="Cursor", exact=True))
        await expect(desk.page.locator("#command-claude-code")).to_be_hidden()
        command = desk.page.locator("#command-cursor")
        await expect(command).to_have_text(re.compile("^latent connect cursor --container "))
        await expect(desk.page.locator("#config-cursor")).to_contain_text("YOUR_TOKEN")
        await desk.choose(desk.page.get_by_label("Agent", exact=True), "cursor")
        await desk.choose(desk.page.get_by_label("Ends after"), "7")
        await desk.fill(desk.page.get_by_label("Purpose"), f"desk {way}")
        for box in await desk.page.locator("[name=container]:checked").all():
            await desk.press(box)
        await desk.press(desk.page.get_by_role("button", name="Create token"))
        alert = desk.page.get_by_role("alert")
        await expect(alert).to_contain_text("Choose at least one container.")
        assert all("422" in complaint for complaint in desk.complaints), desk.complaints
        desk.complaints.clear()  # the browser reports the status of the form that is shown again
        await expect(desk.page.get_by_label("Purpose")).to_have_value(f"desk {way}")
        await desk.press(desk.page.get_by_label(SHELF, exact=True))
        assert await desk.barriers() == []
        await desk.press(desk.page.get_by_role("button", name="Create token"))
        await expect(desk.page.get_by_text("is not shown again")).to_be_visible()
        secret = await desk.page.locator("#secret").text_content()
        entry = await shown_entry(desk.page, "cursor")
        assert entry["headers"]["Authorization"] == f"Bearer {secret}"
        assert await desk.barriers() == []
        assert await desk.overflow() == 0
        async with agent_of(entry) as agent:
            added = await answered(agent, "documents_add", text=f"The lamp burns oil, by {way}.")
            described = await answered(agent, "containers_describe")
            assert SHELF in json.dumps(described)
        assert added["doc_id"]
        await desk.press(desk.page.get_by_role("link", name="I have copied it"))
        await expect(desk.page.get_by_role("heading", name="agent:cursor")).to_be_visible()
        assert secret is not None
        assert secret not in await desk.page.content()
        await expect(desk.page.get_by_role("row", name="documents_add")).to_contain_text("1")
        await expect(desk.page.locator(".changes")).to_contain_text("note:///agent:cursor/")
    async with installation.client() as client:
        (made,) = [t async for t in client.tokens() if t.name == f"desk {way}"]
    assert (made.principal, made.containers) == ("agent:cursor", [SHELF])
    assert set(made.scopes) == {Scope.READ, Scope.WRITE}
    assert made.expires_at is not None
    assert (made.expires_at - made.created_at).days in (6, 7)


@pytest.mark.parametrize("way", WAYS)
async def test_what_an_agent_deleted_is_restored_and_the_agent_revoked_on_its_page(
    browser: Browser, installation: Installation, contents: None, way: Way
) -> None:
    async with installation.client() as client:
        scopes = (Scope.READ, Scope.WRITE)
        name = f"watched {way}"
        made = await client.create_token(
            f"agent:{way}", name=name, scopes=scopes, containers=[SHELF]
        )
        async with connected(installation, "legacy", made.secret) as agent:
            added = await answered(agent, "documents_add", text="Fog.", name="fog")
            await settled(client, SHELF)
            await answered(agent, "documents_add", text="Thick fog.", name="fog")
            await settled(client, SHELF)
            await answered(agent, "documents_delete", doc_id=added["doc_id"])
            assert (await agent.call_tool("documents_get", {"doc_id": added["doc_id"]})).is_error
        await settled(client, SHELF)
    async with signed_in(browser, installation.url, installation.token, way) as desk:
        await desk.go(f"/console/containers/{SHELF}/agents")
        row = desk.page.locator(".tokens li").filter(has_text=name)
        await expect(row).to_contain_text("documents_add 2")
        await expect(row).to_contain_text("1 failed")
        await desk.press(row.get_by_role("link"))
        await expect(desk.page.get_by_role("row", name="documents_get")).to_contain_text("1")
        assert await desk.page.locator("svg.days rect.failed").count() == 1
        assert await desk.barriers() == []
        assert await desk.overflow() == 0
        changes = desk.page.get_by_role("navigation", name="Changes")
        await expect(changes).to_contain_text("Written 2")
        await desk.press(changes.get_by_role("link", name="Superseded"))
        await expect(desk.page.locator(".changes")).to_contain_text("version=1")
        await desk.press(changes.get_by_role("link", name="Deleted"))
        await desk.press(desk.page.get_by_role("button", name="Restore"))
        await expect(desk.page.get_by_role("status")).to_contain_text("is being restored")
        await expect(desk.page.get_by_role("button", name="Restore")).to_have_count(0)
        await desk.press(desk.page.get_by_text("Revoke this token"))
        await desk.press(desk.page.get_by_role("button", name="Revoke", exact=True))
        await expect(desk.page.get_by_role("status")).to_contain_text("is revoked")
        await expect(desk.page.get_by_text("Revoke this token")).to_have_count(0)
    async with installation.client() as client:
        await settled(client, SHELF)
        assert (await client.document(SHELF, added["doc_id"])).written_by == f"agent:{way}"
        assert (await client.token(made.token.id)).state is TokenState.REVOKED


async def test_copy_buttons_copy_and_every_client_is_shown_without_scripts(
    browser: Browser, installation: Installation, contents: None
) -> None:
    allowed = ["clipboard-read", "clipboard-write"]
    async with signed_in(
        browser, installation.url, installation.token, permissions=allowed
    ) as desk:
        await desk.go(f"/console/containers/{SHELF}/agents")
        await desk.page.get_by_role("button", name="Copy Claude Code command").click()
        await expect(desk.page.locator(".copied")).to_have_count(1)
        copied = await desk.page.evaluate("navigator.clipboard.readText()")
        assert copied == f"latent connect claude-code --container {SHELF}"
    async with signed_in(
        browser, installation.url, installation.token, java_script_enabled=False
    ) as plain:
        await plain.go("/console/agents")
        for name in ("Codex", "VS Code", "Gemini CLI", "opencode", "Zed", "Other"):
            await plain.page.get_by_role("link", name=name, exact=True).click()
            await expect(plain.page.get_by_role("group", name=name, exact=True)).to_be_visible()
        await expect(plain.page.locator(".client:visible")).to_have_count(1)
        await expect(plain.page.locator("[data-copy]:visible")).to_have_count(0)


async def test_a_token_that_may_not_create_tokens_sees_itself_and_how_to_ask(
    browser: Browser, installation: Installation, contents: None
) -> None:
    async with installation.client() as client:
        guest = await client.create_token("agent:guest", name="guest", containers=[SHELF])
        other = await client.create_token("agent:other", name="other", containers=[SHELF])
    async with signed_in(browser, installation.url, guest.secret, Way.PHONE) as desk:
        for path in ("/console/agents", f"/console/containers/{SHELF}/agents"):
            await desk.go(path)
            await expect(desk.page.get_by_text("You need a token.")).to_be_visible()
            await expect(desk.page.locator("#ask-owner")).to_contain_text("latent token create")
            await expect(desk.page.get_by_role("button", name="Create token")).to_have_count(0)
            await expect(desk.page.get_by_text("latent connect")).to_have_count(0)
            await expect(desk.page.locator(".tokens li")).to_have_count(1)
            assert await desk.barriers() == []
            assert await desk.overflow() == 0
        await desk.press(desk.page.locator(".tokens").get_by_role("link", name="agent:guest"))
        await expect(desk.page.get_by_role("heading", name="agent:guest")).to_be_visible()
        await expect(desk.page.get_by_text("Revoke this token")).to_have_count(0)
    async with stranger(installation.url) as http:
        await sign_in(http, guest.secret)
        assert (await http.get(f"/console/agents/tokens/{other.token.id}")).status_code == 403
        given = {"client": "codex", "name": "x", "scope": "read"}
        given |= {"container": SHELF, "lifetime": "7"}
        refused = await http.post("/console/agents/tokens", data=given)
        assert refused.status_code == 403
        path = f"/console/agents/tokens/{other.token.id}/revoke"
        assert (await http.post(path, data={"x": "y"})).status_code == 403
    async with installation.client() as client:
        assert (await client.token(other.token.id)).state is TokenState.LIVE


async def test_a_new_token_is_in_no_cache_and_a_wrong_form_says_what_is_wrong(
    installation: Installation, contents: None
) -> None:
    async with stranger(installation.url) as http:
        await sign_in(http, installation.token)
        given: dict[str, Any] = {
            "client": "zed",
            "name": "twice",
            "lifetime": "never",
        }
        given |= {"scope": ["read", "write"], "container": [SHELF, ATTIC]}
        for _ in range(2):
            made = await http.post("/console/agents/tokens", data=given)
            assert (made.status_code, made.headers["cache-control"]) == (200, "no-store")
            assert len(set(re.findall("lct_[0-9A-Za-z]{49}", made.text))) == 1
        third = await http.post("/console/agents/tokens", data=given)
        assert third.status_code == 422
        assert "revoke the older one first" in third.text
        wrong = given | {"principal": "no principal", "name": "new"}
        answer = await http.post("/console/agents/tokens", data=wrong)
        assert answer.status_code == 422
        assert "is not a principal" in answer.text
        assert 'value="no principal"' in answer.text
        without = await http.post(
            "/console/agents/tokens", data=given, headers={"X-CSRF-Token": "0" * 64}
        )
        assert without.status_code == 403
