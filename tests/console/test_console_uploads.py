"""The console's form for files, message by message: what is refused before it is read, broken off, too slow.

And what ``add`` answers when the queue takes no more: this harness has no worker.
"""

from __future__ import annotations

import asyncio
import html
import re
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
from pydantic import SecretStr
from starlette.types import Message

from latent_core.blobs.presigner import Presigner
from latent_core.blobs.s3 import S3Address
from latent_core.queue import admin
from latent_gateway.auth.quotas import Quotas
from latent_gateway.console.frame import form_files as sending
from latent_gateway.console.frame.console_session import COOKIE
from tests.support.clock import FakeClock
from tests.support.harness.console_http import sign_in
from tests.support.harness.gateway_harness import BASE, VAULT, GatewayHarness, furnished

pytestmark = pytest.mark.asyncio(loop_scope="module")

CAPACITY: Final = 1_000_000
PATH: Final = f"/console/containers/{VAULT}/uploads"
FORM: Final = {"content-type": "multipart/form-data; boundary=b"}
END_ONE: Final = """
UPDATE jobs SET state = 'done', finished_at = now()
WHERE id = (SELECT max(id) FROM jobs WHERE state = 'queued')
"""
HEAD: Final = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.md"\r\n\r\n'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(install_root: Path) -> AsyncIterator[GatewayHarness]:
    async with furnished(install_root / "sending", quota_upload_bytes_per_day=CAPACITY) as one:
        yield one


async def session(harness: GatewayHarness, role: str) -> dict[str, str]:
    """The headers of a signed-in browser's requests."""
    transport = httpx.ASGITransport(harness.app, client=("192.0.2.8", 1))
    headers = {"Origin": BASE}
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as browser:
        await sign_in(browser, harness.tokens[role])
        cookie = f"{COOKIE}={browser.cookies[COOKIE]}"
        return {"cookie": cookie, "x-csrf-token": browser.headers["X-CSRF-Token"]}


def use(monkeypatch: pytest.MonkeyPatch, harness: GatewayHarness, **parts: Any) -> None:
    """Give the routes other parts until the test ends."""
    # As an attribute it would be lost with the test: it is none of the state's own ``__dict__``.
    given = harness.app.state._state
    monkeypatch.setitem(given, "gateway", replace(given["gateway"], **parts))


class SentRequest:
    """One request, whose body comes as the messages say; after the last of them nothing comes."""

    def __init__(self, *messages: Message) -> None:
        self._messages = list(messages)
        self.requested_paths = 0
        self.status = 0
        self.body = b""

    async def to(self, harness: GatewayHarness, role: str, **headers: str) -> SentRequest:
        given = {**FORM, "host": BASE.partition("//")[2], "origin": BASE, **headers}
        given |= await session(harness, role)
        raw = [(k.replace("_", "-").encode(), v.encode()) for k, v in given.items()]
        scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": PATH,
            "raw_path": PATH.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": raw,
            "client": ("192.0.2.8", 1),
            "server": ("127.0.0.1", 7801),
        }
        async with asyncio.timeout(30):
            await harness.app(scope, self._receive, self._send)
        return self

    async def _receive(self) -> Message:
        self.requested_paths += 1
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop(0)

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")


