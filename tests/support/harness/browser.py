"""A real Chromium for tests of the console: it takes part in nothing but what is served here."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Page,
    ViewportSize,
    async_playwright,
    expect,
)

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
WHY_NOT: Final = "no Chromium on this machine (apt install chromium)"
ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",  # tests may run as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
)
WAIT_MS: Final = 30_000
DESK: Final[ViewportSize] = {"width": 1200, "height": 800}
PHONE: Final[ViewportSize] = {"width": 360, "height": 740}
SERIOUS: Final = frozenset({"serious", "critical"})


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=list(ARGUMENTS), headless=True
        )
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class DedupWindow:
    """One page in a session of its own, and what its console complained of."""

    page: Page
    url: str
    """Of the gateway, without a slash at its end."""
    complaints: list[str] = field(default_factory=list)

    async def go(self, path: str) -> None:
        await self.page.goto(f"{self.url}{path}")

    async def sign_in(self, token: str) -> None:
        await self.go("/login")
        await self.page.get_by_label("Token").fill(token)
        await self.page.get_by_role("button", name="Sign in").click()
        await self.page.wait_for_url(f"{self.url}/")

    async def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        script = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(await self.page.evaluate(script))

    async def images_shown(self) -> list[bool]:
        """Of every image, once it has been scrolled to: whether it could be read."""
        return list(
            await self.page.evaluate(
                """async () => {
                    const images = [...document.images];
                    for (const image of images) image.loading = "eager";
                    await Promise.all(images.map((image) => image.decode().catch(() => null)));
                    return images.map((image) => image.naturalWidth > 0);
                }"""
            )
        )

    async def barriers(self) -> list[str]:
        """What axe-core finds serious."""
        await self.page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
        found: dict[str, Any] = await self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']})"
        )
        return [
            f"{one['id']}: {one['nodes'][0]['html'][:200]} {one['nodes'][0].get('failureSummary', '')[:300]}"
            for one in found["violations"]
            if one["impact"] in SERIOUS
        ]


@asynccontextmanager
async def window(browser: Browser, url: str, **context: Any) -> AsyncIterator[DedupWindow]:
    """Not signed in; desk width, light, with scripts, unless ``context`` says otherwise."""
    settings: dict[str, Any] = {"viewport": DESK, "color_scheme": "light"} | context
    opened = await browser.new_context(**settings)
    opened.set_default_timeout(WAIT_MS)
    page = await opened.new_page()
    one = DedupWindow(page, url)

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            one.complaints.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: one.complaints.append(str(error)))
    try:
        yield one
    finally:
        await opened.close()
