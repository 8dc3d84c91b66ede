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
from latent_core.blobs.s3_errors import BucketRefused
from latent_core.db import containers
from latent_core.db.connection import Database
from latent_core.db.containers import Container
from latent_core.db.documents import documents, pages
from latent_core.doctor.repair import Repairer
from latent_core.domain.errors import Conflict, Invalid, Misconfigured
from latent_core.domain.findings import Remedy
from latent_core.domain.ids import Sha256
from latent_core.domain.installation import MarkerPolicy
from latent_core.domain.manifest.model import BlobStorage, Manifest, Storage
from latent_core.ingest import containers as founding
from latent_core.ingest.delete import delete_documents
from latent_core.models.embedding.picture import StoredImage
from latent_workers.embed import picture_reader
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


async def repair(harness: WorkerHarness, *, deep: bool = False) -> bool:
    """Whether doctor could repair all that it found."""
    stack = harness.stack
    repairer = Repairer(
        stack.db, stack.vectors, stack.blobs, principal=OWNER, lease_seconds=LEASE_SECONDS
    )
    done = [one.done for one in await repairer.repair(await harness.examine(deep=deep))]
    await harness.settle()
    return all(done)


async def web_page(harness: WorkerHarness) -> UUID:
    data = b"<html><head><title>Lamp</title></head><body><p>The lamp turns.</p></body></html>"
    return await harness.add("lamp.html", data, mime="text/html", container=THEIRS)


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
    page = await web_page(harness)
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
    damaged = b"x" * len(LAMP)
    client, _ = connect(address)
    client.put_object(named, key_of(OURS.id, sha256), io.BytesIO(damaged), len(damaged))
    (found,) = (await harness.examine(deep=True)).containers[THEIRS].differences
    assert (found.kind, found.object, found.repair) == (
        "blob",
        f"{named}/{sha256}",
        Remedy.REINGEST,
    )
    assert not await repair(harness, deep=True)  # a file must be added again
    assert await store.size(sha256) is None  # so that adding it stores it
    await harness.add("lamp.md", LAMP, container=THEIRS)
    await harness.settle()
    assert await store.get(sha256) == LAMP
    images = await sql(
        harness.stack.db,
        f"SELECT sha256 FROM blob_refs WHERE role = 'page_image' AND doc_id = '{page}'",
    )
    lost = Sha256(images[0]["sha256"])
    await store.delete(lost)
    assert await repair(harness)  # drawn again from its original
    assert await store.size(lost) is not None
    assert not (await harness.examine()).containers[THEIRS].differences


async def test_a_backup_stays_while_its_bucket_is_lost(
    harness: WorkerHarness, named: str, address: S3Address
) -> None:
    """In a process that has used the bucket before."""
    await create(harness, in_bucket(named))
    await harness.add("lamp.md", LAMP, container=THEIRS)
    assert await harness.work() == []
    await harness.settle()
    await export(harness, THEIRS)
    client, _ = connect(address)
    marker = client.get_object(named, f"{OURS.id}/{MARKER}").read()
    for one in names_in(address, named):
        client.remove_object(named, one)
    client.remove_bucket(named)
    report = await harness.examine()
    found = report.containers[THEIRS].differences
    assert [(d.kind, d.object) for d in found] == [("bucket", named)]
    await repair(harness)
    assert await sql(harness.stack.db, "SELECT 1 FROM archives WHERE kind = 'export'")
    client.make_bucket(named)
    client.put_object(named, f"{OURS.id}/{MARKER}", io.BytesIO(marker), len(marker))
    kinds = {d.kind for d in (await harness.examine()).containers[THEIRS].differences}
    assert kinds == {"blob", "export"}  # each is missing, now that the bucket is known to be ours


