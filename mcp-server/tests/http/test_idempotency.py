"""Writes with an ``Idempotency-Key``: done once, answered as often as they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import httpx
import orjson
import pytest
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from latent_core.observability import Metrics
from latent_core.registry.connection import Database
from latent_gateway import idempotency as module
from latent_gateway.auth.principal import Principal
from latent_gateway.idempotency import MOST_KEPT_BYTES, READS, REPLAYED, Idempotency
from latent_gateway.telemetry import RequestMetrics, Telemetry

UPLOADS = "/v1/containers/art/uploads"


@dataclass
class Work:
    """An application that counts what it does."""

    done: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = 201
    headers: dict[str, str] = field(default_factory=dict)
    padding: str = ""
    gate: asyncio.Event | None = None
    trouble: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.done += 1
        self.begun.set()
        number = self.done
        if self.gate is not None:
            await self.gate.wait()
        if self.trouble is not None:
            raise self.trouble
        content = {"n": number, "bytes": len(body), "padding": self.padding}
        await JSONResponse(content, self.status, self.headers)(scope, receive, send)


class Door:
    """Lets everybody in, under the name they give."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = [value.decode() for name, value in scope["headers"] if name == b"x-name"]
        scope["latent.principal"] = Principal(names[0] if names else "agent:a")
        await self._app(scope, receive, send)


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
async def http(work: Work, database: Database) -> AsyncIterator[httpx.AsyncClient]:
    app = Telemetry(
        Door(
            Idempotency(
                work, database, max_bytes=1000, serves=lambda scope: scope["path"] != "/v1/unserved"
            )
        ),
        RequestMetrics(Metrics()),
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


async def send(
    http: httpx.AsyncClient,
    key: str = "k",
    *,
    path: str = "/v1/things",
    content: bytes = b"{}",
    name: str = "agent:a",
) -> httpx.Response:
    headers = {"Idempotency-Key": key, "X-Name": name, "Content-Type": "application/json"}
    return await http.post(path, content=content, headers=headers)


async def test_a_request_that_no_route_takes_is_answered_whatever_its_key_was_for(
    http: httpx.AsyncClient, work: Work
) -> None:
    await send(http)
    assert (await send(http, path="/v1/unserved")).status_code == work.status
    assert work.done == 2


async def test_the_same_request_is_done_once_and_answered_twice(
    http: httpx.AsyncClient, work: Work
) -> None:
    work.headers = {"ETag": '"e"'}
    first, second = await send(http), await send(http)
    assert work.done == 1
    assert (second.status_code, second.content) == (201, first.content)
    assert second.headers["etag"] == '"e"'
    assert REPLAYED not in first.headers
    assert second.headers[REPLAYED] == "true"


@pytest.mark.parametrize(
    "other", [{"content": b'{"a": 1}'}, {"path": "/v1/others"}, {"path": "/v1/things?x=1"}]
)
async def test_a_key_that_was_sent_with_another_request_is_a_conflict(
    other: dict[str, object], http: httpx.AsyncClient, work: Work
) -> None:
    await send(http)
    refused = await send(http, **other)  # type: ignore[arg-type] - of several kinds
    assert refused.status_code == 409
    assert refused.json()["issues"][0]["code"] == "CONFLICT"
    assert work.done == 1


async def test_a_key_belongs_to_who_sent_it(http: httpx.AsyncClient, work: Work) -> None:
    await send(http)
    theirs = await send(http, name="agent:b")
    assert REPLAYED not in theirs.headers
    assert work.done == 2


async def test_a_duplicate_waits_for_the_first_and_gets_its_answer(
    http: httpx.AsyncClient, work: Work
) -> None:
    work.gate = asyncio.Event()
    both = asyncio.gather(send(http), send(http))
    await work.begun.wait()
    work.gate.set()
    answers = await both
    assert work.done == 1
    assert answers[0].content == answers[1].content
    assert sum(REPLAYED in answer.headers for answer in answers) == 1


async def test_an_error_is_not_kept_since_it_changed_nothing(
    http: httpx.AsyncClient, work: Work
) -> None:
    work.status = 404
    assert (await send(http)).status_code == 404
    work.status = 201
    assert (await send(http)).status_code == 201
    assert work.done == 2


async def test_a_request_that_failed_unforeseen_leaves_its_key_free(
    http: httpx.AsyncClient, work: Work
) -> None:
    work.trouble = RuntimeError("unforeseen")
    assert (await send(http)).status_code == 503
    work.trouble = None
    assert (await send(http)).status_code == 201


async def test_a_crashed_request_does_not_lock_its_key_for_ever(
    http: httpx.AsyncClient, work: Work, database: Database
) -> None:
    work.gate = gate = asyncio.Event()
    hung = asyncio.create_task(send(http))
    await work.begun.wait()
    async with database.transaction() as conn:
        await conn.execute("UPDATE idempotency_keys SET locked_until = now() - interval '1 s'")
    work.gate = None
    assert (await send(http)).json()["n"] == 2
    gate.set()
    assert (await hung).json()["n"] == 1  # it was not gone after all, and takes nothing back
    assert (await send(http)).json()["n"] == 2
    assert work.done == 2


async def test_what_nobody_may_store_is_not_kept(http: httpx.AsyncClient, work: Work) -> None:
    work.headers = {"Cache-Control": "no-store"}
    await send(http)
    assert REPLAYED not in (await send(http)).headers
    assert work.done == 2


async def test_an_answer_that_is_too_long_to_be_kept_is_given_whole(
    http: httpx.AsyncClient, work: Work
) -> None:
    work.padding = "x" * MOST_KEPT_BYTES
    answer = await send(http)
    assert len(answer.content) > MOST_KEPT_BYTES
    assert orjson.loads(answer.content)["n"] == 1


async def test_an_upload_is_compared_by_its_bytes(http: httpx.AsyncClient, work: Work) -> None:
    first = await send(http, path=UPLOADS, content=b"lamp")
    again = await send(http, path=UPLOADS, content=b"lamp")
    assert again.content == first.content
    assert (await send(http, path=UPLOADS, content=b"lens")).status_code == 409
    assert (await send(http, path=UPLOADS, content=b"x" * 1001)).status_code == 413
    assert work.done == 1


@pytest.mark.parametrize("key", ["", "two words", "x" * 256, "é"])
async def test_what_is_no_key_is_refused(key: str, http: httpx.AsyncClient, work: Work) -> None:
    refused = await http.post("/v1/things", headers=[(b"Idempotency-Key", key.encode())])
    assert refused.status_code == 400
    assert "Idempotency-Key" in refused.json()["issues"][0]["message"]
    assert work.done == 0


async def test_reading_is_not_touched(http: httpx.AsyncClient, work: Work) -> None:
    for _ in range(2):
        answer = await http.get("/v1/x", headers={"Idempotency-Key": "k"})
        assert answer.status_code == 201
    assert work.done == 2


@pytest.mark.parametrize("path", sorted(READS))
async def test_what_is_only_asked_is_answered_anew_though_it_is_posted(
    path: str, http: httpx.AsyncClient, work: Work
) -> None:
    answers = [await send(http, path=path) for _ in range(2)]
    assert work.done == 2
    assert all(REPLAYED not in answer.headers for answer in answers)


async def test_of_one_principals_answers_the_oldest_are_forgotten(
    http: httpx.AsyncClient, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_KEYS", 2)
    await send(http, "theirs", name="agent:b")
    for key in ("first", "second", "third", "fourth"):
        await send(http, key)
    assert REPLAYED in (await send(http, "third")).headers
    assert REPLAYED in (await send(http, "theirs", name="agent:b")).headers
    assert REPLAYED not in (await send(http, "first")).headers
