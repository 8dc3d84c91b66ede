"""Blobs on an S3 server: the contract, what a damaged or full server does, links straight to it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, BinaryIO
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
import urllib3
from pydantic import SecretStr

from latent_core.blobs import s3
from latent_core.blobs.presigner import Presigner
from latent_core.blobs.s3 import (
    MARKER,
    PROBE,
    LocalBlobCache,
    S3Address,
    S3BlobStore,
    connect,
    key_of,
)
from latent_core.blobs.s3_errors import refused
from latent_core.blobs.writer import store as keep
from latent_core.db.connection import Database
from latent_core.domain.errors import (
    Invalid,
    Misconfigured,
    OutOfSpace,
    StoreFull,
    Unavailable,
    UpstreamTimeout,
)
from latent_core.domain.ids import Sha256
from latent_core.domain.installation import MarkerPolicy
from tests.support.contracts.blobs import LARGE, BlobStoreContract, listed, sha256_of
from tests.support.installations import COPY, OTHER, OURS
from tests.support.servers import launch as servers
from tests.support.servers.faulty_link import FaultyLink, LinkState
from tests.support.servers.s3_server import ACCESS_KEY, SECRET_KEY, s3_server


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as running:
        yield running


@pytest.fixture
def address(endpoint: str) -> S3Address:
    """A bucket that nobody else uses."""
    return S3Address(
        endpoint, SecretStr(ACCESS_KEY), SecretStr(SECRET_KEY), f"test-{uuid4().hex[:12]}"
    )


@pytest.fixture(name="store")
async def s3_store(address: S3Address, tmp_path: Path) -> AsyncIterator[S3BlobStore]:
    store = await S3BlobStore.open(address, tmp_path, OURS, MarkerPolicy.CREATE)
    yield store
    await store.close()


class TestContractOfSeaweed(BlobStoreContract):
    pass


class TestContractOfTheGivenServer(BlobStoreContract):
    @pytest.fixture
    def address(self) -> S3Address:
        return servers.s3_address("BlobStore, S3 server")


async def test_objects_stand_under_their_hash_and_nothing_else_is_listed(
    store: S3BlobStore, address: S3Address
) -> None:
    sha256 = await store.put(b"bytes")
    client, _ = connect(address)
    names = {one.object_name for one in client.list_objects(address.bucket, recursive=True)}
    blob = f"sha256/{sha256[:2]}/{sha256[2:4]}/{sha256}"
    assert names == {f"{OURS.id}/{name}" for name in (blob, PROBE, MARKER)}
    assert await listed(store) == [sha256]


async def test_the_first_write_finds_out_whether_put_if_absent_is_honoured(
    store: S3BlobStore,
) -> None:
    await store.put(b"the lamp")
    assert store.puts_if_absent


@pytest.mark.parametrize("status", [409, 501])
async def test_a_server_that_does_not_take_conditions_is_written_to_without(
    address: S3Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    plain = urllib3.PoolManager.request

    def request(self: urllib3.PoolManager, method: str, url: str, **given: Any) -> Any:
        if "If-None-Match" in given.get("headers", {}):
            return urllib3.HTTPResponse(
                b"<Error><Code>NotImplemented</Code></Error>", status=status
            )
        return plain(self, method, url, **given)

    monkeypatch.setattr(urllib3.PoolManager, "request", request)
    store = await S3BlobStore.open(address, tmp_path, OURS, MarkerPolicy.CREATE)
    assert not store.puts_if_absent
    store._if_absent = True  # it did at our start, and does not now
    assert await store.get(await store.put(b"bytes")) == b"bytes"
    await store.close()


async def test_bytes_that_were_damaged_on_the_server_are_not_handed_out(
    store: S3BlobStore, address: S3Address
) -> None:
    sha256 = await store.put(LARGE)
    client, _ = connect(address)
    damaged = b"x" + LARGE[1:]
    client.put_object(address.bucket, key_of(OURS.id, sha256), _file(damaged), len(damaged))
    with pytest.raises(Unavailable, match="restore"):
        await store.get(sha256)
    with pytest.raises(Unavailable, match="restore"):
        await store.local_copy(sha256)


async def test_a_blob_that_was_cut_off_is_replaced_when_it_is_stored_again(
    store: S3BlobStore, address: S3Address
) -> None:
    sha256 = await store.put(LARGE)
    client, _ = connect(address)
    client.put_object(address.bucket, key_of(OURS.id, sha256), _file(LARGE[:10]), 10)
    assert await store.put(LARGE) == sha256
    assert await store.get(sha256) == LARGE


async def test_rows_and_bytes_are_kept_together_as_with_files(
    store: S3BlobStore, database: Database
) -> None:
    sha256 = await keep(database, store, b"kept")
    await store.delete(sha256)  # as garbage collection does, or an accident
    assert await keep(database, store, b"kept") == sha256
    assert await store.get(sha256) == b"kept"


async def test_what_is_deleted_leaves_no_copy_here(store: S3BlobStore) -> None:
    sha256 = await store.put(b"gone")
    copy = await store.local_copy(sha256)
    await store.delete(sha256)
    assert not copy.exists()


async def test_a_start_says_why_the_server_cannot_be_used(
    address: S3Address, tmp_path: Path
) -> None:
    denied = S3Address(address.endpoint, address.access_key, SecretStr("wrong"), address.bucket)
    with pytest.raises(Unavailable, match="LLC_S3_SECRET_KEY"):
        await S3BlobStore.open(denied, tmp_path, OURS, MarkerPolicy.CREATE)
    for endpoint, bucket in (("ftp://host", "bucket"), ("http://host/path", "bucket")):
        wrong = S3Address(endpoint, address.access_key, address.secret_key, bucket)
        with pytest.raises(Invalid):
            await S3BlobStore.open(wrong, tmp_path, OURS, MarkerPolicy.CREATE)
    shouted = S3Address(address.endpoint, address.access_key, address.secret_key, "Bucket!")
    with pytest.raises(Invalid, match="LLC_S3_BUCKET"):
        await S3BlobStore.open(shouted, tmp_path, OURS, MarkerPolicy.CREATE)


def test_refusals_say_what_to_do() -> None:
    assert isinstance(refused(507, b""), OutOfSpace)
    full = b"<Error><Code>XMinioStorageFull</Code></Error>"
    assert isinstance(refused(500, full), OutOfSpace)
    denied = refused(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
    assert "LLC_S3_SECRET_KEY" in denied.message


async def test_a_presigned_link_is_read_without_a_key_as_one_type_for_five_minutes(
    store: S3BlobStore, address: S3Address
) -> None:
    sha256 = await store.put(LARGE)
    presigner = Presigner(address, OURS.id)
    link = presigner.link(
        sha256, seconds=9999, mime="image/webp", disposition="inline", filename='p"1.webp'
    )
    assert "X-Amz-Expires=300" in link
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(link)
    assert (answer.status_code, answer.content) == (200, LARGE)
    assert answer.headers["content-type"].startswith("image/webp")
    assert answer.headers["content-disposition"] == 'inline; filename="p_1.webp"'
    page = presigner.link(
        sha256, seconds=60, mime="text/html", disposition="inline", filename="x.html"
    )
    assert "attachment" in page
    presigner.close()


def _file(data: bytes) -> BinaryIO:
    return io.BytesIO(data)


class TestCopies:
    @staticmethod
    def copies(folder: Path, clock: Callable[[], float]) -> LocalBlobCache:
        return LocalBlobCache(folder, max_bytes=25, in_use_seconds=60, clock=clock)

    def test_the_oldest_go_when_there_are_too_many_but_none_that_may_be_in_use(
        self, tmp_path: Path
    ) -> None:
        now = 1_000_000.0
        copies = self.copies(tmp_path, lambda: now)
        hashes = [Sha256(hashlib.sha256(bytes([n])).hexdigest()) for n in range(4)]

        def ten(file: IO[bytes]) -> None:
            file.write(b"0123456789")

        for sha256 in hashes[:3]:
            copies.of("", sha256, ten)
            now += 1
        assert all((tmp_path / sha256).exists() for sha256 in hashes[:3])
        now += 100
        copies.of("", hashes[0], ten)  # asked for again: the next oldest goes first
        copies.of("", hashes[3], ten)
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {hashes[0], hashes[3]}

    def test_a_download_that_fails_leaves_nothing(self, tmp_path: Path) -> None:
        copies = self.copies(tmp_path, lambda: 0.0)

        def broken(file: IO[bytes]) -> None:
            file.write(b"half")
            raise Unavailable("away")

        with pytest.raises(Unavailable):
            copies.of("", sha256_of(b"x"), broken)
        assert os.listdir(tmp_path) == []


async def test_two_installations_in_a_bucket_see_nothing_of_each_other(
    store: S3BlobStore, address: S3Address, tmp_path: Path
) -> None:
    theirs = await S3BlobStore.open(address, tmp_path / "theirs", OTHER, MarkerPolicy.CREATE)
    sha256 = await store.put(b"in both")
    assert await theirs.size(sha256) is None
    assert await theirs.put(b"in both") == sha256
    assert await listed(store) == [sha256]
    await store.delete(sha256)
    assert await listed(store) == []
    assert await theirs.get(sha256) == b"in both"
    await theirs.close()


async def test_a_wrong_bucket_is_refused_and_not_created_when_the_database_lists_data(
    address: S3Address, tmp_path: Path
) -> None:
    client, _ = connect(address)
    with pytest.raises(Misconfigured, match=f"{address.bucket}.*no marker.*{OURS.id}.*adopt"):
        await S3BlobStore.open(address, tmp_path, OURS)
    assert not client.bucket_exists(address.bucket)
    client.make_bucket(address.bucket)
    with pytest.raises(Misconfigured, match="no marker"):
        await S3BlobStore.open(address, tmp_path, OURS)
    assert list(client.list_objects(address.bucket, recursive=True)) == []


@pytest.mark.parametrize("lost", ["bucket", "marker"])
async def test_readers_of_a_lost_bucket_learn_that_and_not_that_their_blob_is_absent(
    store: S3BlobStore, address: S3Address, lost: str
) -> None:
    sha256, absent = await store.put(b"lost"), sha256_of(b"never stored")
    assert await store.size(absent) is None
    client, _ = connect(address)
    for one in client.list_objects(address.bucket, recursive=True):
        client.remove_object(address.bucket, str(one.object_name))
    if lost == "bucket":
        client.remove_bucket(address.bucket)
    store._verified_at = float("-inf")  # as after WRITE_CHECK_SECONDS
    for read in (store.size, store.get, store.local_copy):
        with pytest.raises(Unavailable, match="bucket"):
            await read(sha256)
    with pytest.raises(Unavailable, match="bucket"):
        await store._run(lambda: store._opened(sha256, 0, 1))  # lost after its size was read
    with pytest.raises(Unavailable, match="bucket"):
        await store.verify()


async def test_a_copied_database_is_refused_until_it_adopts_and_then_the_original_is(
    store: S3BlobStore, address: S3Address, tmp_path: Path
) -> None:
    sha256 = await store.put(b"original")
    with pytest.raises(Misconfigured, match=f"{OURS.holder}.*{COPY.holder}.*latent adopt"):
        await S3BlobStore.open(address, tmp_path, COPY, MarkerPolicy.CREATE)
    adopted = await S3BlobStore.open(address, tmp_path / "copy", COPY, MarkerPolicy.TAKE_OVER)
    with pytest.raises(Misconfigured, match=COPY.holder):
        await store.delete(sha256)
    store._verified_at = float("-inf")  # as after WRITE_CHECK_SECONDS
    with pytest.raises(Misconfigured, match=COPY.holder):
        await store.put(b"more")
    assert await adopted.get(sha256) == b"original"
    await adopted.close()


@asynccontextmanager
async def behind_a_link(address: S3Address) -> AsyncIterator[tuple[S3Address, FaultyLink]]:
    port = urlsplit(address.endpoint).port or 0
    async with FaultyLink("127.0.0.1", port) as link:
        yield replace(address, endpoint=f"http://127.0.0.1:{link.port}"), link


async def test_a_server_that_is_down_at_the_start_is_used_as_soon_as_it_answers(
    address: S3Address, tmp_path: Path
) -> None:
    async with behind_a_link(address) as (there, link):
        link.become(LinkState.KILLED)
        store = await S3BlobStore.open(there, tmp_path, OURS, MarkerPolicy.CREATE)
        with pytest.raises(Unavailable):
            await store.put(b"the lamp")
        link.become(LinkState.OPEN)
        sha256 = await store.put(b"the lamp")
        assert await store.get(sha256) == b"the lamp"
        await store.close()


async def test_a_marker_of_another_holder_is_noticed_before_the_first_call_after_a_late_start(
    address: S3Address, tmp_path: Path
) -> None:
    original = await S3BlobStore.open(address, tmp_path, OURS, MarkerPolicy.CREATE)
    sha256 = await original.put(b"the lamp")
    async with behind_a_link(address) as (there, link):
        link.become(LinkState.KILLED)
        copied = await S3BlobStore.open(there, tmp_path / "copy", COPY)
        link.become(LinkState.OPEN)
        for call in (copied.delete(sha256), copied.put(b"other"), copied.get(sha256)):
            with pytest.raises(Misconfigured, match="latent adopt"):
                await call
        await copied.close()
    assert await original.get(sha256) == b"the lamp"
    await original.close()


async def test_adopting_needs_a_server_that_answers(address: S3Address, tmp_path: Path) -> None:
    async with behind_a_link(address) as (there, link):
        link.become(LinkState.KILLED)
        with pytest.raises(Unavailable):
            await S3BlobStore.open(there, tmp_path, OURS, MarkerPolicy.TAKE_OVER)


async def test_a_frozen_server_holds_no_call_beyond_its_deadline(
    address: S3Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with behind_a_link(address) as (there, link):
        store = await S3BlobStore.open(there, tmp_path, OURS, MarkerPolicy.CREATE)
        sha256 = await store.put(b"the lamp")
        monkeypatch.setattr(s3, "CALL_SECONDS", 0.2)
        link.become(LinkState.FROZEN)
        # More calls than threads: those that wait for a thread end in time as well.
        calls = [store.size(sha256) for _ in range(2 * s3.THREADS)]
        answers = await asyncio.gather(*calls, store.put(b"other"), return_exceptions=True)
        assert {type(answer) for answer in answers} == {UpstreamTimeout}
        link.become(LinkState.KILLED)  # or the threads would wait for their sockets
        link.become(LinkState.OPEN)
        monkeypatch.undo()
        assert await store.get(sha256) == b"the lamp"
        await store.close()


def test_a_request_is_never_repeated_after_a_timeout() -> None:
    """Four tries of 30 s made 121 s."""
    retries = s3.connect(S3Address("http://h:1", SecretStr("a"), SecretStr("b"), "bucket"))[
        1
    ].connection_pool_kw["retries"]
    late = urllib3.exceptions.ReadTimeoutError(urllib3.HTTPConnectionPool("h"), "/", "late")
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        retries.increment("GET", "/", error=late)
    broken = urllib3.exceptions.ProtocolError("Connection aborted.")
    assert retries.increment("GET", "/", error=broken).total == 2


async def test_a_full_server_is_recognised_though_it_answers_500(tmp_path: Path) -> None:
    with s3_server(volumes=1) as endpoint:
        there = S3Address(endpoint, SecretStr(ACCESS_KEY), SecretStr(SECRET_KEY), "bucket")
        store = await S3BlobStore.open(there, tmp_path, OURS, MarkerPolicy.CREATE)
        stored = await store.put(b"the lamp")

        async def fill() -> None:
            for _ in range(64):
                await store.put(os.urandom(1024 * 1024))

        with pytest.raises(StoreFull, match="answers reads and fails at every write"):
            await fill()
        assert await store.get(stored) == b"the lamp"
        await store.close()
