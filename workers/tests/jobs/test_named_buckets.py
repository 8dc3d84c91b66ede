"""Containers whose manifests name buckets, on a real S3 server: each bucket holds what its containers refer to."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr

from latent_core.blobs.s3 import MARKER, S3Address, S3BlobStore, connect, key_of
from latent_core.blobs.s3_buckets import S3BlobStores
from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.db.containers import Container
from latent_core.db.documents import documents
from latent_core.doctor.repair import Repairer
from latent_core.domain.errors import Conflict, LatentError, Misconfigured, NotFound, Unavailable
from latent_core.domain.findings import Remedy
from latent_core.domain.ids import Sha256
from latent_core.domain.installation import MarkerPolicy
from latent_core.domain.job import JobKind
from latent_core.domain.manifest.model import BlobStorage, Manifest, Storage
from latent_core.ingest import containers as founding
from latent_core.ingest.delete import delete_documents
from tests.support.harness.transfers import OWNER, delete, everything, export, take_in
from tests.support.harness.worker_harness import (
    CONTAINER,
    DIMS,
    LEASE_SECONDS,
    WorkerHarness,
    open_harness,
)
from tests.support.installations import COPY, OTHER, OURS
from tests.support.queue import sql
from tests.support.servers.s3_server import ACCESS_KEY, SECRET_KEY, s3_server

LAMP = b"The keeper lights the lamp at dusk and trims it at midnight.\n"
FOG = b"When fog comes, the keeper sounds the horn twice a minute.\n"
THEIRS = "theirs"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as running:
        yield running


@pytest.fixture
def address(endpoint: str) -> S3Address:
    """A bucket that nobody else uses."""
    return S3Address(
        endpoint, SecretStr(ACCESS_KEY), SecretStr(SECRET_KEY), f"own-{uuid4().hex[:12]}"
    )


@pytest.fixture
def named() -> str:
    return f"named-{uuid4().hex[:12]}"


@pytest.fixture(name="stores")
async def s3_stores(address: S3Address, tmp_path: Path) -> AsyncIterator[S3BlobStores]:
    own = await S3BlobStore.open(address, tmp_path / "s3", OURS, MarkerPolicy.CREATE)
    stores = S3BlobStores(own, address.bucket, OURS)
    yield stores
    await stores.close()


@pytest.fixture
async def harness(
    database: Database, tmp_path: Path, stores: S3BlobStores
) -> AsyncIterator[WorkerHarness]:
    async with open_harness(database, tmp_path, stores) as opened:
        yield opened


def in_bucket(name: str | None, container_id: str = THEIRS) -> Manifest:
    return Manifest(
        id=container_id,
        name="Theirs",
        embedder="openai/test",
        dims=DIMS,
        storage=Storage(blobs=BlobStorage(bucket=name)),
    )


async def create(harness: WorkerHarness, manifest: Manifest) -> Container:
    stack = harness.stack
    return await founding.create(
        stack.db,
        stack.vectors,
        stack.blobs,
        harness.embedder,
        manifest,
        principal=OWNER,
        request_id=None,
    )


async def hashes(harness: WorkerHarness, bucket: str) -> set[str]:
    return {sha256 async for sha256 in harness.stack.blobs.of(bucket).hashes()}


async def referred(harness: WorkerHarness, container_id: str) -> set[str]:
    """The blobs of a container: its originals and page images."""
    rows = await sql(
        harness.stack.db,
        "SELECT r.sha256 FROM blob_refs r JOIN documents d ON d.id = r.doc_id "
        f"WHERE d.container_id = '{container_id}'",
    )
    return {row["sha256"] for row in rows}


def names_in(address: S3Address, bucket: str) -> set[str]:
    client, _ = connect(address)
    return {str(one.object_name) for one in client.list_objects(bucket, recursive=True)}


async def original(harness: WorkerHarness, doc_id: UUID) -> Sha256:
    async with harness.stack.db.transaction() as conn:
        row = await documents.row(conn, doc_id)
    assert row is not None
    return Sha256(row["sha256"])


async def repair(harness: WorkerHarness) -> None:
    stack = harness.stack
    repairer = Repairer(
        stack.db, stack.vectors, stack.blobs, principal=OWNER, lease_seconds=LEASE_SECONDS
    )
    assert all(one.done for one in await repairer.repair(await harness.examine()))
    await harness.settle()


async def test_each_bucket_has_its_own_copy_of_shared_content_and_loses_only_that(
    harness: WorkerHarness, named: str
) -> None:
    assert (await create(harness, in_bucket(named))).bucket == named
    doc_id = await harness.add("lamp.md", LAMP)
    await harness.add("lamp.md", LAMP, container=THEIRS)
    await harness.add("fog.md", FOG, container=THEIRS)
    assert await harness.work() == []
    await harness.settle()
    lamp = await original(harness, doc_id)
    ours, theirs = await referred(harness, CONTAINER), await referred(harness, THEIRS)
    assert lamp in ours < theirs
    assert await hashes(harness, "") == ours
    assert await hashes(harness, named) == theirs
    assert (await harness.examine()).clean

    await delete(harness, THEIRS)
    assert await hashes(harness, named) == set()
    assert await hashes(harness, "") == ours
    assert await harness.stack.blobs.own.get(lamp) == LAMP
    assert (await harness.examine()).clean
    proof = (
        await sql(harness.stack.db, "SELECT result FROM jobs WHERE kind = 'delete_container'")
    )[0]
    assert proof["result"]["blobs_released"] == len(theirs)
    assert (
        proof["result"]["blobs_kept"] == 0
    )  # the same bytes of the other container are in its own bucket


async def test_a_deleted_document_empties_only_the_bucket_of_its_container(
    harness: WorkerHarness, named: str
) -> None:
    await create(harness, in_bucket(named))
    kept = await harness.add("lamp.md", LAMP)
    doc_id = await harness.add("lamp.md", LAMP, container=THEIRS)
    assert await harness.work() == []
    async with harness.stack.db.transaction() as conn:
        await delete_documents(conn, THEIRS, [doc_id], principal=OWNER, lease_seconds=LEASE_SECONDS)
    await harness.settle()
    assert await hashes(harness, named) == set()
    assert await original(harness, kept) in await hashes(harness, "")
    assert await hashes(harness, "") == await referred(harness, CONTAINER)


async def test_doctor_finds_and_mends_in_each_bucket(
    harness: WorkerHarness, named: str, address: S3Address
) -> None:
    await create(harness, in_bucket(named))
    doc_id = await harness.add("lamp.md", LAMP, container=THEIRS)
    assert await harness.work() == []
    await harness.settle()
    store = harness.stack.blobs.of(named)
    stray = await store.put(b"nobody knows these")
    report = await harness.examine()
    assert [d.object for d in report.stores] == [f"{named}/{stray}"]
    await repair(harness)
    assert (await harness.examine()).clean
    assert await store.size(stray) is None

    sha256 = await original(harness, doc_id)
    await harness.stack.blobs.own.put(LAMP)  # the same bytes elsewhere are no remedy
    await store.delete(sha256)
    (lost,) = (await harness.examine()).containers[THEIRS].differences
    assert (lost.kind, lost.object, lost.repair) == ("blob", f"{named}/{sha256}", Remedy.REINGEST)

    damaged = b"x" * len(LAMP)
    client, _ = connect(address)
    client.put_object(named, key_of(OURS.id, sha256), io.BytesIO(damaged), len(damaged))
    client.remove_object(named, key_of(OURS.id, sha256))
    await store.put(LAMP)
    assert not (await harness.examine()).containers[THEIRS].differences


async def test_a_container_goes_from_one_bucket_to_another_by_its_archive(
    harness: WorkerHarness, named: str
) -> None:
    await create(harness, in_bucket(named))
    for name, data in (("lamp.md", LAMP), ("fog.md", FOG)):
        await harness.add(name, data, container=THEIRS)
    assert await harness.work() == []
    await harness.settle()
    before = await everything(harness, THEIRS)
    archive = await export(harness, THEIRS)
    (row,) = await sql(harness.stack.db, "SELECT bucket FROM archives WHERE kind = 'export'")
    assert row["bucket"] == named  # what is in the archive leaves the bucket only with its reader

    await delete(harness, THEIRS)
    await take_in(harness, archive, THEIRS)  # into the bucket of its manifest
    assert await everything(harness, THEIRS) == before
    async with harness.stack.db.transaction() as conn:
        assert await containers.bucket(conn, THEIRS) == named

    other = f"{named}-2"
    await create(harness, in_bucket(other, "elsewhere"))
    await take_in(harness, archive, "elsewhere", merge=True)
    await harness.settle()
    assert await hashes(harness, other) == await referred(harness, "elsewhere")
    assert (await harness.examine()).clean


async def test_the_bucket_of_a_container_does_not_change(
    harness: WorkerHarness, named: str, address: S3Address
) -> None:
    container = await create(harness, in_bucket(named))
    blobs = harness.stack.blobs
    founding.check_change(container, in_bucket(named), blobs)
    for other in (None, address.bucket, f"{named}-2"):
        with pytest.raises(
            Conflict, match=r"storage\.blobs\.bucket.*latent export theirs --to.*--merge"
        ):
            founding.check_change(container, in_bucket(other), blobs)
    own = await create(harness, in_bucket(None, "plain"))
    assert own.bucket == ""
    founding.check_change(own, in_bucket(address.bucket, "plain"), blobs)  # is the same bucket


async def test_a_bucket_that_cannot_be_used_makes_no_container(
    harness: WorkerHarness, named: str, stores: S3BlobStores, address: S3Address
) -> None:
    client, _ = connect(address)
    theirs = S3BlobStore(stores.own.server, named, COPY, MarkerPolicy.CREATE, named=True)
    await theirs.settle()  # a copy of our database was here first
    with pytest.raises(Misconfigured, match=f"'{named}'.*{COPY.holder}.*latent adopt"):
        await create(harness, in_bucket(named))
    async with harness.stack.db.transaction() as conn:
        assert await containers.get(conn, THEIRS) is None
    assert names_in(address, named) == {f"{OURS.id}/{MARKER}", f"{OURS.id}/probe/put-if-absent"}

    denied = replace(address, secret_key=SecretStr("wrong"))
    refused = S3BlobStores(
        S3BlobStore(
            type(stores.own.server)(denied, harness.stack.tmp), "x", OURS, MarkerPolicy.REQUIRE
        ),
        "x",
        OURS,
    )
    with pytest.raises(
        Unavailable, match=r"'another-one' of storage\.blobs\.bucket.*refuses the key"
    ):
        await refused.prepare("another-one", MarkerPolicy.CREATE)
    assert not client.bucket_exists("another-one")
    await refused.close()


async def test_a_bucket_that_is_lost_or_foreign_costs_only_its_containers(
    harness: WorkerHarness, named: str, address: S3Address, tmp_path: Path
) -> None:
    """As after a restart: nothing of the bucket is known to be right."""
    await create(harness, in_bucket(named))
    doc_id = await harness.add("lamp.md", LAMP, container=THEIRS)
    await harness.add("fog.md", FOG)
    assert await harness.work() == []
    await harness.settle()
    client, _ = connect(address)
    client.remove_object(named, f"{OURS.id}/{MARKER}")

    own = await S3BlobStore.open(address, tmp_path / "again", OURS)
    stores = S3BlobStores(own, address.bucket, OURS)
    again = replace(harness, deps=replace(harness.deps, stack=replace(harness.stack, blobs=stores)))
    sha256 = await original(harness, doc_id)
    for call in (
        stores.of(named).get(sha256),
        stores.of(named).put(b"x"),
        stores.of(named).delete(sha256),
    ):
        with pytest.raises(Misconfigured, match=f"'{named}'.*no marker.*latent adopt"):
            await call
    report = await again.examine()
    assert [(d.kind, d.object) for d in report.containers[THEIRS].differences] == [
        ("bucket", named)
    ]
    assert report.stores == []
    assert not report.containers[CONTAINER].differences
    with pytest.raises(Misconfigured, match="no marker"):  # in use: its loss is not covered up
        await create(again, in_bucket(named, "second"))
    await delete(again, CONTAINER)  # the garbage of other buckets goes all the same
    assert await hashes(again, "") == set()
    assert f"{OURS.id}/{MARKER}" not in names_in(address, named)

    await stores.prepare(named, MarkerPolicy.TAKE_OVER)  # as `latent adopt` does
    assert await stores.of(named).get(sha256) == LAMP
    assert (await again.examine()).clean
    await stores.close()


async def test_two_installations_may_name_the_same_bucket(
    harness: WorkerHarness, named: str, stores: S3BlobStores
) -> None:
    theirs = S3BlobStore(stores.own.server, named, OTHER, MarkerPolicy.CREATE, named=True)
    sha256 = await theirs.put(LAMP)
    await create(harness, in_bucket(named))
    doc_id = await harness.add("lamp.md", LAMP, container=THEIRS)
    assert await harness.work() == []
    assert await original(harness, doc_id) == sha256
    await delete(harness, THEIRS)
    assert await hashes(harness, named) == set()
    assert await theirs.get(sha256) == LAMP


async def test_pictures_and_pages_of_a_named_bucket_are_stored_and_read_there(
    harness: WorkerHarness, named: str
) -> None:
    await create(harness, in_bucket(named))
    page = b"<html><head><title>Lamp</title></head><body><p>The lamp turns.</p></body></html>"
    await harness.add("lamp.html", page, mime="text/html", container=THEIRS)
    assert await harness.work() == []
    rows = await sql(harness.stack.db, "SELECT DISTINCT bucket FROM blob_refs")
    assert [row["bucket"] for row in rows] == [named]
    images = await sql(harness.stack.db, "SELECT sha256 FROM blob_refs WHERE role = 'page_image'")
    assert images
    for row in images:
        assert await harness.stack.blobs.of(named).size(Sha256(row["sha256"]))
    assert await hashes(harness, "") == set()
    with pytest.raises(NotFound):
        await harness.stack.blobs.own.get(Sha256(images[0]["sha256"]))
    assert isinstance(await harness.work(JobKind.RENDER), list)
    assert not [one for one in await harness.work() if isinstance(one, LatentError)]
