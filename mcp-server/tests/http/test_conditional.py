"""Tags of answers, and compression for those who ask."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator

import httpx
import pytest
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from latent_core.wire.base import Envelope
from latent_gateway.middleware import conditional
from latent_gateway.middleware.conditional import has_match, tagged_answer, version_of
from latent_gateway.middleware.requests import CompressionMiddleware


class CompactContent(Envelope):
    text: str = "lamp"
    pages: list[dict[str, str | None]] = []


def tag(body: BaseModel, version: str | None = None) -> str:
    return tagged_answer(body, "r-1", None, version=version).headers["etag"]


def test_an_etag_depends_on_the_content_and_not_on_the_request() -> None:
    assert tag(CompactContent()) == tag(CompactContent(request_id="r-2", timings={"total": 3.0}))
    assert tag(CompactContent()) != tag(CompactContent(text="lens"))
    assert tag(CompactContent()) != tag(CompactContent(partial=True))


def test_a_signature_alone_is_no_news_while_it_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (CompactContent(pages=[{"page_uri": f"/v1/blobs/a?sig={n}"}]) for n in "12")
    elsewhere = CompactContent(pages=[{"page_uri": "/v1/blobs/b?sig=1"}])
    monkeypatch.setattr(conditional, "time", lambda: 600.0)
    first = tag(one)
    assert first == tag(other)
    assert first != tag(elsewhere)
    monkeypatch.setattr(conditional, "time", lambda: 700.0)
    assert first != tag(one)


def test_what_is_known_already_is_not_sent_again() -> None:
    known = tag(CompactContent())
    answer = tagged_answer(CompactContent(), "r-2", f'"x", W/{known}')
    assert (answer.status_code, answer.body) == (304, b"")
    assert answer.headers["etag"] == known
    assert tagged_answer(CompactContent(text="lens"), "r-2", known).status_code == 200


def test_a_version_is_named_by_itself_or_by_a_tag_that_begins_with_it() -> None:
    whole = tag(CompactContent(), "abc")
    assert whole != tag(CompactContent(text="lens"), "abc")
    assert [version_of(v) for v in (whole, '"abc"', " abc ")] == ["abc"] * 3


def test_any_tag_matches_a_star() -> None:
    assert has_match("*", '"a"')
    assert not has_match(None, '"a"')
    assert not has_match("", '"a"')


LONG = {"text": "lamp " * 1000}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    async def events() -> AsyncIterator[bytes]:
        for _ in range(2):
            yield b"data: " + b"x" * 2000 + b"\n\n"

    answers: dict[str, Response] = {
        "/long": JSONResponse(LONG),
        "/short": JSONResponse({"text": "lamp"}),
        "/v1/blobs/a": Response(b"lamp " * 1000, media_type="text/plain"),
        "/events": StreamingResponse(events(), media_type="text/event-stream"),
    }
    await answers[scope["path"]](scope, receive, send)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(CompressionMiddleware(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


@pytest.mark.parametrize(
    ("path", "encoding", "compressed"),
    [
        ("/long", "gzip, br", True),
        ("/long", "identity", False),
        ("/short", "gzip", False),
        ("/v1/blobs/a", "gzip", False),
        ("/events", "gzip", False),
    ],
)
async def test_long_answers_are_compressed_for_who_asks(
    path: str, encoding: str, compressed: bool, http: httpx.AsyncClient
) -> None:
    async with http.stream("GET", path, headers={"Accept-Encoding": encoding}) as answer:
        raw = b"".join([piece async for piece in answer.aiter_raw()])
    assert (answer.headers.get("content-encoding") == "gzip") is compressed
    if compressed:
        assert gzip.decompress(raw) == JSONResponse(LONG).body
        assert "accept-encoding" in answer.headers["vary"].lower()
        assert len(raw) < 500
