"""Ways around the rights, tried one by one: guessed ids, cursors of others, old links, streams, secrets in stores."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from time import time
from typing import Any, Final
from uuid import uuid4

import httpx
import orjson
import pytest
import pytest_asyncio

from latent_core.db.doctor import checks
from latent_core.db.documents import pdf_status
from latent_core.domain.errors import RateLimited
from latent_core.domain.token import new_token
from latent_core.queue.enqueue import enqueue
from latent_core.refresh.lifecycle import refresh_job
from latent_core.wire.refresh import RefreshPayload, Strategy
from latent_gateway.api import admin
from latent_gateway.auth.quotas import Quotas
from latent_gateway.auth.tokens import MAX_FAILURES
from latent_gateway.context import TTL_SECONDS
from tests.support.harness.gateway_harness import (
    BASE,
    PLAZA,
    SECRET,
    VAULT,
    VAULT_MANIFEST,
    GatewayHarness,
    furnished,
    statements,
)
from tests.support.harness.installation import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIST: Final = "/v1/containers/list"
END: Final = "UPDATE jobs SET state = %(state)s WHERE id = %(id)s"
DESCRIBE: Final = f"/v1/containers/describe?container_id={VAULT}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(install_root: Path) -> AsyncIterator[GatewayHarness]:
    async with furnished(install_root / "leaks") as one:
        yield one


async def apply(harness: GatewayHarness, **acl: list[str]) -> None:
    """Change the roles of the vault."""
    etag = (await harness.ask_json("owner", "GET", DESCRIBE))["etag"]
    roles = {**VAULT_MANIFEST["acl"]["roles"], **acl}
    body = {"manifest": {**VAULT_MANIFEST, "acl": {"roles": roles}}}
    await harness.ask_json(
        "owner", "PUT", f"/v1/containers/{VAULT}", body=body, headers={"If-Match": f'"{etag}"'}
    )


async def test_a_token_is_worth_nothing_from_the_request_after_its_revocation(
    harness: GatewayHarness,
) -> None:
    await harness.make_token("brief", "agent:reader", name="brief")
    assert (await harness.ask("brief", "GET", DESCRIBE)).status_code == 200
    await harness.ask_json("owner", "DELETE", f"/v1/tokens/{harness.token_ids['brief']}")
    for path in (DESCRIBE, LIST, "/mcp/tools"):
        refused = await harness.ask("brief", "GET", path)
        assert refused.status_code == 401
        assert "revoked" in refused.json()["issues"][0]["message"]


async def test_a_change_of_roles_holds_from_the_next_request_on(harness: GatewayHarness) -> None:
    assert (await harness.ask("reader", "GET", DESCRIBE)).status_code == 200
    await apply(harness, reader=[])
    try:
        assert (await harness.ask("reader", "GET", DESCRIBE)).status_code == 404
        found = await harness.result(
            "reader", "tools/call", name="documents_get", arguments={"doc_id": harness.doc_id}
        )
        assert found["isError"]
    finally:
        await apply(harness)
    assert (await harness.ask("reader", "GET", DESCRIBE)).status_code == 200


async def test_a_readonly_container_is_searched_and_takes_nothing(harness: GatewayHarness) -> None:
    state = f"/v1/containers/{VAULT}/state"
    added = await harness.add(VAULT, "before.md", b"before")
    await harness.ask_json("owner", "PUT", state, body={"state": "readonly"})
    try:
        body = {"containers": [VAULT], "query": "glass", "top_k": 1}
        assert (await harness.ask_json("reader", "POST", "/v1/search", body=body))["hits"]
        doc = f"/v1/containers/{VAULT}/documents/{added['doc_id']}"
        listing = {"root": "r", "files": [], "delete_vanished": True}
        for method, path, sent in [
            ("POST", "/v1/containers/add", {"container_id": VAULT, "file_ref": harness.upload_id}),
            ("POST", f"/v1/containers/{VAULT}/listing", listing),
            ("POST", f"/v1/containers/{VAULT}/uploads?filename=a.md", None),
            ("DELETE", doc, None),
        ]:
            refused = await harness.ask("writer", method, path, body=sent)
            assert refused.status_code == 409, path
            assert "latent container state vault active" in refused.text
        job = f"/v1/jobs/{added['job_id']}"
        await harness.ask_json("writer", "POST", f"{job}/cancel")
        refused = await harness.ask("writer", "POST", f"{job}/requeue")
        assert refused.status_code == 409
        assert "latent container state vault active" in refused.text
    finally:
        await harness.ask_json("owner", "PUT", state, body={"state": "active"})
    await harness.ask_json("owner", "DELETE", doc)


@pytest.mark.parametrize("closed", ["readonly", "archived"])
async def test_a_closed_container_is_neither_changed_nor_rolled_back_nor_deleted(
    harness: GatewayHarness, closed: str
) -> None:
    path = f"/v1/containers/{VAULT}"
    state = f"{path}/state"
    await harness.ask_json("owner", "PUT", state, body={"state": closed})
    try:
        etag = (await harness.ask_json("owner", "GET", DESCRIBE))["etag"]
        renamed = {"manifest": {**VAULT_MANIFEST, "name": "Renamed"}}
        only = {"container_id": VAULT}
        for method, request_path, words in [
            ("PUT", path, {"body": renamed, "headers": {"If-Match": f'"{etag}"'}}),
            ("POST", "/v1/admin/rollback", {"body": only}),
            ("POST", "/v1/admin/refresh", {"body": {**only, "strategy": "inplace"}}),
            ("DELETE", path, {}),
        ]:
            refused = await harness.ask("owner", method, request_path, **words)
            assert refused.status_code == 409, (request_path, refused.text)
            assert "latent container state vault active" in refused.text
            assert f"is {closed}" in refused.text
        described = await harness.ask_json("owner", "GET", DESCRIBE)
        assert (described["etag"], described["state"]) == (etag, closed)
    finally:
        await harness.ask_json("owner", "PUT", state, body={"state": "active"})
    assert (await harness.ask("owner", "GET", DESCRIBE)).status_code == 200


async def test_what_takes_scope_admin_to_begin_takes_it_to_end_and_to_begin_again(
    harness: GatewayHarness,
) -> None:
    body = {"container_id": VAULT}
    job_id = (await harness.ask_json("owner", "POST", "/v1/backups", body=body))["job_id"]
    job = f"/v1/jobs/{job_id}"
    assert (await harness.ask("ingester", "POST", f"{job}/cancel")).status_code == 403
    assert (await harness.ask_json("owner", "GET", job))["job"]["state"] == "queued"
    await harness.ask_json("writer", "POST", f"{job}/cancel")
    refused = await harness.ask("ingester", "POST", f"{job}/requeue")
    assert (refused.status_code, "'admin'" in refused.text) == (403, True)
    await harness.ask_json("writer", "POST", f"{job}/requeue")
    await harness.ask_json("writer", "POST", f"{job}/cancel")


async def test_all_that_failed_is_requeued_as_far_as_the_caller_could_have_begun_it(
    harness: GatewayHarness,
) -> None:
    body = {"container_id": VAULT}
    backup = (await harness.ask_json("owner", "POST", "/v1/backups", body=body))["job_id"]
    ingest = (await harness.add(VAULT, f"failed-{harness.number()}.md", b"never made"))["job_id"]
    async with harness.stack.db.transaction() as conn:
        for job_id in (backup, ingest):
            await conn.execute(END, {"state": "failed", "id": job_id})
    path = "/v1/requeue"
    answer_body = await harness.ask_json("ingester", "POST", path, body=body)
    assert (answer_body["job_ids"], answer_body["left"], answer_body["next_cursor"]) == (
        [ingest],
        0,
        None,
    )
    assert (await harness.ask_json("owner", "POST", path, body=body))["job_ids"] == [backup]
    assert (await harness.ask_json("owner", "POST", path, body=body))["job_ids"] == []
    for job_id in (backup, ingest):
        await harness.ask_json("owner", "POST", f"/v1/jobs/{job_id}/cancel")


async def test_as_many_are_requeued_as_the_queue_takes_and_the_others_are_counted(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"container_id": VAULT}
    jobs = [
        (await harness.add(VAULT, f"full-{harness.number()}.md", b"never made"))["job_id"]
        for _ in range(5)
    ]
    async with harness.stack.db.transaction() as conn:
        for job_id in jobs:
            await conn.execute(END, {"state": "failed", "id": job_id})
    remaining = 2

    async def check_queue(*_: Any) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining < 0:
            raise RateLimited("the queue is full", retry_after=7)

    monkeypatch.setattr(Quotas, "check_queue", check_queue)
    some = await harness.ask("owner", "POST", "/v1/requeue", body=body)
    answer_body = some.json()
    assert (some.status_code, some.headers["Retry-After"]) == (202, "7")
    assert (answer_body["job_ids"], answer_body["remaining"], answer_body["partial"]) == (
        jobs[:2],
        3,
        True,
    )
    assert answer_body["issues"][0]["code"] == "RATE_LIMIT"
    none = await harness.ask("owner", "POST", "/v1/requeue", body=body)
    assert (none.status_code, none.headers["Retry-After"]) == (429, "7")
    assert none.json()["issues"][0]["details"]["remaining"] == 3
    remaining = 100
    rest = await harness.ask_json(
        "owner", "POST", "/v1/requeue", body=body | {"cursor": answer_body["next_cursor"]}
    )
    assert (rest["job_ids"], rest["remaining"], rest["next_cursor"]) == (jobs[2:], 0, None)
    monkeypatch.undo()
    for job_id in jobs:
        await harness.ask_json("owner", "POST", f"/v1/jobs/{job_id}/cancel")


async def test_totals_of_pdfs_are_counted_for_the_first_page_only(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        await harness.add(VAULT, f"counted-{number}.pdf", b"%PDF-1.7")
    path = f"/v1/admin/pdf-status?container_id={VAULT}&limit=1"
    first = await harness.ask_json("owner", "GET", path)
    assert first["totals"]["documents"] >= 2

    async def totals(*_: Any) -> None:
        raise AssertionError("counted again")

    monkeypatch.setattr(pdf_status, "totals", totals)
    second = await harness.ask_json("owner", "GET", f"{path}&cursor={first['next_cursor']}")
    assert second["totals"] is None
    assert second["documents"]


async def test_a_refresh_is_not_requeued_while_another_is_open(harness: GatewayHarness) -> None:
    payload = RefreshPayload(strategy=Strategy.INPLACE, space_id=1)
    jobs = []
    for state in ("cancelled", "running"):
        async with harness.stack.db.transaction() as conn:
            jobs.append(await enqueue(conn, refresh_job(VAULT, payload, "local:you")))
            await conn.execute(END, {"state": state, "id": jobs[-1]})
    path = f"/v1/jobs/{jobs[0]}/requeue"
    try:
        refused = await harness.ask("owner", "POST", path)
        assert refused.status_code == 409
        assert refused.json()["issues"][0]["details"] == {"job_id": str(jobs[1])}
    finally:
        async with harness.stack.db.transaction() as conn:
            await conn.execute(END, {"state": "cancelled", "id": jobs[1]})
    await harness.ask_json("owner", "POST", path)
    await harness.ask_json("owner", "POST", f"/v1/jobs/{jobs[0]}/cancel")


async def test_an_error_before_any_route_says_to_browsers_what_every_answer_says(
    harness: GatewayHarness,
) -> None:
    refused = await harness.ask("nobody", "POST", "/v1/tokens")
    assert refused.status_code == 401
    assert refused.headers["x-content-type-options"] == "nosniff"
    assert refused.headers["x-frame-options"] == "DENY"
    assert "x-request-id" in refused.headers


async def test_the_stores_are_compared_once_at_a_time_and_not_for_ever(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"container_id": VAULT}
    async with checks.alone(harness.stack.db):
        refused = await harness.ask("owner", "POST", "/v1/admin/doctor", body=body)
        assert (refused.status_code, "retry when it has ended" in refused.text) == (409, True)
    await harness.ask_json("owner", "POST", "/v1/admin/doctor", body=body)
    with monkeypatch.context() as patched:
        patched.setattr(admin, "LONGEST_SECONDS", 0.0)
        late = await harness.ask("owner", "POST", "/v1/admin/doctor", body=body)
        assert (late.status_code, late.json()["issues"][0]["code"]) == (504, "TIMEOUT")
    await harness.ask_json("owner", "POST", "/v1/admin/doctor", body=body)


async def test_a_search_of_all_says_so_when_it_left_some_out(
    harness: GatewayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"query": "glass"}
    second = {"id": "second", "name": "Second"}
    await harness.ask_json("owner", "POST", "/v1/containers", body={"manifest": second})
    whole = await harness.ask_json("owner", "POST", "/v1/doc_search", body=body)
    assert not whole["partial"]
    monkeypatch.setattr(harness.settings, "search_max_containers", 1)
    cut = await harness.ask_json("owner", "POST", "/v1/doc_search", body=body)
    assert cut["partial"]
    assert "List the ones you need" in cut["issues"][-1]["message"]
    named = {**body, "containers": [VAULT]}
    transport = httpx.ASGITransport(harness.app, client=("192.0.2.9", 1))
    headers = {"Origin": BASE}
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as browser:
        await browser.post("/login", data={"token": harness.tokens["owner"]})
        page = await browser.get("/console/search?q=glass")
        assert "partial results" in page.text
        assert "List the ones you need" in page.text
        page = await browser.get(f"/console/search?q=glass&c={VAULT}")
        assert "List the ones you need" not in page.text
    assert not (await harness.ask_json("owner", "POST", "/v1/doc_search", body=named))["partial"]


async def test_an_archived_container_is_seen_by_its_owners_alone_and_searched_by_nobody(
    harness: GatewayHarness,
) -> None:
    state = f"/v1/containers/{VAULT}/state"
    body = {"containers": [VAULT], "query": "glass", "top_k": 1}
    await harness.ask_json("writer", "PUT", state, body={"state": "archived"})
    try:
        assert (await harness.ask("reader", "GET", DESCRIBE)).status_code == 404
        assert VAULT not in (await harness.ask("reader", "GET", LIST)).text
        assert (await harness.ask("reader", "POST", "/v1/search", body=body)).status_code == 404
        assert (await harness.ask("writer", "POST", "/v1/search", body=body)).status_code == 409
        assert (await harness.ask_json("writer", "GET", DESCRIBE))["state"] == "archived"
        found = await harness.ask("writer", "POST", "/v1/doc_search", body={"query": "glass"})
        assert SECRET not in found.text
        pages = await harness.ask("reader", "GET", f"/v1/documents/{harness.doc_id}/pages")
        assert pages.status_code == 404
        update = {"manifest": VAULT_MANIFEST}
        path, headers = f"/v1/containers/{VAULT}", {"If-Match": f'"{harness.etag}"'}
        assert (
            await harness.ask("writer", "PUT", path, body=update, headers=headers)
        ).status_code == 409
    finally:
        await harness.ask_json("writer", "PUT", state, body={"state": "active"})
    assert (await harness.ask("reader", "GET", DESCRIBE)).status_code == 200


async def test_a_cursor_of_one_list_opens_nothing_of_another(harness: GatewayHarness) -> None:
    for path in (f"/v1/containers/{VAULT}/documents", f"/v1/containers/{VAULT}/chunks", "/v1/jobs"):
        page = await harness.ask_json("owner", "GET", f"{path}?limit=1")
        cursor = page["next_cursor"]
        assert cursor, path
        with_cursor = f"{path.replace(VAULT, PLAZA)}?limit=1&cursor={cursor}"
        answer = await harness.ask("other", "GET", with_cursor)
        assert SECRET not in answer.text
        assert VAULT not in answer.text
        assert (await harness.ask("other", "GET", f"{path}?cursor={cursor}")).status_code == (
            200 if path == "/v1/jobs" else 404
        )
    for number in range(2):
        await harness.add(VAULT, f"paged-{number}.pdf", b"%PDF-1.7")
    status = await harness.ask_json(
        "owner", "GET", f"/v1/admin/pdf-status?container_id={VAULT}&limit=1"
    )
    cursor = status["next_cursor"]
    for path in ("/v1/admin/pdf-status", "/v1/backups"):
        answer = await harness.ask("other", "GET", f"{path}?cursor={cursor}")
        assert VAULT not in answer.text, path
        request_path = f"{path}?container_id={VAULT}&cursor={cursor}"
        assert (await harness.ask("other", "GET", request_path)).status_code in (400, 404)
    trail = await harness.ask_json("owner", "GET", "/v1/audit?limit=1")
    answer = await harness.ask("other", "GET", f"/v1/audit?cursor={trail['next_cursor']}")
    assert VAULT not in answer.text


async def test_what_is_anothers_is_not_reached_through_ones_own_container(
    harness: GatewayHarness,
) -> None:
    """Uploads, documents and chunks are looked for within the container that was asked."""
    own = f"/v1/containers/{PLAZA}"
    add = {"container_id": PLAZA, "file_ref": harness.upload_id}
    assert (await harness.ask("other", "POST", "/v1/containers/add", body=add)).status_code == 404
    for path in (f"documents/{harness.doc_id}", f"chunks/{harness.chunk_id}"):
        assert (await harness.ask("other", "GET", f"{own}/{path}")).status_code == 404
    assert (
        await harness.ask("other", "DELETE", f"{own}/documents/{harness.doc_id}")
    ).status_code == 404
    stats = await harness.ask("other", "GET", f"{own}/chunks/stats?doc_id={harness.doc_id}")
    assert stats.json()["total"] is None or stats.json()["total"]["chunks"] == 0
    for ref in (harness.upload_id, harness.doc_id, f"page://{harness.doc_id}/1"):
        body = {"containers": [PLAZA], "query": "", "image_ref": ref, "top_k": 1}
        answer = await harness.ask("other", "POST", "/v1/search", body=body)
        assert answer.status_code == 404
        assert SECRET not in answer.text


async def test_the_same_bytes_in_two_containers_tell_nothing_of_each_other(
    harness: GatewayHarness,
) -> None:
    note = f"# The {SECRET} ledger\n\nWhoever keeps {SECRET} keeps it in glass.\n".encode()
    path = f"/v1/containers/{PLAZA}/uploads?filename=same.md"
    mine = (await harness.ask_json("other", "POST", path, content=note))["upload"]
    new = (await harness.ask_json("other", "POST", path, content=note + b"x"))["upload"]
    assert set(mine) == set(new)
    listing = {
        "root": "r",
        "files": [{"path": "same.md", "bytes": len(note), "mtime_ns": 1, "sha256": mine["sha256"]}],
    }
    answer_body = await harness.ask_json(
        "other", "POST", f"/v1/containers/{PLAZA}/listing", body=listing
    )
    assert answer_body["need"] == ["same.md"]


async def test_a_signed_link_outlives_the_right_by_no_more_than_five_minutes(
    harness: GatewayHarness,
) -> None:
    page = await harness.ask_json("reader", "GET", f"/v1/documents/{harness.doc_id}/pages/1")
    link = page["page"]["page_uri"].removeprefix(BASE)
    (expiry,) = re.findall(r"exp=(\d+)", link)
    await apply(harness, reader=[])
    try:
        assert (await harness.ask("nobody", "GET", link)).status_code == 200
        longer = link.replace(f"exp={expiry}", f"exp={int(expiry) + 1}")
        assert (await harness.ask("nobody", "GET", longer)).status_code == 403
        past = link.replace(f"exp={expiry}", "exp=1")
        assert (await harness.ask("nobody", "GET", past)).status_code == 403
        assert (
            await harness.ask("reader", "GET", f"/v1/documents/{harness.doc_id}/pages/1")
        ).status_code == 404
    finally:
        await apply(harness)
    assert TTL_SECONDS <= 300


async def test_the_link_to_an_original_needs_the_right_and_serves_only_what_was_signed(
    harness: GatewayHarness,
) -> None:
    path = f"/v1/documents/{harness.doc_id}/original"
    link = (await harness.ask_json("reader", "GET", path))["url"].removeprefix(BASE)
    assert int(re.findall(r"exp=(\d+)", link)[0]) <= time() + TTL_SECONDS + 1
    assert (await harness.ask("nobody", "GET", link)).status_code == 200
    for change in (
        ("disposition=attachment", "disposition=inline"),
        ("type=", "type=text%2Fhtml&was="),
        ("filename=", "filename=x&was="),
    ):
        assert (await harness.ask("nobody", "GET", link.replace(*change))).status_code in (400, 403)
    missing = await harness.ask("other", "GET", f"/v1/documents/{uuid4()}/original")
    foreign = await harness.ask("other", "GET", path)
    assert foreign.status_code == missing.status_code == 404
    assert SECRET not in foreign.text
    await apply(harness, reader=[])
    try:
        assert (await harness.ask("reader", "GET", path)).status_code == 404
    finally:
        await apply(harness)


async def test_a_stream_ends_when_its_token_does(harness: GatewayHarness) -> None:
    """It lasts for hours: whoever lost the right in its midst is not told on."""
    await harness.make_token("watcher", "agent:reader", name="watcher")
    added = await harness.add(VAULT, f"{harness.number()}.md", b"never made")
    path = f"/v1/jobs/{added['job_id']}/events"
    streams = harness.app.state.gateway.streams
    watching = asyncio.create_task(harness.ask("watcher", "GET", path))

    async def open_() -> bool:
        return bool(streams.open.total)

    await eventually(open_, what="the stream to be open")
    await harness.ask_json("owner", "DELETE", f"/v1/tokens/{harness.token_ids['watcher']}")
    async with asyncio.timeout(30):
        answer = await watching
    assert answer.status_code == 200
    assert "event: enqueued" in answer.text
    assert "event: end" not in answer.text
    await harness.ask_json("owner", "POST", f"/v1/jobs/{added['job_id']}/cancel")


async def test_guessed_ids_are_answered_alike_whether_they_are_there_or_not(
    harness: GatewayHarness,
) -> None:
    jobs = await harness.ask_json("owner", "GET", "/v1/jobs?limit=500")
    last = max(int(job["job_id"]) for job in jobs["jobs"])
    answer_body = set()
    for job_id in (*range(1, last + 30), 2**63 - 1, 2**63, 10**30):
        answer = await harness.ask("other", "GET", f"/v1/jobs/{job_id}")
        (issue,) = answer.json()["issues"]
        assert issue.pop("details") == {"job_id": str(job_id)}
        message = issue.pop("message").replace(f"job {job_id} ", "job … ")
        answer_body.add((answer.status_code, message, str(issue)))
    assert len(answer_body) == 1


async def test_a_token_stands_in_no_table_no_answer_and_no_log(
    harness: GatewayHarness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    body = {"principal": "agent:quiet", "name": "once"}
    made = await harness.ask("owner", "POST", "/v1/tokens", body=body)
    secret = made.json()["secret"]
    assert made.headers["cache-control"] == "no-store"
    harness.tokens["quiet"] = secret
    await harness.ask("quiet", "GET", LIST)
    listed = await harness.ask("owner", "GET", "/v1/tokens?all=true&limit=500")
    trail = await harness.ask("owner", "GET", "/v1/audit?limit=500")
    assert secret not in listed.text + trail.text + caplog.text
    async with harness.stack.db.reading() as conn:
        tables = await (
            await conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ).fetchall()
        for table in tables:
            rows = f"SELECT t::text AS row FROM {table['tablename']} t"
            stored = await (await conn.execute(rows.encode())).fetchall()
            written = " ".join(row["row"] for row in stored)
            assert secret not in written, table
            assert secret.encode().hex() not in written, table


async def test_wrong_tokens_are_answered_ever_later_and_good_ones_at_once(
    harness: GatewayHarness,
) -> None:
    """From one address; what is mistyped costs no query."""

    async def tried(token: str) -> httpx.Response:
        transport = httpx.ASGITransport(harness.app, client=("192.0.2.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as http:
            return await http.get(LIST, headers={"Authorization": f"Bearer {token}"})

    good = harness.tokens["reader"]
    assert (await tried(good)).status_code == 200
    with statements() as sent:
        mistyped = await tried(f"{good[:-1]}{'a' if good[-1] != 'a' else 'b'}")
        assert (mistyped.status_code, "wrong or missing" in mistyped.text) == (401, True)
    assert sent == []
    codes = [(await tried(new_token())).status_code for _ in range(MAX_FAILURES + 5)]
    assert codes[: MAX_FAILURES - 1] == [401] * (MAX_FAILURES - 1)
    refused = await tried(new_token())
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["issues"][0]["code"] == "RATE_LIMIT"
    assert (await tried(good)).status_code == 200
    await harness.make_token("newcomer", "agent:reader", name="newcomer")
    assert (await tried(harness.tokens["newcomer"])).status_code == 200  # never seen before
    assert (await harness.ask("other", "GET", LIST)).status_code == 200


async def test_every_change_over_http_stands_in_the_trail_with_its_request(
    harness: GatewayHarness,
) -> None:
    added = await harness.add(VAULT, f"{harness.number()}.md", b"trail")
    job = f"/v1/jobs/{added['job_id']}"
    etag = (await harness.ask_json("owner", "GET", DESCRIBE))["etag"]
    made = {**VAULT_MANIFEST, "id": "brief"}
    upload = f"/v1/containers/{VAULT}/uploads?filename=t.md"
    token = {"principal": "agent:t", "name": "t"}
    changes: list[tuple[str, str, str, dict[str, Any]]] = [
        ("container.create", "POST", "/v1/containers", {"body": {"manifest": made}}),
        (
            "container.apply",
            "PUT",
            f"/v1/containers/{VAULT}",
            {"body": {"manifest": VAULT_MANIFEST}, "headers": {"If-Match": f'"{etag}"'}},
        ),
        ("container.state", "PUT", "/v1/containers/brief/state", {"body": {"state": "readonly"}}),
        ("container.state", "PUT", "/v1/containers/brief/state", {"body": {"state": "active"}}),
        ("container.delete", "DELETE", "/v1/containers/brief", {}),
        ("upload.add", "POST", upload, {"content": b"x"}),
        (
            "document.add",
            "POST",
            "/v1/containers/add",
            {"body": {"container_id": VAULT, "file_ref": harness.upload_id}},
        ),
        ("job.cancel", "POST", f"{job}/cancel", {}),
        ("job.requeue", "POST", f"{job}/requeue", {}),
        ("document.delete", "DELETE", f"/v1/containers/{VAULT}/documents/{added['doc_id']}", {}),
        ("token.create", "POST", "/v1/tokens", {"body": token}),
    ]
    answer_body = b""
    for action, method, path, sent in changes:
        number = f"trail-{harness.number()}"
        headers = {**sent.pop("headers", {}), "X-Request-Id": number}
        answer = await harness.ask("owner", method, path, headers=headers, **sent)
        assert answer.is_success, answer.text
        lines = (await harness.ask_json("owner", "GET", "/v1/audit?limit=5"))["audit"]
        written = [
            (line["action"], line["principal"]) for line in lines if line["request_id"] == number
        ]
        assert written == [(action, "local:you")]
        answer_body = answer.content
    token_id = orjson.loads(answer_body)["token"]["id"]
    await harness.ask_json("owner", "DELETE", f"/v1/tokens/{token_id}")
    await harness.ask_json("owner", "DELETE", f"/v1/tokens/{token_id}")
    lines = (await harness.ask_json("owner", "GET", "/v1/audit?action=token.revoke&limit=500"))[
        "audit"
    ]
    assert [line["object"] for line in lines].count(f"{token_id} agent:t t") == 1
