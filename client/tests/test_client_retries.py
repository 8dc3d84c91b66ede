"""Calls that are sent again, and those that are not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from latent_client import AsyncClient, retry
from latent_client.errors import ConnectionLost, GatewayUnreachable
from latent_client.retry import MAX_ATTEMPTS, Retries, RetryNotice
from latent_core.domain.errors import RateLimited, TimedOut, Unavailable
from latent_core.domain.manifest.model import Manifest
from latent_core.wire.search import SearchRequest
from tests.support.fake_gateway.gateway import TOKEN, FakeGateway
from tests.support.fake_gateway.http import FakeResponse, failure

SEARCH = SearchRequest(containers=["notes"], query="x", top_k=1)
DOWN = failure(Unavailable("away"))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.001)


def broken() -> FakeResponse:
    async def body() -> AsyncIterator[bytes]:
        yield b"{"
        raise ConnectionError("cut off, as the test wants it")

    return FakeResponse(200, body())


@pytest.mark.parametrize("way", ["503", "dropped"])
async def test_a_call_that_is_safe_to_repeat_is_sent_again(
    way: str, client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.failures = [("POST .*search", DOWN if way == "503" else broken()) for _ in range(3)]
    await client.search(SEARCH)
    assert len(gateway.requests_to("POST .*search")) == 4


@pytest.mark.parametrize("way", ["503", "dropped"])
async def test_a_call_that_may_have_had_an_effect_is_not_sent_again(
    way: str, client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.failures = [("POST .*", DOWN if way == "503" else broken())]
    with pytest.raises(Unavailable):
        await client.create(Manifest(id="more", name="More"))
    assert len(gateway.requests_to("POST .*")) == 1


async def test_an_upload_is_sent_again_with_its_whole_body(
    client: AsyncClient, gateway: FakeGateway, tmp_path: Path
) -> None:
    gateway.failures = [("POST .*/uploads", DOWN)] * 2
    file = tmp_path / "a.txt"
    file.write_bytes(b"whole")
    await client.upload("notes", file)
    assert [one.body for one in gateway.requests_to("POST .*/uploads")] == [b"whole"] * 3


async def test_attempts_are_bounded_and_the_last_error_is_raised(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.failures = [("GET .*", DOWN)] * (MAX_ATTEMPTS + 1)
    with pytest.raises(Unavailable, match="away"):
        await client.containers()
    assert len(gateway.requests_to("GET .*")) == MAX_ATTEMPTS


@pytest.mark.parametrize("error", [TimedOut("late"), RateLimited("slow down")])
async def test_other_errors_are_raised_at_once(
    error: TimedOut | RateLimited, client: AsyncClient, gateway: FakeGateway
) -> None:
    gateway.failures = [("GET .*", failure(error))]
    with pytest.raises(type(error)):
        await client.containers()


async def test_readiness_shows_a_503_instead_of_waiting(
    client: AsyncClient, gateway: FakeGateway
) -> None:
    body = b'{"status": "degraded", "services": {"postgres": "down"}}'
    gateway.failures = [("GET /readyz", FakeResponse(503, body))]
    assert (await client.readiness()).services == {"postgres": "down"}


async def test_each_new_attempt_is_announced(gateway: FakeGateway) -> None:
    notices: list[RetryNotice] = []
    gateway.failures = [("GET .*", DOWN)] * 2
    async with AsyncClient(gateway.url, TOKEN, on_retry=notices.append) as client:
        await client.containers()
    assert [(notice.attempt, notice.error.message) for notice in notices] == [
        (2, "away"),
        (3, "away"),
    ]


async def test_retry_after_is_kept_to(gateway: FakeGateway) -> None:
    notices: list[RetryNotice] = []
    answer = FakeResponse(503, b"{}", headers={"retry-after": "0.05"})
    gateway.failures = [("GET .*", answer)]
    async with AsyncClient(gateway.url, TOKEN, on_retry=notices.append) as client:
        await client.containers()
    assert [notice.seconds >= 0.05 for notice in notices] == [True]


async def test_a_retry_after_beyond_the_clients_timeout_is_not_waited_for(
    gateway: FakeGateway,
) -> None:
    gateway.failures = [("GET .*", FakeResponse(503, b"{}", headers={"retry-after": "60"}))]
    async with AsyncClient(gateway.url, TOKEN, timeout_seconds=5) as client:
        with pytest.raises(Unavailable):
            await client.containers()


def test_a_gateway_that_never_answered_is_given_up_sooner() -> None:
    absent = GatewayUnreachable("nothing listens")
    never, before = Retries(60, answered=False), Retries(60, answered=True)
    assert [never.after(absent) is not None for _ in range(3)] == [True, True, False]
    assert [before.after(absent) is not None for _ in range(MAX_ATTEMPTS)] == [
        *[True] * (MAX_ATTEMPTS - 1),
        False,
    ]


def test_pauses_grow_and_differ() -> None:
    retries = [Retries(60, answered=True) for _ in range(10)]
    lost = ConnectionLost("lost")
    rounds = [[notice.seconds for one in retries if (notice := one.after(lost))] for _ in range(4)]
    assert all(max(one) < min(other) for one, other in zip(rounds, rounds[2:], strict=False))
    assert len(set(rounds[0])) > 1
