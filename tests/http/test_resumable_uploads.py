"""Resumable uploads: offsets, limits, owners and expiry, request by request; bytes are compared in the end."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from latent_core.db import resumable_uploads as rows
from latent_core.ingest.purge import purge_blobs
from latent_gateway.api import resumable_uploads, upload_parts
from latent_workers.maintenance import look
from tests.support.harness.gateway_harness import PLAZA, VAULT, GatewayHarness, empty, manifest

pytestmark = pytest.mark.asyncio(loop_scope="module")

CAPACITY: Final = 3_000_000
MAX_BYTES: Final = 2_000_000
PART: Final = 100_000
UPLOADS: Final = f"/v1/containers/{VAULT}/resumable-uploads"
TUS: Final = {"Tus-Resumable": "1.0.0"}
STREAM: Final = "application/offset+octet-stream"
OLDER: Final = "UPDATE resumable_uploads SET expires_at = now() WHERE id = %(id)s"
PARTS: Final = "SELECT start, bytes FROM upload_parts WHERE upload_id = %(id)s ORDER BY start"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(install_root: Path) -> AsyncIterator[GatewayHarness]:
    folder = install_root / "resumable"
    async with empty(
        folder, quota_upload_bytes_per_day=CAPACITY, max_upload_bytes=MAX_BYTES
    ) as one:
        for container, owners in (
            (VAULT, ["local:you", "agent:a", "agent:b"]),
            (PLAZA, ["agent:b"]),
        ):
            body = {"manifest": manifest(container, [*owners, "local:you"], [])}
            await one.ask_json("owner", "POST", "/v1/containers", body=body)
        await one.make_token("a", "agent:a", scopes=["read", "write"])
        await one.make_token("b", "agent:b", scopes=["read", "write"])
        yield one


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_parts, "PART_BYTES", PART)


def content(size: int, seed: int = 1) -> bytes:
    return Random(seed).randbytes(size)


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def metadata(name: str = "lamp.bin", **more: str) -> str:
    named = {"filename": name, **more}
    return ",".join(f"{key} {encoded(value)}" for key, value in named.items())


async def begin(
    harness: GatewayHarness,
    length: int,
    role: str = "owner",
    body: bytes | None = None,
    **more: str,
) -> httpx.Response:
    headers = {**TUS, "Upload-Length": str(length), "Upload-Metadata": metadata(**more)}
    if body is not None:
        headers["Content-Type"] = STREAM
    return await harness.ask(role, "POST", UPLOADS, content=body, headers=headers)


async def place(harness: GatewayHarness, length: int, role: str = "owner") -> str:
    answer = await begin(harness, length, role)
    assert answer.status_code == 201, answer.text
    return answer.headers["location"]


async def append(
    harness: GatewayHarness, path: str, start: int, body: bytes, role: str = "owner", **more: str
) -> httpx.Response:
    headers = {**TUS, "Upload-Offset": str(start), "Content-Type": STREAM, **more}
    return await harness.ask(role, "PATCH", path, content=body, headers=headers)


async def offset(harness: GatewayHarness, path: str, role: str = "owner") -> int:
    answer = await harness.ask(role, "HEAD", path, headers=TUS)
    assert answer.status_code == 200, answer.status_code
    assert answer.headers["tus-resumable"] == "1.0.0"
    assert answer.headers["cache-control"] == "no-store"
    return int(answer.headers["upload-offset"])


def cause(answer: httpx.Response) -> str:
    message: str = answer.json()["issues"][0]["message"]
    return message


async def stored(harness: GatewayHarness, path: str) -> dict[str, Any]:
    answer = await harness.ask_json("owner", "GET", path)
    view: dict[str, Any] = answer["resumable_upload"]
    return view


async def test_a_file_in_three_requests_is_one_upload_that_becomes_a_document(
    harness: GatewayHarness,
) -> None:
    data = b"# Lamp\n\n" + b"The wick is trimmed at dusk. " * 9000
    answer = await begin(harness, len(data), name="lamp.md", filetype="text/markdown")
    path = answer.headers["location"]
    assert answer.headers["upload-offset"] == "0"
    assert "GMT" in answer.headers["upload-expires"]
    sent = 0
    for size in (1, 150_000, len(data) - 150_001):
        appended = await append(harness, path, sent, data[sent : sent + size])
        sent += size
        assert appended.status_code == 204, appended.text
        assert appended.headers["upload-offset"] == str(sent)
        assert await offset(harness, path) == sent
    view = await stored(harness, path)
    assert view["upload"] == {
        "file_ref": view["file_ref"],
        "filename": "lamp.md",
        "mime": "text/markdown",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    assert view["expires_at"] is None
    body = {"container_id": VAULT, "file_ref": view["file_ref"]}
    added = await harness.ask_json("owner", "POST", "/v1/containers/add", body=body)
    assert added["source_uri"] == "file:///lamp.md"
    again = await append(harness, path, len(data), b"")
    assert again.status_code == 204, "who lost the last answer learns that it is complete"
    blob = await harness.stack.blobs.own.get(view["upload"]["sha256"])
    assert blob == data


async def test_the_first_bytes_may_come_with_the_creation(harness: GatewayHarness) -> None:
    data = content(250_000)
    answer = await begin(harness, len(data), body=data)
    assert answer.status_code == 201, answer.text
    assert answer.headers["upload-offset"] == str(len(data))
    upload = answer.json()["resumable_upload"]["upload"]
    assert upload["sha256"] == hashlib.sha256(data).hexdigest()
    half = await begin(harness, len(data), body=data[:120_000])
    assert half.headers["upload-offset"] == "120000"
    rest = await append(harness, half.headers["location"], 120_000, data[120_000:])
    assert rest.status_code == 204
    assert (await stored(harness, half.headers["location"]))["upload"]["sha256"] == upload["sha256"]


async def test_an_empty_file_is_complete_at_once(harness: GatewayHarness) -> None:
    answer = await begin(harness, 0)
    assert answer.status_code == 201, answer.text
    assert answer.json()["resumable_upload"]["upload"]["bytes"] == 0


async def test_a_large_request_is_stored_in_parts_that_have_rows(harness: GatewayHarness) -> None:
    path = await place(harness, 1_000_000)

    async def pieces() -> AsyncIterator[bytes]:
        for seed in range(7):
            yield content(50_000, seed)

    headers = {**TUS, "Upload-Offset": "0", "Content-Type": STREAM}
    sent: Any = pieces()
    answer = await harness.ask("owner", "PATCH", path, content=sent, headers=headers)
    assert answer.headers["upload-offset"] == "350000"
    async with harness.stack.db.reading() as conn:
        upload_id = path.rpartition("/")[2]
        parts = await (await conn.execute(PARTS, {"id": upload_id})).fetchall()
    assert [(part["start"], part["bytes"]) for part in parts] == [
        (0, 100_000),
        (100_000, 100_000),
        (200_000, 100_000),
        (300_000, 50_000),
    ]


async def test_bytes_at_another_offset_are_refused_with_the_right_one(
    harness: GatewayHarness,
) -> None:
    path = await place(harness, 1000)
    await append(harness, path, 0, content(400))
    for start in (0, 399, 401, 1000):
        answer = await append(harness, path, start, content(100))
        assert answer.status_code == 409
        assert answer.headers["upload-offset"] == "400"
        assert answer.headers["tus-resumable"] == "1.0.0"
    assert await offset(harness, path) == 400


async def test_of_two_writers_at_one_offset_one_wins_and_no_bytes_are_mixed(
    harness: GatewayHarness,
) -> None:
    """The slow one has sent its first half when the quick one is done."""
    first, second = content(60_000, 1), content(60_000, 2)
    path = await place(harness, 120_000)
    async with harness.stack.db.reading() as conn:
        upload = await rows.get(conn, VAULT, _id(path), "local:you")
        assert upload is not None

    quick: list[httpx.Response] = []

    async def slow() -> AsyncIterator[bytes]:
        yield first[:30_000]
        quick.append(await append(harness, path, 0, second))
        yield first[30_000:]

    headers = {**TUS, "Upload-Offset": "0", "Content-Type": STREAM}
    sent: Any = slow()
    late = await harness.ask("owner", "PATCH", path, content=sent, headers=headers)
    assert [quick[0].status_code, late.status_code] == [204, 409]
    assert late.headers["upload-offset"] == "60000"
    assert (await append(harness, path, 60_000, first)).status_code == 204
    whole = (await stored(harness, path))["upload"]["sha256"]
    assert whole == hashlib.sha256(second + first).hexdigest()


async def test_two_writers_of_the_last_bytes_complete_it_once(harness: GatewayHarness) -> None:
    data = content(90_000, 5)
    path = await place(harness, len(data))
    await append(harness, path, 0, data[:50_000])
    quick: list[httpx.Response] = []

    async def slow() -> AsyncIterator[bytes]:
        yield data[50_000:60_000]
        quick.append(await append(harness, path, 50_000, data[50_000:]))
        yield data[60_000:]

    headers = {**TUS, "Upload-Offset": "50000", "Content-Type": STREAM}
    sent: Any = slow()
    late = await harness.ask("owner", "PATCH", path, content=sent, headers=headers)
    assert [quick[0].status_code, late.status_code] == [204, 409]
    assert late.headers["upload-offset"] == str(len(data))
    assert (await stored(harness, path))["upload"]["sha256"] == hashlib.sha256(data).hexdigest()


async def test_an_upload_belongs_to_its_principal_alone(harness: GatewayHarness) -> None:
    path = await place(harness, 1000, "a")
    await append(harness, path, 0, content(500), "a")
    nothing = f"{UPLOADS}/00000000-0000-4000-8000-000000000000"
    for role in ("b", "owner"):
        for method in ("HEAD", "GET", "DELETE"):
            answer = await harness.ask(role, method, path, headers=TUS)
            other = await harness.ask(role, method, nothing, headers=TUS)
            assert (answer.status_code, other.status_code) == (404, 404)
        assert (await append(harness, path, 500, content(500), role)).status_code == 404
    elsewhere = path.replace(VAULT, PLAZA)
    assert (await harness.ask("a", "GET", elsewhere, headers=TUS)).status_code == 404
    assert await offset(harness, path, "a") == 500


async def test_a_file_over_the_limit_is_refused_when_it_begins(harness: GatewayHarness) -> None:
    answer = await begin(harness, MAX_BYTES + 1)
    assert answer.status_code == 413
    assert "LLC_MAX_UPLOAD_BYTES" in cause(answer)
    known = await harness.ask("owner", "OPTIONS", UPLOADS)
    assert known.headers["tus-max-size"] == str(MAX_BYTES)
    assert known.headers["tus-version"] == "1.0.0"


async def test_more_bytes_than_were_announced_are_refused(harness: GatewayHarness) -> None:
    path = await place(harness, 1000)
    answer = await append(harness, path, 0, content(1001))
    assert answer.status_code == 413
    assert await offset(harness, path) == 0


async def test_bytes_count_against_the_day_of_the_token(harness: GatewayHarness) -> None:
    await harness.make_token("guest", "agent:a", scopes=["read", "write"])
    path = await place(harness, MAX_BYTES, "guest")
    half = MAX_BYTES // 2
    assert (await append(harness, path, 0, content(half), "guest")).status_code == 204
    another = await place(harness, MAX_BYTES, "guest")
    assert (await append(harness, another, 0, content(half), "guest")).status_code == 204
    over = await append(harness, another, half, content(half + 1), "guest")
    assert over.status_code == 429
    assert "LLC_QUOTA_UPLOAD_BYTES_PER_DAY" in cause(over)


async def test_a_full_disk_refuses_the_beginning_and_the_bytes(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await place(harness, 1000)
    monkeypatch.setattr(harness.settings, "min_free_bytes", 2**60)
    assert (await begin(harness, 1000)).status_code == 507
    assert (await append(harness, path, 0, content(10))).status_code == 507


async def test_unfinished_uploads_are_bounded_per_principal(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness.stack.db.reading() as conn:
        own = await rows.unfinished(conn, "agent:b", 1000)
    monkeypatch.setattr(resumable_uploads, "MAX_UNFINISHED", own + 2)
    paths = [await place(harness, 10, "b") for _ in range(2)]
    refused = await begin(harness, 10, "b")
    assert refused.status_code == 429
    assert "unfinished" in cause(refused)
    assert (await harness.ask("b", "DELETE", paths[0], headers=TUS)).status_code == 204
    assert (await harness.ask("b", "HEAD", paths[0], headers=TUS)).status_code == 404
    assert (await begin(harness, 10, "b")).status_code == 201


async def test_a_file_that_changed_while_it_was_sent_is_refused_at_the_end(
    harness: GatewayHarness,
) -> None:
    data = content(1000)
    announced = hashlib.sha256(data).hexdigest()
    answer = await begin(harness, 1000, sha256=announced)
    refused = await append(harness, answer.headers["location"], 0, content(1000, seed=9))
    assert refused.status_code == 400
    assert "changed while it was sent" in cause(refused)
    gone = await harness.ask("owner", "HEAD", answer.headers["location"], headers=TUS)
    assert gone.status_code == 404
    whole = await begin(harness, 1000, body=data, sha256=announced)
    assert whole.json()["resumable_upload"]["upload"]["sha256"] == announced


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"Tus-Resumable": "0.2.2"}, 412, "speaks 1.0.0"),
        ({"Upload-Length": "many"}, 400, "Upload-Length"),
        ({"Upload-Defer-Length": "1"}, 400, "Upload-Defer-Length"),
        ({"Upload-Metadata": ""}, 400, "no filename"),
        ({"Upload-Metadata": "filename ???"}, 400, "base64"),
        ({"Upload-Metadata": f"filename {encoded('a')},colour {encoded('red')}"}, 400, "colour"),
        ({"Upload-Metadata": f"filename {encoded('a')},sha256 {encoded('x')}"}, 400, "sha256"),
        ({"Upload-Metadata": f"filename {encoded('..')}"}, 400, "not a file name"),
    ],
)
async def test_a_beginning_that_is_not_valid_says_why(
    harness: GatewayHarness, headers: dict[str, str], status: int, words: str
) -> None:
    given = {**TUS, "Upload-Length": "10", "Upload-Metadata": metadata(), **headers}
    answer = await harness.ask("owner", "POST", UPLOADS, headers=given)
    assert answer.status_code == status
    assert words in cause(answer)
    assert answer.headers["tus-resumable"] == "1.0.0"


async def test_bytes_of_another_content_type_are_refused(harness: GatewayHarness) -> None:
    path = await place(harness, 10)
    answer = await append(harness, path, 0, b"0123456789", **{"Content-Type": "text/plain"})
    assert answer.status_code == 400
    assert STREAM in cause(answer)


async def test_an_upload_that_is_not_continued_expires_and_its_bytes_are_removed(
    harness: GatewayHarness,
) -> None:
    expired, kept = await place(harness, 5000), await place(harness, 5000)
    gone, stays = content(3000, 77), content(3000, 78)
    await append(harness, expired, 0, gone)
    await append(harness, kept, 0, stays)
    async with harness.stack.db.transaction() as conn:
        await conn.execute(OLDER, {"id": expired.rpartition("/")[2]})
    assert (await harness.ask("owner", "HEAD", expired, headers=TUS)).status_code == 404
    await look(harness.settings, harness.stack)

    async def always() -> None:
        """The collection may go on."""

    await purge_blobs(
        harness.stack.db, harness.stack.blobs.own, older_than_seconds=0.0, checkpoint=always
    )
    store = harness.stack.blobs.own
    assert await store.size(_sha(gone)) is None
    assert await store.size(_sha(stays)) == 3000, "what is referred to is never taken"
    assert await offset(harness, kept) == 3000


def _sha(data: bytes) -> Any:
    return hashlib.sha256(data).hexdigest()


def _id(path: str) -> Any:
    return path.rpartition("/")[2]
