"""Pictures of every page of the console: light, dark and 390 pixels wide, with what axe-core finds serious.

    python -m scripts.screenshots --out FOLDER

Starts a temporary installation with the sample container, signs in, and follows the console's links until every kind of
page was seen once. Writes the pictures and `index.html`. The exit code is 1 if a page has a serious barrier, is wider
than a phone, or makes the browser complain. Needs Chromium (apt install chromium).
"""

from __future__ import annotations

import argparse
import asyncio
import html
import re
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.routing import Match, Route

from latent_gateway.console import site
from scripts.smoke import sample_folder
from tests.support import MANIFESTS
from tests.support.harness.browser import CHROMIUM, WHY_NOT, BrowserWindow, Way, chromium, signed_in
from tests.support.harness.throwaway import TemporaryInstallation, throwaway

CONTAINER: Final = "samples"
INGEST_SECONDS: Final = 300.0
MAX_PAGES: Final = 120
TALLEST: Final = 5000
"""Pixels of a picture; the rest of a long page is cut."""
LOOKS: Final = ("light", "dark", "phone")
SKIPPED: Final = re.compile(r"/(live|original|logout|static)\b|/download")
FIRST: Final = (
    "/",
    f"/console/containers/{CONTAINER}",
    f"/console/search?q=lamp&c={CONTAINER}",
    "/console/search?q=mercury+spill&explain=1",
    "/console/nowhere",
)
FAULTY: Final = {
    "torn.pdf": b"%PDF-1.7 this is not a PDF",
    "lamp.py": b"import time\n\n\ndef rotate(seconds: float) -> None:\n    '''Turn the lens.'''\n    time.sleep(seconds)\n",
    "stock.csv": b"item,amount\nwick,12\noil,40\nglass,3\n",
}


@dataclass
class Gallery:
    """The pages so far, by their route, and what is wrong with them."""

    out: Path
    shown: dict[str, str] = field(default_factory=dict)
    """Route to path."""
    faults: list[str] = field(default_factory=list)

    def name(self, path: str) -> str:
        return re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")[:80] or "first"

    def write(self) -> None:
        """The page with all pictures."""
        rows = "".join(
            f"<h2>{html.escape(path)}</h2>"
            + "".join(f'<img src="{self.name(path)}-{look}.png" alt="{look}">' for look in LOOKS)
            for path in self.shown.values()
        )
        style = "img{max-width:32%;vertical-align:top;border:1px solid #999;margin:2px}"
        text = (
            f"<!doctype html><meta charset=utf-8><title>Console</title><style>{style}</style>{rows}"
        )
        (self.out / "index.html").write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Pictures of every page of the console")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if CHROMIUM is None:
        print(WHY_NOT)
        return 1
    gallery = Gallery(options.out)
    gallery.out.mkdir(parents=True, exist_ok=True)
    with throwaway(MANIFESTS) as installation:
        fill(installation)
        asyncio.run(draw(installation, gallery))
    gallery.write()
    for fault in gallery.faults:
        print(f"  FAIL {fault}")
    print(f"{len(gallery.shown)} pages, {len(gallery.faults)} faults: {gallery.out / 'index.html'}")
    return 1 if gallery.faults else 0


def fill(installation: TemporaryInstallation) -> None:
    """The sample container, and files of other types, one of which cannot be read."""
    folder = sample_folder(installation)
    for name, content in FAULTY.items():
        (folder / name).write_bytes(content)
    installation.latent(
        "ingest", folder, "-c", CONTAINER, "--wait", "--json", seconds=INGEST_SECONDS
    )


async def draw(installation: TemporaryInstallation, gallery: Gallery) -> None:
    """Light and dark at the desk, light on the phone."""
    async with chromium() as browser, AsyncExitStack() as stack:
        url, token = installation.url, installation.token
        desks = {
            "light": await stack.enter_async_context(signed_in(browser, url, token)),
            "dark": await stack.enter_async_context(
                signed_in(browser, url, token, color_scheme="dark")
            ),
            "phone": await stack.enter_async_context(signed_in(browser, url, token, Way.PHONE)),
        }
        waiting = deque(FIRST)
        while waiting and len(gallery.shown) < MAX_PAGES:
            path = waiting.popleft()
            route = route_of(path)
            if route is None or route in gallery.shown:
                continue
            gallery.shown[route] = path
            for look, desk in desks.items():
                await picture(desk, path, look, gallery)
            waiting += await links(desks["light"])
            print(f"  {path}", flush=True)


async def picture(desk: BrowserWindow, path: str, look: str, gallery: Gallery) -> None:
    await desk.go(path)
    await desk.page.wait_for_load_state("load")
    size = desk.page.viewport_size or {"width": 0, "height": 0}
    height = min(TALLEST, await desk.page.evaluate("document.documentElement.scrollHeight"))
    target = gallery.out / f"{gallery.name(path)}-{look}.png"
    clip = {"x": 0, "y": 0, "width": size["width"], "height": max(height, size["height"])}
    await desk.page.screenshot(path=target, full_page=True, clip=clip)  # type: ignore[arg-type]
    gallery.faults += [f"{path} ({look}): {one}" for one in await desk.barriers()]
    if look == "phone" and (wide := await desk.overflow()):
        gallery.faults.append(f"{path}: {wide} pixels wider than a phone")
    if "nowhere" not in path:  # whose answer is a 404, which browsers report
        gallery.faults += [f"{path} ({look}): {one}" for one in desk.complaints]
    desk.complaints.clear()


async def links(desk: BrowserWindow) -> Sequence[str]:
    """The console's addresses on this page."""
    found = await desk.page.eval_on_selector_all("a[href]", "all => all.map(one => one.href)")
    parts = [urlsplit(one) for one in found]
    ours = [one for one in parts if one.netloc == urlsplit(desk.url).netloc]
    paths = [one.path + (f"?{one.query}" if one.query else "") for one in ours]
    return [path for path in paths if not SKIPPED.search(path)]


def route_of(path: str) -> str | None:
    """The route that serves a path; None if it is not of the console."""
    scope = {"type": "http", "method": "GET", "path": urlsplit(path).path, "root_path": ""}
    for router in (*site.ROUTERS, site.rest):
        for route in router.routes:
            if isinstance(route, Route) and route.matches(scope)[0] is Match.FULL:
                return route.path
    return None


if __name__ == "__main__":
    sys.exit(main())
