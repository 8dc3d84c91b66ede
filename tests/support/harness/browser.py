"""A real Chromium for tests of the console: it takes part in nothing but what is served here."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.resources import files
from typing import Any, Final

from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Locator,
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
PHONE: Final[ViewportSize] = {"width": 390, "height": 844}
MAX_TABS: Final = 400
"""Presses of Tab until an element must have the focus."""
MAX_OPTIONS: Final = 100
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


class Way(StrEnum):
    """How a person uses a page."""

    MOUSE = "mouse"
    KEYBOARD = "keyboard"
    PHONE = "phone"
    """390 pixels wide, with taps."""


WAYS: Final = tuple(Way)


@dataclass
class BrowserWindow:
    """One page in a session of its own, and what its console complained of."""

    page: Page
    url: str
    """Of the gateway, without a slash at its end."""
    complaints: list[str] = field(default_factory=list)
    way: Way = Way.MOUSE

    async def press(self, target: Locator) -> None:
        """Click, tap, or go there by Tab and press the key that belongs to it."""
        if self.way is Way.KEYBOARD:
            await self.focus(target)
            ticked = await target.evaluate("e => e.matches('[type=checkbox], [type=radio]')")
            await self.page.keyboard.press("Space" if ticked else "Enter")
        elif self.way is Way.PHONE:
            await target.tap()
        else:
            await target.click()

    async def fill(self, target: Locator, text: str) -> None:
        """Replace the text of a field."""
        if self.way is Way.KEYBOARD:
            await self.focus(target)
            await self.page.keyboard.press("Control+A")
            await self.page.keyboard.press("Delete")
            await self.page.keyboard.insert_text(text)
        else:
            await target.fill(text)

    async def choose(self, target: Locator, value: str) -> None:
        """Select the option with this value."""
        if self.way is not Way.KEYBOARD:
            await target.select_option(value)
            return
        await self.focus(target)
        await self.page.keyboard.press("Home")
        for _ in range(MAX_OPTIONS):
            if await target.input_value() == value:
                return
            await self.page.keyboard.press("ArrowDown")
        raise AssertionError(f"the keyboard does not reach the option {value!r}")

    async def focus(self, target: Locator) -> None:
        """Go there by Tab alone."""
        await expect(target).to_be_visible()
        for _ in range(MAX_TABS):
            if await target.evaluate("e => e === document.activeElement"):
                return
            await self.page.keyboard.press("Tab")
        raise AssertionError(f"Tab does not reach {target}")

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
async def window(browser: Browser, url: str, **context: Any) -> AsyncIterator[BrowserWindow]:
    """Not signed in; desk width, light, with scripts, unless ``context`` says otherwise."""
    settings: dict[str, Any] = {"viewport": DESK, "color_scheme": "light"} | context
    opened = await browser.new_context(**settings)
    opened.set_default_timeout(WAIT_MS)
    page = await opened.new_page()
    one = BrowserWindow(page, url)

    def heard(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            one.complaints.append(message.text)

    page.on("console", heard)
    page.on("pageerror", lambda error: one.complaints.append(str(error)))
    try:
        yield one
    finally:
        await opened.close()


@asynccontextmanager
async def signed_in(
    browser: Browser, url: str, token: str, way: Way = Way.MOUSE, **context: Any
) -> AsyncIterator[BrowserWindow]:
    """Signed in; at the end, the browser's console must have stayed silent."""
    if way is Way.PHONE:
        context = {"viewport": PHONE, "has_touch": True, "is_mobile": True} | context
    async with window(browser, url, **context) as one:
        one.way = way
        await one.sign_in(token)
        yield one
        assert one.complaints == []