async def test_garbage_of_a_bucket_that_is_not_ours_waits_with_a_warning_on_its_job(
    harness: WorkerHarness, named: str, address: S3Address, stores: S3BlobStores
) -> None:
    await create(harness, in_bucket(named))
    await harness.add("lamp.md", LAMP, container=THEIRS)
    await harness.add("fog.md", FOG)
    assert await harness.work() == []
    await harness.settle()
    there = names_in(address, named)
    theirs = S3BlobStore(stores.own.server, named, COPY, MarkerPolicy.TAKE_OVER, named=True)
    await theirs.settle()
    for container in (THEIRS, CONTAINER):
        await delete(harness, container)
    assert await hashes(harness, "") == set()
    assert names_in(address, named) == there
    jobs = await sql(
        harness.stack.db,
        "SELECT state, warnings, run_at - now() AS wait FROM jobs WHERE kind = 'garbage' ORDER BY id",
    )
    assert any(COPY.holder in warning["message"] for job in jobs for warning in job["warnings"])
    assert not [job for job in jobs if job["state"] == "failed"]
    waiting = [job for job in jobs if job["state"] == "queued"]
    assert all(job["wait"].total_seconds() > 3600 for job in waiting)


async def test_adopting_takes_the_buckets_of_the_same_holder_and_others_only_by_name(
    harness: WorkerHarness, named: str, stores: S3BlobStores, address: S3Address, tmp_path: Path
) -> None:
    await create(harness, in_bucket(named))
    other = f"{named}-2"
    third = replace(OURS, holder="3/3")
    await S3BlobStore(stores.own.server, other, third, MarkerPolicy.CREATE, named=True).settle()
    own = await S3BlobStore.open(address, tmp_path / "copy", COPY, MarkerPolicy.TAKE_OVER)
    copied = S3BlobStores(own, address.bucket, COPY)
    await copied.adopt(named, by_name=False)
    await copied.of(named).verify()
    with pytest.raises(Conflict, match=f"'{other}' belongs to database 3/3.*--bucket {other}"):
        await copied.adopt(other, by_name=False)
    await copied.adopt(other, by_name=True)
    await copied.of(other).verify()
    with pytest.raises(Misconfigured, match=COPY.holder):
        await stores.of(named).verify()
    await copied.close()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "ab",
        "Theirs",
        "a_b",
        "-ab",
        "ab-",
        "a..b",
        "a.-b",
        "192.168.0.1",
        "a/b",
        "abc\n",
        "xn--a",
        "x" * 64,
    ],
)
async def test_a_name_that_no_server_accepts_is_refused_with_its_key(
    harness: WorkerHarness, name: str
) -> None:
    with pytest.raises(Invalid, match=r"storage\.blobs\.bucket"):
        await create(harness, in_bucket(name))


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
    with pytest.raises(Conflict, match=f"'{named}'.*{COPY.holder}.*latent adopt"):
        await create(harness, in_bucket(named))
    async with harness.stack.db.transaction() as conn:
        assert await containers.get(conn, THEIRS) is None
    assert names_in(address, named) == {f"{OURS.id}/{MARKER}"}

    denied = replace(address, secret_key=SecretStr("wrong"))
    refused = S3BlobStores(
        S3BlobStore(
            type(stores.own.server)(denied, harness.stack.tmp), "x", OURS, MarkerPolicy.REQUIRE
        ),
        "x",
        OURS,
    )
    with pytest.raises(Conflict, match=r"'another-one' of storage\.blobs\.bucket.*refuses the key"):
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
        with pytest.raises(BucketRefused, match=f"'{named}'.*latent doctor"):
            await call
    report = await again.examine()
    assert [(d.kind, d.object) for d in report.containers[THEIRS].differences] == [
        ("bucket", named)
    ]
    assert report.stores == []
    assert not report.containers[CONTAINER].differences
    with pytest.raises(Conflict, match="no marker"):  # in use: its loss is not covered up
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


async def test_page_images_of_a_named_bucket_are_stored_and_read_there(
    harness: WorkerHarness, named: str
) -> None:
    await create(harness, in_bucket(named))
    doc_id = await web_page(harness)
    assert await harness.work() == []
    rows = await sql(harness.stack.db, "SELECT DISTINCT bucket FROM blob_refs")
    assert [row["bucket"] for row in rows] == [named]
    async with harness.stack.db.transaction() as conn:
        page = await pages.one(conn, doc_id, 1)
    assert page is not None
    assert page["bucket"] == named
    picture = StoredImage(Sha256(page["image_sha256"]), THEIRS)
    assert len(await picture_reader(harness.stack)(picture)) > 100
    assert await hashes(harness, "") == set()
