"""The vector engine as a server: the contract, and what happens when the server does not do as it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from enum import StrEnum
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import httpx
import numpy as np
import pytest
import pytest_asyncio
from pydantic import SecretStr
from qdrant_client import models
from typing_extensions import override

from latent_core.domain.errors import (
    Conflict,
    Invalid,
    LatentError,
    MarkerMismatch,
    Misconfigured,
    NotFound,
    OutOfSpace,
    ServiceUnreachable,
    StoreFull,
    TimedOut,
    Unavailable,
    UpstreamError,
    UpstreamOverload,
)
from latent_core.domain.installation import MarkerPolicy
from latent_core.vectors.port import CollectionLayout, VectorIndex
from latent_core.vectors.qdrant import (
    collections as qdrant_collections,
    connection as qdrant_connection,
)
from latent_core.vectors.qdrant.connection import QdrantAddress
from latent_core.vectors.qdrant.errors import NotReady
from latent_core.vectors.qdrant.index import QdrantVectorIndex
from latent_core.vectors.qdrant.nodes import GIVEN_UP_SECONDS
from tests.support.contracts.vectors import VectorIndexContract, fresh
from tests.support.installations import COPY, OTHER, OURS
from tests.support.oracles.vector_oracle import named, points_of, random_vectors, unit
from tests.support.servers import launch
from tests.support.servers.qdrant_engine import FakeQdrantEngine
from tests.support.servers.qdrant_faults import QdrantFault
from tests.support.servers.qdrant_server import QdrantServer

KEY = "secret"
QUERY = unit([[1, 0]])[0]


@pytest.fixture(scope="module")
def server() -> Iterator[QdrantServer]:
    with QdrantServer(api_key=KEY) as running:
        yield running


def address(server: QdrantServer, **changes: Any) -> QdrantAddress:
    return QdrantAddress(**{"url": server.url, "api_key": SecretStr(KEY), **changes})


async def opened(given: QdrantAddress) -> AsyncIterator[QdrantVectorIndex]:
    """On a server that is not ours: what was made there is dropped."""
    index = await QdrantVectorIndex.open(given, OURS, MarkerPolicy.CREATE)
    try:
        yield index
    finally:
        for name in await index.collections():
            await index.drop_collection(name)
        await index.close()


class Way(StrEnum):
    """How a class of tests reaches which server."""

    STAND_IN = "stand-in"
    REST = "Qdrant server by REST"


@pytest_asyncio.fixture(scope="class", loop_scope="class", name="index")
async def index_of_the_class(
    request: pytest.FixtureRequest, server: QdrantServer
) -> AsyncIterator[QdrantVectorIndex | InSharedCollections]:
    way = getattr(request.cls, "WAY", Way.STAND_IN)
    stands_in = way is Way.STAND_IN
    given = address(server) if stands_in else launch.qdrant_address(f"VectorIndex, {way}")
    async for index in opened(given):
        yield InSharedCollections(index) if getattr(request.cls, "SHARED", False) else index


@pytest.mark.asyncio(loop_scope="class")
class TestContractOfTheStandIn(VectorIndexContract):
    pass


@pytest.mark.asyncio(loop_scope="class")
class TestContractByRest(VectorIndexContract):
    WAY = Way.REST


class InSharedCollections:
    """A ``VectorIndex`` that puts each collection into a shared one, beside points of another tenant."""

    def __init__(self, index: QdrantVectorIndex) -> None:
        self._index = index
        self._shared: dict[str, str] = {}

    async def create_collection(
        self, name: str, dims: int, layout: CollectionLayout = CollectionLayout()
    ) -> None:
        shared = self._shared.setdefault(name, f"s_{name}/{name}")
        await self._index.create_collection(shared, dims, layout)
        other = f"s_{name}/c_other_text_1"
        vectors = unit(np.ones((20, dims)))
        await self._index.upsert(other, points_of(vectors, doc="other tenant"))

    def __getattr__(self, method: str) -> Any:
        async def call(name: str, *given: Any, **named: Any) -> Any:
            return await getattr(self._index, method)(
                self._shared.get(name, f"s_{name}/{name}"), *given, **named
            )

        return call

    async def collections(self) -> list[str]:
        found = await self._index.collections()
        return [name.partition("/")[2] for name in found if "c_other" not in name]


class SharedContract(VectorIndexContract):
    """A collection within a shared one is listed while it has points, and has the dimensions of the shared one."""

    SHARED = True

    @override
    async def test_many_may_create_the_same_collection_at_once(self, index: VectorIndex) -> None:
        name = f"c_test_text_{uuid4().hex[:12]}"
        await asyncio.gather(*(index.create_collection(name, 2) for _ in range(5)))
        await index.upsert(name, points_of(unit([[1, 0]])))
        assert (await index.collections()).count(name) == 1

    @override
    async def test_a_dropped_collection_is_gone_and_may_be_made_anew(
        self, index: VectorIndex
    ) -> None:
        name = await fresh(index, 2)
        await index.upsert(name, points_of(unit([[1, 0]])))
        await index.drop_collection(name)
        assert name not in await index.collections()
        await index.drop_collection(name)
        await index.create_collection(name, 2)
        assert await index.count(name) == 0


@pytest.mark.asyncio(loop_scope="class")
class TestContractOfSharedCollections(SharedContract):
    pass


@pytest.mark.asyncio(loop_scope="class")
class TestContractOfSharedCollectionsByRest(SharedContract):
    WAY = Way.REST


@pytest.mark.asyncio(loop_scope="class")
class TestCollections:
    async def test_a_collection_is_made_as_designed_with_its_fields_indexed(
        self, index: QdrantVectorIndex, server: QdrantServer
    ) -> None:
        await index.create_collection(
            "c_made_text", 8, CollectionLayout("int8", shards=3, replicas=2)
        )
        made = server.engine.created_as(f"{OURS.id}_c_made_text")
        assert made.hnsw_config == models.HnswConfigDiff(m=32, ef_construct=256)
        assert (made.shard_number, made.replication_factor) == (3, 2)
        assert made.write_consistency_factor == 1
        collection_info = server.engine.info(f"{OURS.id}_c_made_text")
        assert {n: i["data_type"] for n, i in collection_info["payload_schema"].items()} == {
            "doc_id": "uuid",
            "generation": "integer",
        }
        assert collection_info["config"]["quantization_config"]["scalar"]["type"] == "int8"

    async def test_quantization_follows_the_manifest_and_the_size(
        self, index: QdrantVectorIndex, server: QdrantServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def quantized() -> bool:
            return (
                server.engine.info(f"{OURS.id}_c_grows_text")["config"]["quantization_config"]
                is not None
            )

        monkeypatch.setattr(qdrant_collections, "QUANTIZE_FROM_POINTS", 5)
        await index.create_collection("c_grows_text", 4)
        await index.upsert("c_grows_text", points_of(random_vectors(5, 4, seed=1)))
        await index.create_collection("c_grows_text", 4)
        assert not quantized()
        await index.upsert("c_grows_text", points_of(random_vectors(6, 4, seed=2)))
        await index.create_collection("c_grows_text", 4)
        assert quantized()
        await index.create_collection("c_grows_text", 4, CollectionLayout("none"))
        assert not quantized()

    async def test_collections_of_others_are_not_seen_behind_a_prefix(
        self, index: QdrantVectorIndex, server: QdrantServer
    ) -> None:
        await index.create_collection("c_theirs_text", 2)
        async for ours in opened(address(server, prefix="ours_")):
            await ours.create_collection("c_mine_text", 2)
            assert await ours.collections() == ["c_mine_text"]
            with pytest.raises(NotFound):
                await ours.count("c_theirs_text")
        assert "c_theirs_text" in await index.collections()

    async def test_requests_are_made_to_fit_what_strict_mode_allows(
        self, index: QdrantVectorIndex, server: QdrantServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        strict = models.StrictModeConfig(
            enabled=True,
            max_query_limit=10,
            max_timeout=2,
            search_max_hnsw_ef=20,
            search_max_oversampling=1,
            upsert_max_batchsize=7,
            condition_max_size=6,
        )
        monkeypatch.setattr(server.engine, "strict", strict)
        name = await fresh(index, 4)
        points = points_of(random_vectors(30, 4, seed=3))
        await index.upsert(name, points)
        assert await index.count(name) == 30
        assert len(await index.scroll(name, after=None, limit=30)) == 30
        query = random_vectors(1, 4, seed=4)[0]
        best = await index.search(name, query, 8)
        among = await index.search(name, query, 8, allowed=points.ids)
        assert best.chunk_nos.tolist() == among.chunk_nos.tolist()
        assert len((await index.search(name, query, 25)).chunk_nos) == 10  # no more can be seen
        assert await index.delete(name, points.doc_ids[0]) >= 1

    async def test_a_collection_that_was_made_anew_with_other_dimensions_is_noticed(
        self, index: QdrantVectorIndex, server: QdrantServer
    ) -> None:
        name = await fresh(index, 2)
        await index.upsert(name, points_of(unit([[1, 0]])))
        other = await QdrantVectorIndex.open(address(server), OURS)
        await other.drop_collection(name)
        await other.create_collection(name, 3)
        with pytest.raises(Invalid, match=r"2.*3|3.*2"):
            await index.upsert(name, points_of(unit([[1, 0]])))
        await index.upsert(name, points_of(unit([[1, 0, 0]])))
        await other.close()


@pytest.mark.asyncio(loop_scope="class")
class TestTrouble:
    @pytest.mark.parametrize(
        ("kind", "error", "counts"),
        [
            (QdrantFault.SERVER_ERROR, UpstreamError, True),
            (QdrantFault.HUNG_UP, UpstreamError, True),
            (QdrantFault.NOT_COMPLETED, Unavailable, True),
            (QdrantFault.LOST, Unavailable, True),
            (QdrantFault.TIMED_OUT, TimedOut, True),
            (QdrantFault.DISK_FULL, StoreFull, False),
            (QdrantFault.FILE_ERROR, StoreFull, False),
            (QdrantFault.DISK_QUOTA, StoreFull, False),
            (QdrantFault.MEMORY_QUOTA, StoreFull, False),
            (QdrantFault.TOO_MANY, UpstreamOverload, False),
            (QdrantFault.TOO_MANY_PLAIN, UpstreamOverload, False),
            (QdrantFault.RECOVERING, NotReady, False),
            (QdrantFault.NO_REPLICA, NotReady, False),
            (QdrantFault.DEAD_REPLICA, NotReady, False),
            (QdrantFault.NO_LEADER, NotReady, False),
            (QdrantFault.RECOVERY_MODE, NotReady, False),
            (QdrantFault.BAD_GATEWAY, ServiceUnreachable, False),
        ],
    )
    async def test_a_write_that_is_not_certain_is_an_error_that_may_pass(
        self,
        index: QdrantVectorIndex,
        server: QdrantServer,
        kind: QdrantFault,
        error: type[LatentError],
        counts: bool,
    ) -> None:
        name = await fresh(index, 2)
        await index.upsert(name, points_of(unit([[0, 1]])))
        server.misbehave(kind, only=f"{name}/points")
        with pytest.raises(error) as caught:
            await index.upsert(name, points_of(unit([[1, 0], [1, 1]]), doc="other"))
        assert caught.value.transient
        assert caught.value.counts_as_attempt is counts
        await index.upsert(name, points_of(unit([[1, 0], [1, 1]]), doc="other"))
        assert await index.count(name) == 3

    async def test_a_delete_that_left_something_is_an_error(
        self, index: QdrantVectorIndex, server: QdrantServer
    ) -> None:
        name = await fresh(index, 2)
        await index.upsert(name, points_of(unit([[0, 1]])))
        server.misbehave(QdrantFault.LOST, only="points/delete")
        with pytest.raises(Unavailable, match="still"):
            await index.delete(name, named("doc"))
        assert await index.delete(name, named("doc")) == 1

    async def test_a_server_that_is_silent_is_given_up_within_the_deadline(
        self, server: QdrantServer
    ) -> None:
        index = await QdrantVectorIndex.open(
            address(server), OURS, MarkerPolicy.CREATE, deadline_seconds=1.0
        )
        await index.create_collection("c_silent_text", 2)
        server.misbehave(QdrantFault.SILENT, only="points/query")
        with pytest.raises(TimedOut, match="1 s"):
            await index.search("c_silent_text", QUERY, 3)
        assert not len((await index.search("c_silent_text", QUERY, 3)).chunk_nos)
        await index.close()


async def test_a_start_says_why_the_server_cannot_be_used(server: QdrantServer) -> None:
    with pytest.raises(Unavailable, match="LLC_QDRANT_API_KEY"):
        await QdrantVectorIndex.open(
            address(server, api_key=SecretStr("wrong")), OURS, MarkerPolicy.CREATE
        )
    with pytest.raises(Invalid, match="LLC_QDRANT_URL"):
        await QdrantVectorIndex.open(address(server, url="ftp://qdrant"), OURS, MarkerPolicy.CREATE)


async def test_a_server_that_is_down_or_full_at_the_start_is_used_as_soon_as_it_answers() -> None:
    with QdrantServer(api_key=KEY) as server:
        gone, port = address(server), int(server.url.rpartition(":")[2])
    index = await QdrantVectorIndex.open(gone, OURS, MarkerPolicy.CREATE)
    with pytest.raises(ServiceUnreachable, match="not available"):
        await index.collections()
    with QdrantServer(api_key=KEY, port=port) as server:
        server.misbehave(QdrantFault.DISK_FULL, times=1, only="installation")
        with pytest.raises(OutOfSpace):
            await index.create_collection("c_late", 2)
        await index.create_collection("c_late", 2)
        assert await index.collections() == ["c_late"]
    await index.close()


async def test_a_marker_of_another_holder_is_noticed_before_the_first_call_after_a_late_start() -> (
    None
):
    with QdrantServer(api_key=KEY) as server:
        original = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await original.create_collection("c_art", 2)
        server.misbehave(QdrantFault.HUNG_UP, times=1, only="/")
        copied = await QdrantVectorIndex.open(address(server), COPY)
        for call in (
            copied.drop_collection("c_art"),
            copied.upsert("c_art", points_of(unit([[1, 0]]))),
            copied.collections(),
        ):
            with pytest.raises(Misconfigured, match="latent adopt"):
                await call
        assert await original.collections() == ["c_art"]
        await original.close()
        await copied.close()


async def test_adopting_needs_a_server_that_answers(server: QdrantServer) -> None:
    with QdrantServer() as other:
        gone = address(other)
    with pytest.raises(ServiceUnreachable):
        await QdrantVectorIndex.open(gone, OURS, MarkerPolicy.TAKE_OVER)


async def test_an_outage_of_the_server_writes_one_log_line_and_its_end_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with QdrantServer(api_key=KEY) as server:
        gone, port = address(server), int(server.url.rpartition(":")[2])
    index = await QdrantVectorIndex.open(gone, OURS, MarkerPolicy.CREATE)
    for _ in range(20):
        with pytest.raises(Unavailable):
            await index.collections()
    with QdrantServer(api_key=KEY, port=port):
        await index.collections()
        await index.collections()
    lines = [r for r in caplog.records if r.name.endswith("service_health")]
    assert [line.message for line in lines] == ["service_unreachable", "service_reachable"]
    assert vars(lines[1])["lost_calls"] == 21
    await index.close()


async def test_a_server_that_is_too_old_is_refused(
    server: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qdrant_connection, "MIN_VERSION", (1, 99))
    with pytest.raises(Invalid, match=r"too old.*1\.99"):
        await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)


async def test_a_collection_of_no_width_is_refused(server: QdrantServer) -> None:
    async for index in opened(address(server, prefix="none_")):
        with pytest.raises(Invalid):
            await index.create_collection("c_none_text", 0)
        await index.create_collection("c_none_text", 1)
        with pytest.raises(Conflict):
            await index.create_collection("c_none_text", 2)


async def test_the_client_never_asks_for_compressed_responses() -> None:
    with QdrantServer(api_key=KEY) as server:
        index = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await index.create_collection("c_plain", 2)
        await index.upsert("c_plain", points_of(unit([[1, 0]])))
        await index.search("c_plain", QUERY, 1)
        await index.close()
        assert server.requests > 3
        assert server.compressed == 0


async def test_the_stand_in_compresses_for_clients_that_accept_it() -> None:
    with QdrantServer() as server:
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"{server.url}/collections")
        assert answer.json()["result"] == {"collections": []}
        assert answer.headers["Transfer-Encoding"] == "chunked"
        assert server.compressed == 1


async def test_two_installations_on_a_server_see_nothing_of_each_other() -> None:
    with QdrantServer(api_key=KEY) as server:
        ours = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        theirs = await QdrantVectorIndex.open(address(server), OTHER, MarkerPolicy.CREATE)
        for index in (ours, theirs):
            await index.create_collection("c_art_text_1", 2)
            await index.upsert("c_art_text_1", points_of(unit([[1, 0]])))
        assert await ours.collections() == ["c_art_text_1"]
        await ours.drop_collection("c_art_text_1")
        assert await ours.collections() == []
        assert await theirs.count("c_art_text_1") == 1
        await ours.close()
        await theirs.close()


async def test_a_server_without_our_marker_is_refused_when_the_database_lists_data() -> None:
    with QdrantServer(api_key=KEY) as server:
        with pytest.raises(Misconfigured, match=f"no marker of installation {OURS.id}.*adopt"):
            await QdrantVectorIndex.open(address(server), OURS)
        assert server.engine.names() == {"collections": []}


async def test_a_copied_database_is_refused_until_it_adopts_and_then_the_original_is() -> None:
    with QdrantServer(api_key=KEY) as server:
        original = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await original.create_collection("c_art_text_1", 2)
        await original.upsert("c_art_text_1", points_of(unit([[1, 0]])))
        with pytest.raises(Misconfigured, match=f"{OURS.holder}.*{COPY.holder}.*latent adopt"):
            await QdrantVectorIndex.open(address(server), COPY, MarkerPolicy.CREATE)
        adopted = await QdrantVectorIndex.open(address(server), COPY, MarkerPolicy.TAKE_OVER)
        with pytest.raises(Misconfigured, match=COPY.holder):
            await original.delete("c_art_text_1", named("doc"))
        with pytest.raises(Misconfigured, match=COPY.holder):
            await original.drop_collection("c_art_text_1")
        original._connection.marker._verified_at = float("-inf")  # as after WRITE_CHECK_SECONDS
        with pytest.raises(Misconfigured, match=COPY.holder):
            await original.upsert("c_art_text_1", points_of(unit([[0, 1]])))
        assert await adopted.count("c_art_text_1") == 1
        await original.close()
        await adopted.close()


async def test_a_proxy_that_answers_404_has_not_lost_the_marker() -> None:
    with QdrantServer(api_key=KEY) as server:
        index = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await index.create_collection("c_art_text_1", 2)
        server.misbehave(QdrantFault.NO_ROUTE, only="_installation/points")
        with pytest.raises(ServiceUnreachable, match="not Qdrant that answers") as caught:
            await index.drop_collection("c_art_text_1")
        assert (caught.value.transient, caught.value.counts_as_attempt) == (True, False)
        await index.close()


async def test_jobs_wait_while_the_marker_is_missing_or_names_another_holder() -> None:
    with QdrantServer(api_key=KEY) as server:
        index = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await index.create_collection("c_art_text_1", 2)
        await index._connection.client.delete_collection(index._connection.marker._name)
        with pytest.raises(MarkerMismatch, match="no marker") as caught:
            await index.drop_collection("c_art_text_1")
        assert (caught.value.transient, caught.value.counts_as_attempt) == (True, False)
        await index.close()


async def test_a_marker_whose_creator_was_killed_halfway_is_completed() -> None:
    with QdrantServer(api_key=KEY) as server:
        index = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await index._connection.client.delete(index._connection.marker._name, [str(UUID(int=0))])
        await index.close()
        again = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await again.create_collection("c_art_text_1", 2)
        await again.close()


async def test_a_start_writes_nothing_when_the_collections_are_as_they_should_be() -> None:
    with QdrantServer(api_key=KEY) as server:
        index = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await index.create_collection("c_there", 2)
        # A full server refuses every PUT; strict mode refuses an index that exists.
        server.engine.strict = models.StrictModeConfig(enabled=True, max_payload_index_count=2)
        server.misbehave(QdrantFault.DISK_FULL, times=100, only="/index")
        await index.close()
        again = await QdrantVectorIndex.open(address(server), OURS)
        await again.create_collection("c_there", 2)
        await again.close()


async def test_an_index_that_a_killed_creator_left_out_is_added() -> None:
    with QdrantServer(api_key=KEY) as server:
        index = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await index.create_collection("c_half", 2)
        name = f"{OURS.id}_c_half"
        del server.engine.indexes(name)["generation"]
        await index.create_collection("c_half", 2)
        assert set(server.engine.info(name)["payload_schema"]) == {"doc_id", "generation"}
        await index.close()


async def test_purges_and_counts_work_where_strict_mode_refuses_exact_counts() -> None:
    with QdrantServer(api_key=KEY) as server:
        server.engine.strict = models.StrictModeConfig(
            enabled=True, search_allow_exact=False, max_query_limit=7
        )
        index = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await index.create_collection("c_strict", 4)
        await index.upsert("c_strict", points_of(random_vectors(20, 4, seed=1), doc="a"))
        await index.upsert("c_strict", points_of(random_vectors(3, 4, seed=2), doc="b"))
        assert await index.count("c_strict") == 23
        assert await index.count("c_strict", doc_id=named("a")) == 20
        assert await index.delete("c_strict", named("a")) == 20
        assert await index.count("c_strict") == 3
        server.misbehave(QdrantFault.LOST, only="/points/delete")
        with pytest.raises(Unavailable, match="3 vectors are still in"):
            await index.delete("c_strict", named("b"))
        await index.close()


@pytest.fixture
def nodes() -> Iterator[tuple[QdrantServer, QdrantServer]]:
    """Two nodes of a cluster: what is written to one is in the other."""
    with QdrantServer(api_key=KEY) as first, QdrantServer(api_key=KEY) as second:
        second.engine = first.engine
        yield first, second


async def test_the_next_address_is_used_when_a_node_refuses_connections(
    nodes: tuple[QdrantServer, QdrantServer],
) -> None:
    with QdrantServer() as other:
        dead = other.url
    alive = nodes[0]
    index = await QdrantVectorIndex.open(
        address(alive, url=f"{dead}, {alive.url}"), OURS, MarkerPolicy.CREATE
    )
    await index.create_collection("c_cluster", 2)
    await index.upsert("c_cluster", points_of(unit([[1, 0]])))
    assert await index.count("c_cluster") == 1
    await index.close()


@pytest.mark.parametrize("fault", [QdrantFault.HUNG_UP, QdrantFault.SILENT])
async def test_a_node_that_stops_answering_is_left_for_the_next_one(
    nodes: tuple[QdrantServer, QdrantServer], fault: QdrantFault
) -> None:
    first, second = nodes
    index = await QdrantVectorIndex.open(
        address(first, url=f"{first.url},{second.url}"),
        OURS,
        MarkerPolicy.CREATE,
        deadline_seconds=1.0,
    )
    await index.create_collection("c_cluster", 2)
    await index.upsert("c_cluster", points_of(unit([[1, 0]])))
    before = second.requests
    first.misbehave(fault, times=1000)
    if fault is QdrantFault.SILENT:  # no time is left for the other node
        with pytest.raises(TimedOut):
            await index.search("c_cluster", QUERY, 3)
    assert len((await index.search("c_cluster", QUERY, 3)).chunk_nos) == 1
    assert second.requests > before
    await index.close()


async def test_a_search_that_is_cancelled_at_its_deadline_leaves_the_node(
    nodes: tuple[QdrantServer, QdrantServer],
) -> None:
    first, second = nodes
    index = await QdrantVectorIndex.open(
        address(first, url=f"{first.url},{second.url}"), OURS, MarkerPolicy.CREATE
    )
    await index.create_collection("c_cluster", 2)
    first.misbehave(QdrantFault.SILENT, times=1000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2 * GIVEN_UP_SECONDS):
            await index.search("c_cluster", QUERY, 3)
    assert not len((await index.search("c_cluster", QUERY, 3)).chunk_nos)
    await index.close()


@pytest.mark.parametrize("url", ["", "qdrant:6333", "http://a:1,ftp://b", "http://a/x,http://b/y"])
async def test_addresses_that_cannot_be_used_are_refused(url: str) -> None:
    with pytest.raises(Invalid, match="LLC_QDRANT_URL"):
        await QdrantVectorIndex.open(QdrantAddress(url), OURS, MarkerPolicy.CREATE)


@pytest.mark.parametrize(("replicas", "needed"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3)])
async def test_a_write_needs_one_of_two_replicas_and_a_majority_of_more(
    server: QdrantServer, replicas: int, needed: int
) -> None:
    async for index in opened(address(server, prefix=f"replicas{replicas}_")):
        layout = CollectionLayout(replicas=replicas)
        await index.create_collection("c_new", 2, layout)
        name = index._connection.named("c_new")
        assert server.engine.created_as(name).write_consistency_factor == needed
        # One that was created with another number is changed.
        params = models.CollectionParamsDiff(write_consistency_factor=replicas + 1)
        server.engine.update(name, models.UpdateCollection(params=params))
        await index.create_collection("c_new", 2, layout)
        assert server.engine.created_as(name).write_consistency_factor == needed


async def test_a_check_of_all_replicas_reads_from_all_of_them(
    server: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async for index in opened(address(server, prefix="consistency_")):
        await index.create_collection("c_read", 2)
        points = points_of(unit([[1, 0]]))
        await index.upsert("c_read", points)
        reads = Mock(wraps=index._connection.client.retrieve)
        monkeypatch.setattr(index._connection.client, "retrieve", reads)
        assert set(await index.vectors("c_read", points.ids, all_replicas=True)) == set(points.ids)
        await index.vectors("c_read", points.ids)
        levels = [call.kwargs["consistency"] for call in reads.mock_calls]
        assert levels == [models.ReadConsistencyType.ALL, None]


async def test_tenants_of_a_shared_collection_see_and_remove_only_their_own_points(
    server: QdrantServer,
) -> None:
    async for index in opened(address(server, prefix="tenants_")):
        ours, theirs = "s_0a/c_art_text_1", "s_0a/c_art-2_text_2"
        for name in (ours, theirs):
            await index.create_collection(name, 2)
            vectors = unit([[1, 0], [0, 1]])
            await index.upsert(name, points_of(vectors, doc=name))
        assert sorted(await index.collections()) == sorted([ours, theirs])
        assert (
            server.engine.names()["collections"].count({"name": index._connection.named(ours)}) == 1
        )
        for name in (ours, theirs):
            assert await index.count(name) == 2
            assert len((await index.search(name, QUERY, 10)).chunk_nos) == 2
            assert {p.doc_id for p in await index.scroll(name, after=None, limit=9)} == {
                named(name)
            }
        assert await index.delete(ours, named(theirs)) == 0
        await index.drop_collection(ours)
        assert (await index.count(ours), await index.count(theirs)) == (0, 2)
        assert await index.collections() == [theirs]


async def test_a_shared_collection_has_a_tenant_index_and_no_graph_over_all_tenants(
    server: QdrantServer,
) -> None:
    async for index in opened(address(server, prefix="graph_")):
        await index.create_collection("s_0b/c_art_text_1", 4)
        made = server.engine.created_as(index._connection.named("s_0b/x"))
        assert made.hnsw_config == models.HnswConfigDiff(m=0, payload_m=32, ef_construct=256)
        indexed = server.engine.info(index._connection.named("s_0b/x"))["payload_schema"]
        assert set(indexed) == {"doc_id", "generation", "container_id", "collection"}
        request = server.engine.indexes(index._connection.named("s_0b/x"))["container_id"]
        assert isinstance(request, models.KeywordIndexParams)
        assert request.is_tenant is True


async def test_a_full_server_still_searches_and_deletes(server: QdrantServer) -> None:
    async for index in opened(address(server, prefix="full_")):
        await index.create_collection("c_full", 2)
        await index.upsert("c_full", points_of(unit([[1, 0]])))
        server.engine.disk_used_percent = 95
        with pytest.raises(StoreFull, match=r"95%.*max_disk_usage_percent"):
            await index.upsert("c_full", points_of(unit([[0, 1]]), doc="other"))
        assert len((await index.search("c_full", QUERY, 3)).chunk_nos) == 1
        assert await index.delete("c_full", named("doc")) == 1
        server.engine.disk_used_percent = 0


async def test_a_key_that_may_not_write_is_named_at_the_start() -> None:
    with QdrantServer(api_key=KEY, read_only_key="reader") as server:
        given = address(server, api_key=SecretStr("reader"))
        with pytest.raises(ServiceUnreachable, match=r"LLC_QDRANT_API_KEY.*manage access"):
            await QdrantVectorIndex.open(given, OURS, MarkerPolicy.CREATE)


async def test_writes_keep_below_a_rate_limit_and_wait_when_it_is_reached() -> None:
    now = 0.0
    with QdrantServer(api_key=KEY) as server:
        server.engine = FakeQdrantEngine(clock=lambda: now)
        index = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await index.create_collection("c_slow", 4)
        server.engine.strict = models.StrictModeConfig(enabled=True, write_rate_limit=20)
        index._collections.forget("c_slow")
        points = points_of(random_vectors(30, 4, seed=1))
        with pytest.raises(UpstreamOverload, match="Write rate limit") as caught:
            await index.upsert("c_slow", points)
        assert caught.value.details["retry_after"] == 30  # for the ten of the second request
        now += 60
        with pytest.raises(UpstreamOverload):
            await index.upsert("c_slow", points)
        now += 60
        await index.upsert("c_slow", points_of(random_vectors(20, 4, seed=2), doc="other"))
        await index.close()


@pytest.mark.parametrize("known", [True, False])
async def test_a_purge_above_a_rate_limit_is_done_in_parts_over_several_attempts(
    known: bool,
) -> None:
    now = 0.0
    with QdrantServer(api_key=KEY) as server:
        server.engine = FakeQdrantEngine(clock=lambda: now)
        index = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        await index.create_collection("c_slow", 4)
        await index.upsert("c_slow", points_of(random_vectors(25, 4, seed=1)))
        await index.upsert("c_slow", points_of(random_vectors(5, 4, seed=2), doc="other"))
        server.engine.strict = models.StrictModeConfig(
            enabled=True, write_rate_limit=10, max_query_limit=5
        )
        if known:
            index._collections.forget("c_slow")
        for left in (15, 5):
            with pytest.raises(UpstreamOverload, match="Write rate limit"):
                await index.delete("c_slow", named("doc"))
            assert await index.count("c_slow", doc_id=named("doc")) == left
            now += 60
        assert await index.delete("c_slow", named("doc")) == 5
        assert await index.count("c_slow") == 5
        await index.close()


async def test_the_points_of_a_container_above_a_rate_limit_are_dropped_in_parts() -> None:
    now = 0.0
    with QdrantServer(api_key=KEY) as server:
        server.engine = FakeQdrantEngine(clock=lambda: now)
        index = await QdrantVectorIndex.open(address(server), OURS, MarkerPolicy.CREATE)
        one, other = "s_shared/c_one_text_1", "s_shared/c_other_text_1"
        for name in (one, other):
            await index.create_collection(name, 4)
            await index.upsert(name, points_of(random_vectors(15, 4, seed=1), doc=name))
        server.engine.strict = models.StrictModeConfig(enabled=True, write_rate_limit=10)
        with pytest.raises(UpstreamOverload, match="Write rate limit"):
            await index.drop_collection(one)
        now += 60
        await index.drop_collection(one)
        assert await index.collections() == [other]
        assert await index.count(other) == 15
        await index.close()


async def test_a_collection_that_another_process_is_creating_is_waited_for(
    server: QdrantServer,
) -> None:
    async for index in opened(address(server, prefix="race_")):
        server.misbehave(QdrantFault.NOT_READABLE, times=3, only="c_race")
        await index.create_collection("c_race", 2)
        assert await index.collections() == ["c_race"]


async def test_answers_of_a_newer_server_do_not_stop_the_use_of_a_collection(
    server: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = server.engine.info

    def newer(name: str) -> Any:
        info = known(name)
        info |= {"status": "chartreuse", "optimizer_status": {"paused": True}}
        info["config"]["params"]["vectors"] |= {"memory": "tepid", "layout": {"rows": 1}}
        info["config"]["params"] |= {"payload": {"memory": "tepid"}, "on_disk_payload": None}
        info["config"]["quantization_config"] = None
        for one in info["payload_schema"].values():
            one["data_type"] = "uuid7"
        return info

    monkeypatch.setattr(server.engine, "info", newer)
    async for index in opened(address(server, prefix="newer_")):
        for _ in range(2):
            await index.create_collection("c_new", 2, CollectionLayout("int8", replicas=2))
        await index.upsert("c_new", points_of(unit([[1, 0]])))
        assert len((await index.search("c_new", QUERY, 3)).chunk_nos) == 1


async def test_all_tenants_are_found_where_strict_mode_limits_facets(
    server: QdrantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async for index in opened(address(server, prefix="facets_")):
        names = [f"s_0a/c_tenant{number}_text_1" for number in range(5)]
        for name in names:
            await index.create_collection(name, 2)
            await index.upsert(name, points_of(unit([[1, 0]]), doc=name))
        limited = models.StrictModeConfig(enabled=True, max_query_limit=2)
        monkeypatch.setattr(server.engine, "strict", limited)
        index._collections.forget(names[0])
        assert sorted(await index.collections()) == names
