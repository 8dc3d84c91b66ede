"""The console without a browser: a session over HTTP that sends what the console's pages send."""

from __future__ import annotations

import re
from typing import Final

import httpx

TOKEN: Final = re.compile(r'name="csrf-token" content="([0-9a-f]{64})"')


def stranger(url: str) -> httpx.AsyncClient:
    """Not signed in."""
    return httpx.AsyncClient(base_url=url, headers={"Origin": url}, trust_env=False, timeout=30)


async def sign_in(browser: httpx.AsyncClient, token: str) -> None:
    """A session, whose changes bring its CSRF token."""
    answer = await browser.post("/login", data={"token": token})
    assert answer.status_code == 303, answer.text
    found = TOKEN.search((await browser.get("/console/jobs")).text)
    assert found is not None
    browser.headers["X-CSRF-Token"] = found[1]
