"""Each server killed, frozen and slow while documents come in and searches run: what still works goes on.

``LLC_OUTAGE_SECONDS`` is the length of an outage; the default keeps the whole module below ten minutes.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from latent_client import AsyncClient
from latent_core.domain.errors import LatentError
from latent_core.domain.job import JobState
from tests.http.test_http_surface import add, manifest, search
from tests.support.harness.installation import Installation, eventually
from tests.support.on_servers import TOKEN, own_stores
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.faulty_link import FaultyLink, LinkState
from tests.support.servers.launch import ADDRESSES, all_started
from tests.support.servers.postgres_server import set_read_only

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

OUTAGE_SECONDS: Final = float(os.environ.get("LLC_OUTAGE_SECONDS", "20"))  # noqa: TID251 - the tests' own setting
SEARCHES_PER_SECOND: Final = 8.0
DOCUMENTS: Final = int(5 * OUTAGE_SECONDS)
CONTAINER: Final = "outages"
STORES: Final = ("qdrant", "minio", "postgres")


@pytest.fixture(scope="module")
def addresses() -> Iterator[Mapping[str, str]]:
    given = {name: os.environ[name] for name in ADDRESSES if name in os.environ}  # noqa: TID251
    with all_started(["--major", "16"]) as started:
        yield given | started


@dataclass
class Site:
    installation: Installation
    links: dict[str, FaultyLink]
    dsn: str
    """Of Postgres, without the link."""
    settings: Mapping[str, str]
    stores: Mapping[str, str]

    def another(self, folder: Path) -> Installation:
        """A gateway and a worker more, on the same servers by the same links."""
        return Installation(folder, self.settings, stores=self.stores)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(
    install_root: Path, addresses: Mapping[str, str], embedding_server: EmbeddingServer
) -> AsyncIterator[Site]:
    stores = own_stores(addresses)
    async with AsyncExitStack() as running:
        links: dict[str, FaultyLink] = {}
        for name, key in (("qdrant", "LLC_QDRANT_URL"), ("minio", "LLC_S3_ENDPOINT")):
            there = urlsplit(stores[key])
            links[name] = await running.enter_async_context(
                FaultyLink(there.hostname or "", there.port or 0)
            )
            stores[key] = f"http://127.0.0.1:{links[name].port}"
        direct = stores["LLC_POSTGRES_DSN"]
        dsn = conninfo_to_dict(direct)
        host, port = str(dsn["host"]), int(dsn.get("port") or 5432)
        links["postgres"] = await running.enter_async_context(FaultyLink(host, port))
        stores["LLC_POSTGRES_DSN"] = make_conninfo(
            stores["LLC_POSTGRES_DSN"],
            host="127.0.0.1",
            port=links["postgres"].port,
            sslmode="disable",
            gssencmode="disable",
        )
        settings = {
            "LLC_EMBED_BASE_URL": embedding_server.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_LEASE_SECONDS": "4",
        }
        one = Installation(install_root / "outages", settings, stores=stores)
        await one.start()
        async with one.client() as client:
            await client.create(manifest(CONTAINER))
        yield Site(one, links, direct, settings, stores)
        assert await one.stop() == 0


@dataclass
class Load:
    """Searches at a steady rate and uploads one after the other, with what was answered."""

    url: str
    name: str
    statuses: Counter[int] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    accepted: list[int] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def searches(self) -> None:
        async with httpx.AsyncClient(
            trust_env=False,
            timeout=60.0,
            headers={"Authorization": f"Bearer {TOKEN}"},
            limits=httpx.Limits(max_connections=None),
        ) as http:
            tasks: list[asyncio.Task[None]] = []
            while not self.over.is_set():
                tasks.append(asyncio.create_task(self._search(http)))
                await asyncio.sleep(1 / SEARCHES_PER_SECOND)
            await asyncio.gather(*tasks)

    async def _search(self, http: httpx.AsyncClient) -> None:
        begun = time.monotonic()
        try:
            answer = await http.post(
                f"{self.url}/v1/containers/search",
                json={"containers": [CONTAINER], "query": "number seven", "top_k": 3},
            )
        except httpx.HTTPError as error:
            self.statuses[0] += 1
            self.refusals[f"no answer: {type(error).__name__}"] += 1
            return
        finally:
            self.slowest = max(self.slowest, time.monotonic() - begun)
        self.statuses[answer.status_code] += 1
        if answer.status_code != 200:
            (issue,) = answer.json()["issues"]
            self.refusals[f"{answer.status_code} {issue['code']}: {issue['message'][:80]}"] += 1

    async def uploads(self, client: AsyncClient) -> None:
        for n in range(DOCUMENTS):
            text = f"{self.name}: document number {n} of this outage."
            while not self.over.is_set():
                try:
                    added = await add(client, CONTAINER, f"{self.name}-{n}.md", text.encode())
                except LatentError:
                    await asyncio.sleep(0.2)
                    continue
                self.accepted.append(added.job_id)
                break
            await asyncio.sleep(OUTAGE_SECONDS / DOCUMENTS)


@pytest.mark.parametrize("state", [LinkState.KILLED, LinkState.FROZEN, LinkState.SLOW])
@pytest.mark.parametrize("store", STORES)
async def test_an_outage_of_a_server_costs_only_what_needs_it(
    site: Site, store: str, state: LinkState
) -> None:
    link = site.links[store]
    load = Load(site.installation.url, f"{store}-{state.value}")
    await _through(
        site, load, partial(_become, link, state), partial(_become, link, LinkState.OPEN)
    )
    assert set(load.statuses) <= {200, 503, 504}
    if store != "postgres":  # searches need it
        assert load.statuses[200] >= 0.95 * load.statuses.total()


async def test_a_postgres_that_accepts_reads_only_costs_no_search(site: Site) -> None:
    load = Load(site.installation.url, "postgres-read-only")
    await _through(
        site,
        load,
        partial(asyncio.to_thread, set_read_only, site.dsn, on=True),
        partial(asyncio.to_thread, set_read_only, site.dsn, on=False),
    )
    assert load.statuses[200] >= 0.95 * load.statuses.total()


@pytest.mark.parametrize("outage", ["postgres-read-only", "qdrant-frozen"])
async def test_a_gateway_and_a_worker_start_during_an_outage(
    site: Site, install_root: Path, outage: str
) -> None:
    read_only = partial(asyncio.to_thread, set_read_only, site.dsn)
    frozen = partial(_become, site.links["qdrant"])
    if outage == "postgres-read-only":
        begin, end = partial(read_only, on=True), partial(read_only, on=False)
    else:
        begin, end = partial(frozen, LinkState.FROZEN), partial(frozen, LinkState.OPEN)
    another = site.another(install_root / outage)
    try:
        await begin()
        begun = time.monotonic()
        await another.start()
        print(f"\n{outage}: gateway started in {time.monotonic() - begun:.1f} s")
        async with another.client() as client:
            assert (await search(client, CONTAINER, "number seven", top_k=3)).partial is (
                outage == "qdrant-frozen"
            )
            health = another.metrics_urls[0].replace("/metrics", "/healthz")
            await eventually(lambda: _answers(health), seconds=60.0, what="the worker")
            assert [worker.returncode for worker in another.workers] == [None], another.tail()
            await end()
            await eventually(lambda: _whole(client), seconds=30.0, what="a whole answer")
            added = await add(client, CONTAINER, f"{outage}.md", outage.encode())
            (job,) = await client.wait([added.job_id], timeout_seconds=60)
            assert job.state is JobState.DONE
    finally:
        await end()
        assert await another.stop() == 0


async def _answers(url: str) -> bool:
    async with httpx.AsyncClient(trust_env=False, timeout=5.0) as http:
        try:
            return (await http.get(url)).status_code == 200
        except httpx.HTTPError:
            return False


async def _become(link: FaultyLink, state: LinkState) -> None:
    link.become(state)


async def _through(
    site: Site, load: Load, begin: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]
) -> None:
    """An outage under load. No process ends, no accepted document is lost, and all is well within ten seconds."""
    installation = site.installation
    async with installation.client() as client:
        searching = asyncio.create_task(load.searches())
        uploading = asyncio.create_task(load.uploads(client))
        await asyncio.sleep(1.0)
        await begin()
        await asyncio.sleep(OUTAGE_SECONDS)
        await end()
        recovered = time.monotonic()
        await eventually(lambda: _whole(client), seconds=30.0, what="a whole answer")
        recovery = time.monotonic() - recovered
        load.over.set()
        await asyncio.gather(searching, uploading)
        print(
            f"\n{load.name}: {dict(load.statuses)}, slowest {load.slowest:.1f} s, "
            f"recovered in {recovery:.1f} s, accepted {len(load.accepted)}; {dict(load.refusals)}"
        )
        assert installation.exit_code is None, installation.tail()
        ended = [worker.returncode for worker in installation.workers]
        assert ended == [None], installation.tail()
        jobs = await client.wait(load.accepted, timeout_seconds=120)
        assert [job for job in jobs if job.state is not JobState.DONE] == []
        assert recovery <= 10.0
        assert (await client.doctor(CONTAINER)).clean


async def _whole(client: AsyncClient) -> bool:
    """Whether a search is answered by all channels."""
    try:
        answer = await search(client, CONTAINER, "number seven", top_k=3)
    except LatentError:
        return False
    return not answer.partial