def piece(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_what_is_over_the_quota_is_refused_before_it_is_read(harness: GatewayHarness) -> None:
    sent = SentRequest(piece(HEAD))
    await sent.to(harness, "writer", content_length=str(CAPACITY + sending.FORM_BYTES + 1))
    assert (sent.status, sent.requested_paths) == (429, 0)


async def test_an_upload_larger_than_the_free_disk_space_is_refused_before_it_is_read(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.settings, "min_free_bytes", 2**60)
    sent = await SentRequest(piece(HEAD)).to(harness, "owner", content_length="1000")
    assert (sent.status, sent.requested_paths) == (507, 0)


async def test_a_form_that_does_not_say_its_length_has_what_is_left_and_no_more(
    harness: GatewayHarness,
) -> None:
    sent = SentRequest(piece(HEAD), *[piece(b"x" * CAPACITY) for _ in range(5)])
    await sent.to(harness, "writer", transfer_encoding="chunked")
    assert sent.status == 429
    assert sent.requested_paths <= 3


async def test_an_upload_that_is_broken_off_is_nothing_unforeseen(
    harness: GatewayHarness, caplog: pytest.LogCaptureFixture
) -> None:
    sent = SentRequest(piece(HEAD + b"half"), {"type": "http.disconnect"})
    await sent.to(harness, "owner", transfer_encoding="chunked")
    assert sent.status == 400
    assert "interrupted" in sent.body.decode()
    assert "request_failed" not in caplog.text


async def test_an_upload_that_stands_still_is_given_up(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "SECONDS_BETWEEN_PIECES", 0.01)
    sent = await SentRequest(piece(HEAD + b"half")).to(
        harness, "owner", transfer_encoding="chunked"
    )
    assert sent.status == 504


async def test_files_wait_in_the_data_directory_and_nowhere_else(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    large = piece(HEAD + b"a word " * 300_000)
    sent = await SentRequest(large, piece(b"\r\n--b--\r\n", more=False)).to(
        harness, "owner", transfer_encoding="chunked"
    )
    assert sent.status == 303, sent.body


async def test_pictures_come_from_where_the_page_did_whatever_address_readers_have_for_the_blobs(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the policy of the pages names nobody else, and none of them is blocked by it."""
    place = S3Address("https://blobs.example:9000", SecretStr("key"), SecretStr("secret"), "latent")
    presigner = Presigner(place, "0123456789ab")
    monkeypatch.setattr(harness, "stack", replace(harness.stack, presigner=presigner))
    use(monkeypatch, harness, stack=harness.stack)
    page = await harness.ask_json("owner", "GET", f"/v1/documents/{harness.pdf_id}/pages/1")
    assert page["page"]["page_uri"].startswith("https://blobs.example:9000/")
    headers = await session(harness, "owner")
    for path in (f"/console/documents/{harness.pdf_id}", f"/console/search?q=chapter&c={VAULT}"):
        shown = await harness.ask("nobody", "GET", path, headers=headers)
        pictures = re.findall(r'<img src="([^"]+)"', shown.text)
        assert pictures, path
        assert all(one.startswith("/v1/blobs/") for one in pictures)
        assert "img-src 'self';" in shown.headers["content-security-policy"]
        picture = await harness.ask("nobody", "GET", html.unescape(pictures[0]))
        assert picture.headers["content-type"] == "image/webp"
    presigner.close()


async def test_a_full_queue_refuses_what_is_added_says_when_to_come_back_and_takes_it_then(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness.stack.db.reading() as conn:
        waiting = await admin.queued(conn, max_count=10**6)
    settings = harness.settings.model_copy(update={"max_queued_jobs": waiting + 3})
    time = FakeClock()
    use(monkeypatch, harness, quotas=Quotas(settings, time.clock))
    references = [await harness.upload(VAULT, f"{n}.md", f"# Note {n}".encode()) for n in range(5)]

    async def add(reference: str) -> httpx.Response:
        body = {"container_id": VAULT, "file_ref": reference}
        return await harness.ask("owner", "POST", "/v1/containers/add", body=body)

    answers = [await add(reference) for reference in references]
    assert [answer.status_code for answer in answers] == [202, 202, 202, 429, 429]
    refused = answers[-1]
    assert int(refused.headers["retry-after"]) > 0
    (issue,) = refused.json()["issues"]
    assert issue["code"] == "RATE_LIMIT"
    assert "LLC_MAX_QUEUED_JOBS" in issue["message"]
    async with harness.stack.db.reading() as conn:
        assert await admin.queued(conn, max_count=10**6) == waiting + 3, (
            "nothing is stored of the others"
        )

    async with harness.stack.db.transaction() as conn:
        await conn.execute(END_ONE)
    time.now += 2  # the depth is counted once a second
    assert [(await add(reference)).status_code for reference in references[-2:]] == [202, 429]
