"""A page as a browser shows it, for containers with ``web.javascript``: the optional extra ``browser`` and a
Chromium.

The browser has no network: names do not resolve, and its proxy is a closed port. The ``WebFetcher`` answers its
requests, so its guard, limits and deadline also apply to scripts.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from latent_core.domain.errors import IngestFailed, LatentError, TimedOut
from latent_core.domain.web_address import WebAddress
from latent_workers.fetch.web import Download, WebFetcher

logger = logging.getLogger(__name__)

MAX_REQUESTS: Final = 200
"""Per page; further requests fail."""
SETTLE_SECONDS: Final = 5.0
"""Maximum wait for a page that keeps sending requests."""
MAX_CHARACTERS: Final = 20_000_000

_NEEDED: Final = frozenset({"document", "script", "stylesheet", "xhr", "fetch"})
"""Kinds of requests that affect the text; images, fonts and videos do not."""
_ARGUMENTS: Final = (
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=http://127.0.0.1:9",
    "--proxy-bypass-list=<-loopback>",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-background-networking",
    "--no-first-run",
)


async def rendered(
    executable: Path, fetcher: WebFetcher, download: Download, *, seconds: float
) -> str:
    """The HTML of ``download`` after its scripts have run; ``IngestFailed``, ``TimedOut``."""
    try:
        playwright = importlib.import_module("playwright.async_api")
    except ImportError as exc:
        raise IngestFailed(
            "the container renders its pages in a browser (web.javascript), and Playwright is not installed: install "
            "latent-containers[browser], or set web.javascript to false"
        ) from exc
    try:
        async with asyncio.timeout(seconds), playwright.async_playwright() as started:
            content: str = await _content(started, executable, _Answers(fetcher, download))
    except TimeoutError as exc:
        raise TimedOut(f"{download.url} was not rendered within {seconds:g} s") from exc
    except playwright.Error as exc:
        reason = str(exc).partition("\n")[0][:300]
        raise IngestFailed(f"{download.url} could not be rendered: {reason}") from exc
    if len(content) > MAX_CHARACTERS:
        raise IngestFailed(f"{download.url} renders to more than {MAX_CHARACTERS} characters")
    return content


async def _content(started: Any, executable: Path, answers: _Answers) -> str:
    browser = await started.chromium.launch(
        executable_path=str(executable),
        headless=True,
        chromium_sandbox=True,
        args=list(_ARGUMENTS),
        env={},
    )
    try:
        context = await browser.new_context(service_workers="block", accept_downloads=False)
        await context.route("**/*", answers.answer)
        await context.route_web_socket("**/*", lambda socket: socket.close())
        page = await context.new_page()
        await page.goto(str(answers.download.url), wait_until="load", timeout=0)
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await page.wait_for_load_state("networkidle", timeout=0)
        except TimeoutError:
            logger.info("web_page_not_idle", extra={"url": str(answers.download.url)})
        return str(await page.content())
    finally:
        await browser.close()


@dataclass(slots=True)
class _Answers:
    """Answers a browser's requests with what the guard allows."""

    fetcher: WebFetcher
    download: Download
    requests: int = field(default=0)

    async def answer(self, route: Any) -> None:
        self.requests += 1
        request = route.request
        is_needed = request.method == "GET" and request.resource_type in _NEEDED
        if not is_needed or self.requests > MAX_REQUESTS:
            await route.abort()
            return
        try:
            address = WebAddress.parse(request.url)
            if address == self.download.url:
                await _fulfil(route, self.download)
                return
            fetched = await self.fetcher.get(address)
        except LatentError as exc:
            logger.info("web_page_request_refused", extra={"cause": exc.message})
            await route.abort()
            return
        if fetched is None:
            await route.abort()
            return
        try:
            await _fulfil(route, fetched)
        finally:
            await asyncio.to_thread(fetched.path.unlink, missing_ok=True)


async def _fulfil(route: Any, fetched: Download) -> None:
    body = await asyncio.to_thread(fetched.path.read_bytes)
    await route.fulfill(status=200, body=body, headers={"content-type": fetched.content_type})
