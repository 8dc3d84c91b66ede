"""Pages made by scripts: what the browser asks for goes through the guard, whatever a page's scripts want.

The browser here is a stand-in that makes the requests a page is said to make; the route to the network is real.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from latent_core.domain.errors import IngestFailed
from latent_core.domain.web_address import WebAddress
from latent_workers.fetch import browser
from latent_workers.fetch.browser import rendered
from latent_workers.fetch.guard import AddressGuard, system_resolver
from latent_workers.fetch.web import Download, WebFetcher
from tests.support.servers.web_site import WebSite


class PlaywrightError(Exception):
    """What Playwright raises."""


@dataclass
class Route:
    """One request of a page, and what became of it."""

    url: str
    kind: str = "script"
    method: str = "GET"
    body: bytes | None = None
    aborted: bool = False

    @property
    def request(self) -> SimpleNamespace:
        return SimpleNamespace(url=self.url, resource_type=self.kind, method=self.method)

    async def abort(self) -> None:
        self.aborted = True

    async def fulfill(self, *, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.body = body


@dataclass
class StandIn:
    """Stands for Playwright, its Chromium and the one page in it."""

    requests: list[Route]
    launched: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    trouble: Exception | None = None
    closed: bool = False
    handler: Callable[[Route], Any] | None = None

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = ModuleType("playwright.async_api")

        @asynccontextmanager
        async def started() -> AsyncIterator[SimpleNamespace]:
            yield SimpleNamespace(chromium=self)

        vars(module).update(Error=PlaywrightError, async_playwright=started)
        monkeypatch.setitem(sys.modules, "playwright", ModuleType("playwright"))
        monkeypatch.setitem(sys.modules, "playwright.async_api", module)

    async def launch(self, **given: Any) -> StandIn:
        self.launched = given
        return self

    async def new_context(self, **given: Any) -> StandIn:
        self.context = given
        return self

    async def route(self, pattern: str, handler: Callable[[Route], Any]) -> None:
        self.handler = handler

    async def route_web_socket(self, pattern: str, handler: Any) -> None:
        self.context["web_sockets"] = pattern

    async def new_page(self) -> StandIn:
        return self

    async def goto(self, url: str, **given: Any) -> None:
        if self.trouble is not None:
            raise self.trouble
        assert self.handler is not None
        for request in [Route(url, "document"), *self.requests]:
            await self.handler(request)

    async def wait_for_load_state(self, state: str, **given: Any) -> None:
        """The stand-in is silent at once."""

    async def content(self) -> str:
        return "<html><body><p>written by a script</p></body></html>"

    async def close(self) -> None:
        self.closed = True


@dataclass
class World:
    site: WebSite
    fetcher: WebFetcher
    download: Download

    async def render(self) -> str:
        return await rendered(Path("/chromium"), self.fetcher, self.download, seconds=20)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with WebSite() as site:
        site.page("/", "<script src=/app.js></script>")
        site.page("/app.js", "write()", headers={"Content-Type": "text/javascript"})
        fetcher = WebFetcher(
            AddressGuard(system_resolver, [site.origin]), tmp_path, limit=100_000, seconds=20
        )
        download = await fetcher.get(WebAddress.parse(site.url("/")))
        assert download is not None
        yield World(site, fetcher, download)


async def test_what_a_page_asks_for_is_fetched_by_the_guard_and_by_nobody_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Route(world.site.url("/app.js"))
    bad = [
        Route("http://169.254.169.254/latest/meta-data/", "fetch"),
        Route(f"http://localhost:{world.site.port}/app.js"),
        Route("file:///etc/passwd"),
        Route("data:text/javascript,x"),
        Route(world.site.url("/app.js"), method="POST"),
        Route(world.site.url("/app.js"), "image"),
        Route(world.site.url("/missing.js")),
    ]
    stand_in = StandIn([good, *bad])
    stand_in.install(monkeypatch)
    assert "written by a script" in await world.render()
    assert good.body == b"write()"
    assert all(route.aborted and route.body is None for route in bad)
    assert [request.path for request in world.site.requests] == ["/", "/app.js", "/missing.js"]
    assert stand_in.closed
    assert stand_in.context["service_workers"] == "block"
    assert stand_in.context["accept_downloads"] is False
    assert "--host-resolver-rules=MAP * ~NOTFOUND" in stand_in.launched["args"]


async def test_a_page_that_asks_without_end_is_answered_so_often(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "MAX_REQUESTS", 3)
    requests = [Route(world.site.url("/app.js")) for _ in range(5)]
    StandIn(requests).install(monkeypatch)
    await world.render()
    assert [route.aborted for route in requests] == [False, False, True, True, True]


async def test_a_browser_that_fails_costs_the_page_and_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = StandIn([], trouble=PlaywrightError("net::ERR_FAILED\nat x"))
    stand_in.install(monkeypatch)
    with pytest.raises(IngestFailed, match="ERR_FAILED"):
        await world.render()
    assert stand_in.closed


async def test_a_missing_playwright_is_reported_with_the_remedy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "playwright.async_api", None)
    with pytest.raises(IngestFailed, match=r"latent-containers\[browser\]"):
        await world.render()
