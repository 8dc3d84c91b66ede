"""The tab Add and the routes of its script, over HTTP: what is skipped, what a form says to wrong input, two sessions."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import pytest
import pytest_asyncio

from tests.support.harness.console_http import sign_in
from tests.support.harness.gateway_harness import BASE, VAULT, GatewayHarness, empty, manifest

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE: Final = f"/console/containers/{VAULT}/add"
UPLOADS: Final = f"/console/containers/{VAULT}/resumable-uploads"
STREAM: Final = {"Content-Type": "application/offset+octet-stream"}
MAX_BYTES: Final = 1_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(install_root: Path) -> AsyncIterator[GatewayHarness]:
    async with empty(install_root / "adding-routes", max_upload_bytes=MAX_BYTES) as one:
        body = {"manifest": manifest(VAULT, ["local:you"], ["agent:reader"])}
        await one.ask_json("owner", "POST", "/v1/containers", body=body)
        await one.make_token("reader", "agent:reader", scopes=["read", "write"])
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def browser(harness: GatewayHarness) -> AsyncIterator[httpx.AsyncClient]:
    async with signed_in(harness, "owner") as one:
        await sign_in(one, harness.tokens["owner"])
        yield one


def signed_in(harness: GatewayHarness, role: str) -> httpx.AsyncClient:
    number = harness.number() % 200
    transport = httpx.ASGITransport(harness.app, client=(f"192.0.2.{number}", 1))
    return httpx.AsyncClient(transport=transport, base_url=BASE, headers={"Origin": BASE})


def beginning(size: int, name: str = "a.md") -> dict[str, str]:
    encoded = base64.b64encode(name.encode()).decode()
    return {**STREAM, "Upload-Length": str(size), "Upload-Metadata": f"filename {encoded}"}


async def test_a_file_of_a_folder_keeps_its_path_and_its_time(
    harness: GatewayHarness, browser: httpx.AsyncClient
) -> None:
    query = {"path": "harbour/log/mon & tue.md", "modified": "1700000000000"}
    answer = await browser.post(UPLOADS, params=query, content=b"# Log", headers=beginning(5))
    assert answer.status_code == 200, answer.text
    found = await harness.ask_json(
        "owner", "GET", f"/v1/containers/{VAULT}/documents/{answer.json()['doc_id']}"
    )
    assert found["document"]["source_uri"] == "file:///harbour/log/mon & tue.md"
    jobs = {"jobs": [int(answer.json()["job_id"])]}
    progress = await browser.post(f"/console/containers/{VAULT}/progress", json=jobs)
    assert progress.json() == {"open": [answer.json()["job_id"]], "failed": []}


async def test_a_file_whose_last_answer_was_lost_is_the_same_document(
    browser: httpx.AsyncClient,
) -> None:
    query = {"path": "lost.md"}
    begun = await browser.post(UPLOADS, params=query, content=b"# Lost", headers=beginning(9))
    assert begun.json()["job_id"] is None
    place = f"{UPLOADS}/{begun.json()['file_ref']}"
    headers = {**STREAM, "Upload-Offset": "6"}
    whole = await browser.patch(place, params=query, content=b" it", headers=headers)
    assert whole.json()["job_id"] is not None
    known = await browser.get(place)
    assert known.json()["received"] == 9
    again = await browser.patch(
        place, params=query, content=b"", headers={**STREAM, "Upload-Offset": "9"}
    )
    assert again.json()["doc_id"] == whole.json()["doc_id"]


async def test_errors_are_answers_that_the_script_can_read(browser: httpx.AsyncClient) -> None:
    large = await browser.post(
        UPLOADS, params={"path": "a.md"}, content=b"x", headers=beginning(MAX_BYTES + 1)
    )
    assert large.status_code == 413
    assert "LLC_MAX_UPLOAD_BYTES" in large.json()["issues"][0]["message"]
    unnamed = await browser.post(UPLOADS, content=b"x", headers=beginning(1))
    assert unnamed.status_code == 400
    assert unnamed.json()["issues"][0]["code"] == "INVALID"


async def test_a_reader_sees_neither_tab_nor_script_and_is_refused(harness: GatewayHarness) -> None:
    async with signed_in(harness, "reader") as reader:
        await sign_in(reader, harness.tokens["reader"])
        shown = await reader.get(f"/console/containers/{VAULT}")
        assert shown.status_code == 200
        assert "/add" not in shown.text
        assert "adding.js" not in shown.text
        for path, sent in (
            (f"{PAGE}/text", {"data": {"text": "words"}}),
            (f"{PAGE}/address", {"data": {"uri": "https://example.org"}}),
            (UPLOADS, {"params": {"path": "a"}, "headers": beginning(1), "content": b"a"}),
        ):
            answer = await reader.post(path, **sent)  # type: ignore[arg-type]
            assert answer.status_code == 403, path


async def test_a_text_becomes_a_note_or_a_document(
    harness: GatewayHarness, browser: httpx.AsyncClient
) -> None:
    note = {"text": "The wick is trimmed at dusk.", "title": "Wick"}
    answer = await browser.post(f"{PAGE}/text", data=note)
    assert answer.status_code == 303, answer.text
    document = {"text": "# Lens: a *manual*\r\n\r\nTurn it.", "title": "", "kind": "document"}
    second = await browser.post(f"{PAGE}/text", data=document)
    assert second.status_code == 303, second.text
    shown = await browser.get(second.headers["location"])
    assert "Lens a manual.md" in shown.text
    assert "The text was added." in shown.text
    listed = await harness.ask_json("owner", "GET", f"/v1/containers/{VAULT}/documents")
    uris = {one["source_uri"]: one for one in listed["documents"]}
    assert uris["file:///Lens a manual.md"]["bytes"] in (
        None,
        len("# Lens: a *manual*\n\nTurn it."),
    )
    assert [uri for uri in uris if uri.startswith("note:")]


@pytest.mark.parametrize(
    ("form", "sent", "words"),
    [
        ("text", {"text": "   ", "title": "Kept"}, "There is no text yet"),
        ("address", {"uri": ""}, "There is no address yet"),
        ("address", {"uri": "ftp://example.org/a"}, "must be http or https"),
        ("address", {"uri": "http://127.0.0.1:1/a"}, "127.0.0.1"),
    ],
)
async def test_wrong_input_is_shown_again_with_the_cause_at_its_field(
    browser: httpx.AsyncClient, form: str, sent: dict[str, str], words: str
) -> None:
    answer = await browser.post(f"{PAGE}/{form}", data=sent)
    assert answer.status_code >= 422, answer.text
    assert words in answer.text
    assert 'aria-invalid="true"' in answer.text
    for value in sent.values():
        assert value.strip() in answer.text
