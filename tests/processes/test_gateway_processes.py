"""`latent up` with two gateway processes: they share connections, one dies or hangs, both end together (ADR 0069)."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import pytest
import pytest_asyncio

from latent_core.domain.manifest.model import Acl, QueryLog, Roles
from latent_core.domain.token import Scope
from latent_core.wire.containers import ContainerState
from latent_gateway.auth.sign_in_codes import LINK
from latent_gateway.auth.tokens import MAX_FAILURES, SECONDS_PER_FAILURE
from tests.http.test_http_surface import ingest, manifest
from tests.support.harness.installation import Installation, eventually
from tests.support.notifications import notifications_cut
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

GULLS: Final = "The herring gull nests on the north cliff above the old harbour."
FOG: Final = "When fog comes, the keeper sounds the horn twice a minute until it lifts."
PROGRAM: Final = "latent_gateway.further"
REQUESTS_PER_MIN: Final = 60
LISTED: Final = 'latent_http_requests_total{method="GET",route="/v1/containers/list",status="200"}'
LIST: Final = "/v1/containers/list"
SEARCH: Final = "/v1/containers/search"


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="pair")
async def two_processes(
    install_root: Path, embedding_server: EmbeddingServer
) -> AsyncIterator[Installation]:
    settings = {
        "LLC_GATEWAY_PROCESSES": "2",
        "LLC_EMBED_BASE_URL": embedding_server.base_url,
        "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
        "LLC_QUOTA_REQUESTS_PER_MIN": str(REQUESTS_PER_MIN),
    }
    one = Installation(install_root / "pair", settings)
    with ignored(signal.SIGINT):  # as by `latent up &` in a script
        await one.start()
    yield one
    await one.stop()


@asynccontextmanager
async def connections(
    pair: Installation, token: str | None = None
) -> AsyncIterator[list[httpx.AsyncClient]]:
    """One connection to each of the two processes."""
    async with connection(pair, token) as first, AsyncExitStack() as opened:
        number = await answering_process(pair, first)
        found: list[httpx.AsyncClient] = []

        async def to_the_other() -> bool:
            other = connection(pair, token)
            # It stays open: the other process gets one when this one has as many.
            opened.push_async_callback(other.aclose)
            if await answering_process(pair, other) != number:
                found.append(other)
            return bool(found)

        await eventually(to_the_other, what="a connection to the other process")
        yield [first, *found]


def connection(pair: Installation, token: str | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=pair.url,
        headers={"Authorization": f"Bearer {token or pair.token}"},
        limits=httpx.Limits(max_connections=1),
        trust_env=False,
    )


async def answering_process(pair: Installation, http: httpx.AsyncClient) -> int:
    request_id = (await http.get(LIST)).headers["x-request-id"]
    numbers: list[int] = []

    async def logged() -> bool:
        numbers[:] = [
            line["process_no"] for line in pair.logged() if line.get("request_id") == request_id
        ]
        return bool(numbers)

    await eventually(logged, what="the line of the request")
    return numbers[0]


def further(pair: Installation) -> list[psutil.Process]:
    found = []
    for child in pair.children():
        with suppress(psutil.Error):  # it ends
            if PROGRAM in child.cmdline():
                found.append(child)
    return found


def searches_of(pair: Installation, number: int) -> int:
    """How many the process has answered."""
    lines = pair.logged()
    return sum(one.get("process_no") == number and one.get("path") == SEARCH for one in lines)


async def another_serves(pair: Installation, ended: psutil.Process) -> None:
    """Return when another process serves in the place of one that ended."""

    async def started() -> bool:
        return any(process.pid != ended.pid for process in further(pair))

    await eventually(started, what="another process")
    assert not ended.is_running()
    async with connections(pair):
        assert len(further(pair)) == 1


async def find(
    http: httpx.AsyncClient, container: str, query: str = "gull", **more: Any
) -> httpx.Response:
    body = {"containers": [container], "query": query, "top_k": 5, **more}
    return await http.post(SEARCH, json=body)


async def finds(http: httpx.AsyncClient, container: str) -> bool:
    answer = (await find(http, container)).json()
    assert "hits" in answer, answer
    return bool(answer["hits"])


async def listed(http: httpx.AsyncClient) -> float:
    """How often containers were listed, by the metrics of both processes."""
    lines = (await http.get("/metrics")).text.splitlines()
    (line,) = [line for line in lines if line.startswith(LISTED)]
    return float(line.rpartition(" ")[2])


async def add(http: httpx.AsyncClient, container: str, text: str) -> httpx.Response:
    """A note, which is searchable when the answer comes."""
    body = {"container_id": container, "text": text, "wait_seconds": 5}
    return await http.post("/v1/containers/add", json=body)


async def test_what_is_written_by_one_process_is_found_by_both(pair: Installation) -> None:
    async with pair.client() as client:
        for name in ("here", "there"):
            await client.create(manifest(name))
        async with connections(pair) as both:
            for http, name in zip(both, ("here", "there"), strict=True):
                assert (await add(http, name, GULLS)).is_success
            for http in both:
                for name in ("here", "there"):
                    assert await finds(http, name)


async def test_lost_rights_are_refused_by_the_next_request_at_each_process_without_notifications(
    pair: Installation,
) -> None:
    acl = Acl(roles=Roles(owner=["local:you"], writer=["local:ann"], reader=["local:bob"]))
    async with pair.client() as client:
        for name in ("rights", "closing"):
            await client.create(manifest(name, acl=acl))
            await ingest(client, name, "gulls.md", GULLS.encode())
        ann = await client.create_token("local:ann", scopes=[Scope.READ, Scope.WRITE])
        bob = await client.create_token("local:bob", scopes=[Scope.READ])
        async with (
            connections(pair, ann.secret) as anns,
            connections(pair, bob.secret) as bobs,
            notifications_cut(pair.dsn),
        ):
            for http in (*anns, *bobs):
                for name in ("rights", "closing"):
                    assert await finds(http, name)
            lowered = Acl(roles=Roles(owner=["local:you"], reader=["local:ann", "local:bob"]))
            etag = (await client.describe("rights")).etag
            await client.update(manifest("rights", acl=lowered), if_match=etag)
            for http in anns:
                assert (await add(http, "rights", FOG)).status_code == 403
                assert await finds(http, "rights")

            await client.set_state("closing", ContainerState.ARCHIVED)
            for http in bobs:  # only owners see an archived container
                assert (await find(http, "closing")).status_code == 404

            await client.revoke_token(bob.token.id)
            for http in bobs:
                assert (await find(http, "rights")).status_code == 401


async def test_requests_of_a_token_are_limited_over_both_processes(pair: Installation) -> None:
    async with pair.client() as client:
        token = await client.create_token("local:eve", scopes=[Scope.READ])
    started_at = time.monotonic()
    async with connections(pair, token.secret) as both:
        statuses = [(await http.get(LIST)).status_code for _ in range(60) for http in both]
        limit = REQUESTS_PER_MIN + (time.monotonic() - started_at) * REQUESTS_PER_MIN / 60
        assert 0 < statuses.count(200) <= limit
        assert set(statuses[-2:]) == {429}


async def test_wrong_tokens_are_counted_over_both_processes(pair: Installation) -> None:
    wrong = {"Authorization": "Bearer llc_wrong"}
    async with connections(pair) as both:
        started_at = time.monotonic()
        statuses = [
            (await http.get(LIST, headers=wrong)).status_code
            for _ in range(MAX_FAILURES)
            for http in both
        ]
        limit = MAX_FAILURES + (time.monotonic() - started_at) / SECONDS_PER_FAILURE + 1
        assert 0 < statuses.count(401) <= limit
        assert 429 in statuses


async def test_a_sign_in_link_of_one_process_works_once_at_any(pair: Installation) -> None:
    async with connections(pair) as (here, there):
        url = (await here.post("/v1/admin/sign-in-link")).json()["url"]
        assert (await there.get(url)).status_code == 200
        code = url.partition("code=")[2]
        origin = {"Origin": pair.url}
        signed_in = await there.post(LINK, data={"code": code}, headers=origin)
        assert signed_in.is_redirect
        for http in (here, there):
            assert (await http.get(url)).status_code == 401


async def test_each_process_answers_the_metrics_of_both(pair: Installation) -> None:
    async with connections(pair) as both:
        before = [await listed(http) for http in both]
        for number, http in enumerate(both, start=2):
            for _ in range(number):
                await http.get(LIST)
        after = [await listed(http) for http in both]
        assert before[0] == before[1]
        assert [one - before[0] for one in after] == [5, 5]
        state = (await both[1].get("/v1/admin/status")).json()
        assert state["gateway_processes"] == {"configured": 2, "serving": 2}


async def test_what_is_typed_over_both_processes_is_one_query_of_the_log(
    pair: Installation,
) -> None:
    async with pair.client() as client, connections(pair) as (here, there):
        await client.create(manifest("logged", query_log=QueryLog(keep_days=7)))
        await find(here, "logged", query="gul", as_you_type=True)
        await find(there, "logged", query="gull", as_you_type=True)
        await find(here, "logged", query="gulls")

        async def logged() -> bool:
            return bool((await client.logged_queries("logged")).queries)

        await eventually(logged, what="the search in the log")
        queries = (await client.logged_queries("logged")).queries
        assert [(one.query, one.times) for one in queries] == [("gulls", 1)]


async def test_a_killed_process_is_replaced_and_the_other_answers_meanwhile(
    pair: Installation,
) -> None:
    async with pair.client() as client:
        await client.create(manifest("load"))
        await ingest(client, "load", "gulls.md", GULLS.encode())
    async with connections(pair):
        (victim,) = further(pair)
    over = asyncio.Event()
    answers: Counter[int] = Counter()
    lost: set[int] = set()

    async def read(number: int) -> None:
        while not over.is_set():
            async with connection(pair) as http:
                with suppress(httpx.NetworkError, httpx.RemoteProtocolError):
                    while not over.is_set():
                        assert await finds(http, "load")
                        answers[number] += 1
                    return
            lost.add(number)

    readers = [asyncio.create_task(read(number)) for number in range(4)]

    async def all_answered() -> bool:
        return len(answers) == len(readers)

    await eventually(all_answered, what="answers to all readers")
    assert not lost
    victim.kill()
    answers.clear()
    await eventually(all_answered, what="answers to all readers after the end of a process")
    await another_serves(pair, victim)
    searched = searches_of(pair, 2)

    async def shares_the_load() -> bool:
        return searches_of(pair, 2) > searched

    await eventually(shares_the_load, what="searches by the new process, of clients that stayed")
    over.set()
    await asyncio.gather(*readers)
    assert 0 < len(lost) < len(readers), "only connections to the killed process are lost"


async def test_a_process_that_hangs_is_replaced(pair: Installation) -> None:
    async with connections(pair) as (http, _):
        (victim,) = further(pair)
        victim.suspend()
        await another_serves(pair, victim)
        assert (await http.get(LIST)).is_success


async def test_both_end_in_order_also_where_the_shell_ignores_interrupts(
    pair: Installation,
) -> None:
    below = pair.children()
    assert len(further(pair)) == 1
    assert await pair.stop(signal.SIGINT) == 0
    assert not [process for process in below if process.is_running()]
    await pair.start()
    async with connections(pair):
        pass


async def test_both_end_when_the_first_is_killed(pair: Installation) -> None:
    below = pair.children()
    assert len(further(pair)) == 1
    await pair.kill()

    async def gone() -> bool:
        return not [process for process in below if process.is_running()]

    await eventually(gone, what="the end of all processes")


@contextmanager
def ignored(number: signal.Signals) -> Iterator[None]:
    """Processes that the block starts ignore the signal."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(number, before)
