"""Gateways and workers as processes of their own, on servers: Postgres 16, S3, and a stand-in for Qdrant."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import orjson
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from latent_client import AsyncClient, sync_folder
from latent_core.domain.errors import LatentError
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import BlobStorage, SearchMode, Storage
from tests.http.test_http_surface import add, ingest, manifest, search, settled
from tests.support.harness.installation import Installation, eventually
from tests.support.on_servers import TOKEN, own_stores
from tests.support.servers.embedding_server import EmbeddingServer
from tests.support.servers.launch import POSTGRES
from tests.support.servers.postgres_server import postgres_server, system_programs

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

GULLS = "The herring gull nests on the north cliff above the old harbour."
FOG = "When fog comes, the keeper sounds the horn twice a minute until it lifts."
LAMP = "A lens of glass rings turns around the lamp, so that ships see it flash."


async def test_a_document_goes_from_the_gateway_through_a_worker_to_a_hit_with_its_page(
    split: Installation, client: AsyncClient
) -> None:
    await client.create(manifest("gulls"))
    job_id = await ingest(client, "gulls", "gulls.md", GULLS.encode())
    await settled(client, "gulls")
    (hit,) = (await search(client, "gulls", "where do gulls nest?")).hits
    assert "herring gull" in hit.snippet
    assert urlsplit(hit.uri).netloc == urlsplit(split.url).netloc
    async with httpx.AsyncClient(trust_env=False) as http:
        page = await http.get(hit.uri)
        ready = (await http.get(f"{split.url}/readyz")).json()
    assert page.headers["content-type"] == "image/webp"
    assert len(page.content) == int(page.headers["content-length"]) > 1000
    assert ready["services"] == {"postgres": "ok", "qdrant": "ok", "minio": "ok"}
    assert (await client.doctor("gulls")).clean
    job = await client.job(job_id)
    assert job.embedding is not None
    assert job.embedding.cost == pytest.approx(job.embedding.tokens * 2e-6)
    embedder_view = (await client.describe("gulls")).embedder
    assert embedder_view["usage"]["tokens"] >= job.embedding.tokens > 0


async def test_a_worker_serves_health_readiness_and_metrics_on_one_port(
    split: Installation,
) -> None:
    page = split.metrics_urls[0].removesuffix("/metrics")
    async with httpx.AsyncClient(trust_env=False) as http:

        async def serves() -> bool:
            with suppress(httpx.TransportError):
                return (await http.get(f"{page}/healthz")).json() == {"status": "ok"}
            return False

        await eventually(serves, what="the worker's pages")
        answer = await http.get(f"{page}/readyz")
        assert answer.status_code == 200
        services = {"postgres": "ok", "qdrant": "ok", "minio": "ok"}
        assert answer.json() == {"status": "ok", "services": services}
        assert 'latent_service_up{service="minio"} 1.0' in (await http.get(f"{page}/metrics")).text


async def test_what_was_accepted_survives_the_death_of_workers_and_gateway(
    split: Installation,
) -> None:
    names = [f"doc-{n}.md" for n in range(8)]
    async with split.client() as client:
        await client.create(manifest("sturdy"))
        await split.add_worker()
        jobs = [
            (await add(client, "sturdy", name, f"{GULLS} Number {name}.".encode())).job_id
            for name in names
        ]
        split.workers[0].kill()
        await split.workers.pop(0).wait()
    await split.kill()
    await split.start()
    async with split.client() as client:
        done = await client.wait(jobs, timeout_seconds=90)
        assert {job.state for job in done} == {JobState.DONE}
        await settled(client, "sturdy")
        answer = await search(client, "sturdy", "gull", mode=SearchMode.LEXICAL, top_k=100)
        assert len(answer.hits) == len(names)
        assert (await client.doctor("sturdy")).clean


async def test_two_workers_at_once_embed_no_text_twice(
    split: Installation, embedding_server: EmbeddingServer, tmp_path: Path
) -> None:
    """Ten work trees of one repository on slightly different branches, and an embedder that counts."""
    trees = [tmp_path / f"{n}" / "repository" for n in range(10)]
    for number, tree in enumerate(trees):
        tree.mkdir(parents=True)
        for file in range(6):
            text = f"The buoy {file} rings when the swell lifts it, and the keeper notes it down."
            (tree / f"{file}.md").write_text(text, encoding="utf-8")
        (tree / "branch.md").write_text(f"This is branch {number}.", encoding="utf-8")
    await split.add_worker()
    embedding_server.delay, before = 0.2, embedding_server.stats.texts
    try:
        async with split.client() as client:
            await client.create(manifest("trees"))
            reports = await asyncio.gather(*(sync_folder(client, "trees", tree) for tree in trees))
            jobs = [job_id for report in reports for job_id in report.job_ids]
            done = await client.wait(jobs, timeout_seconds=120)
            assert {job.state for job in done} == {JobState.DONE}
            texts = {chunk.text async for chunk in client.chunks("trees")}
            documents = [document async for document in client.documents("trees")]
    finally:
        embedding_server.delay = 0.0
    assert len(documents) == 70
    assert embedding_server.stats.texts - before == len(texts) == 16
    async with httpx.AsyncClient(trust_env=False) as http:
        for url in split.metrics_urls[-2:]:
            page = (await http.get(url)).text
            taken = re.findall(r"^latent_cached_texts_total\{.*\} (\S+)$", page, re.MULTILINE)
            assert sum(map(float, taken)) > 0, "both workers had documents"


async def test_a_restart_of_the_gateway_loses_no_request_that_was_answered_202(
    split: Installation,
) -> None:
    """Documents come without a pause while the gateway is stopped politely, and while it is killed."""
    accepted: list[int] = []
    refused = 0
    over = asyncio.Event()
    async with split.client() as client:
        await client.create(manifest("restarted"))

    async def bring() -> None:
        nonlocal refused
        while not over.is_set():
            name = f"doc-{len(accepted)}-{refused}.md"
            try:
                async with split.client() as client:
                    added = await add(client, "restarted", name, f"{GULLS} In {name}.".encode())
            except LatentError:
                refused += 1
            else:
                accepted.append(added.job_id)

    async def brought(more: int) -> None:
        target_count = len(accepted) + more
        await eventually(
            lambda: _as_async(len(accepted) >= target_count), what=f"{more} more documents"
        )

    bringing = asyncio.create_task(bring())
    try:
        await brought(5)
        for number in (signal.SIGTERM, signal.SIGKILL):
            await split.restart_gateway(number)
            await brought(5)
    finally:
        over.set()
        await bringing
    async with split.client() as client:
        jobs = await client.wait(accepted, timeout_seconds=120)
        assert {job.state for job in jobs} == {JobState.DONE}
        shown = {document.doc_id async for document in client.documents("restarted")}
        assert {job.doc_id for job in jobs} <= shown
        assert (await client.doctor("restarted")).clean


async def _as_async(answer: bool) -> bool:
    return answer


async def test_a_container_moves_from_an_embedded_data_directory_to_servers_by_its_file(
    split: Installation, client: AsyncClient, install_root: Path, settings: dict[str, str]
) -> None:
    """As docs/docker.md says: nothing is embedded again, and every hit and page is there."""
    file = install_root / "moved.latent.tar.zst"
    embedded = Installation(install_root / "embedded", settings, stores={})
    await embedded.start()
    try:
        async with embedded.client() as here:
            await here.create(manifest("moved"))
            for name, text in {"gulls": GULLS, "fog": FOG, "lamp": LAMP}.items():
                await ingest(here, "moved", f"{name}.md", text.encode())
            await settled(here, "moved")
            before = await search(here, "moved", "where do gulls nest?")
        code, _, err = await embedded.cli("export", "moved", "--to", str(file))
        assert code == 0, err
    finally:
        await embedded.stop()
    code, out, err = await split.cli("import", str(file), "--json")
    assert code == 0, err
    assert orjson.loads(out)["job"]["result"]["embedded"] == 0
    after = await search(client, "moved", "where do gulls nest?")
    assert len(before.hits) == 3
    assert [(hit.chunk_id, hit.score) for hit in before.hits] == [
        (hit.chunk_id, pytest.approx(hit.score, abs=1e-5)) for hit in after.hits
    ]
    async with httpx.AsyncClient(trust_env=False) as http:
        pages = [await http.get(hit.uri) for hit in after.hits]
    assert {page.headers["content-type"] for page in pages} == {"image/webp"}
    assert (await client.doctor("moved")).clean


async def test_a_container_without_its_embedder_is_listed_described_and_searched_by_keywords(
    split: Installation, client: AsyncClient
) -> None:
    await client.create(manifest("nomic", embedder="nomic/nomic-embed-text-v1.5", dims=64))
    assert "nomic" in [one.id for one in await client.containers()]
    missing = (await client.describe("nomic")).embedder["missing"]
    assert "LLC_NOMIC_API_KEY" in missing
    answer = await search(client, "nomic", "gull")
    assert any("LLC_NOMIC_API_KEY" in issue.message for issue in answer.issues)
    lexical = await search(client, "nomic", "gull", mode=SearchMode.LEXICAL)
    assert not any("LLC_NOMIC_API_KEY" in issue.message for issue in lexical.issues)


async def test_who_keeps_vectors_for_himself_is_alone_on_a_database(
    install_root: Path, addresses: Mapping[str, str], settings: dict[str, str]
) -> None:
    """Postgres a server, vectors and blobs embedded: works, and for one process only."""
    stores = own_stores(addresses)
    only = {"LLC_POSTGRES_DSN": stores["LLC_POSTGRES_DSN"], "LLC_MCP_TOKEN": TOKEN}
    mixed = Installation(install_root / "mixed", settings | only, stores={})
    await mixed.start()
    try:
        async with mixed.client(TOKEN) as client:
            await client.create(manifest("mixed"))
            await ingest(client, "mixed", "gulls.md", GULLS.encode())
            assert len((await search(client, "mixed", "gull")).hits) == 1
        second = Installation(install_root / "second", settings | only, stores={})
        code, out, err = await second.cli("up", "--json")
        assert code == 1
        assert "LLC_QDRANT_URL" in out + err
        worker = Installation(install_root / "third", settings | stores, stores={})
        code, out, err = await worker.cli("worker")
        assert code == 1
        assert "stores vectors or blobs locally" in out + err
    finally:
        await mixed.stop()
    with psycopg.connect(stores["LLC_POSTGRES_DSN"]) as conn:
        row = conn.execute("SELECT count(*) FROM documents").fetchone()
    assert row == (1,)


@pytest.mark.parametrize("command", ["gateway", "worker"])
async def test_alone_a_process_names_what_it_lacks(
    install_root: Path, addresses: Mapping[str, str], command: str
) -> None:
    stores = own_stores(addresses)
    del stores["LLC_QDRANT_URL"]
    bare = Installation(install_root / f"bare-{command}", stores, stores={})
    code, out, err = await bare.cli(command)
    assert code == 2
    assert "LLC_QDRANT_URL" in out + err
    assert "LLC_S3_ENDPOINT" not in out + err


async def test_a_gateway_wants_the_token_that_all_of_them_share(
    install_root: Path, addresses: Mapping[str, str]
) -> None:
    stores = own_stores(addresses)
    del stores["LLC_MCP_TOKEN"]
    bare = Installation(install_root / "bare-token", stores, stores={})
    code, out, err = await bare.cli("gateway")
    assert code == 2
    assert "LLC_MCP_TOKEN" in out + err


async def test_migrate_prepares_a_server_once(
    install_root: Path, addresses: Mapping[str, str]
) -> None:
    bare = Installation(install_root / "migrate", own_stores(addresses), stores={})
    assert (await bare.cli("migrate"))[0] == 0
    code, out, _ = await bare.cli("migrate")
    assert code == 0
    assert "nothing to do" in out


async def test_a_server_that_is_too_old_is_refused_with_its_version(
    install_root: Path, addresses: Mapping[str, str]
) -> None:
    programs = system_programs()
    if programs is None or int(programs.parent.name) >= 16:
        pytest.skip("no Postgres before 16 is installed on this machine")
    with postgres_server(programs) as dsn:
        stores = own_stores({**addresses, POSTGRES: dsn})
        old = Installation(install_root / "old", stores, stores={})
        code, out, err = await old.cli("worker")
    assert code == 2
    assert "too old" in out + err


async def test_the_api_names_an_unreachable_store(
    split: Installation, client: AsyncClient, addresses: Mapping[str, str]
) -> None:
    """The stand-in drops the connection for a while: the answer is partial, never empty without a word."""
    await client.create(manifest("away"))
    await ingest(client, "away", "gulls.md", GULLS.encode())
    async with httpx.AsyncClient(trust_env=False) as http:
        plan = {"kind": "hung_up", "times": 50, "only": "points/query"}
        qdrant = split.environment()["LLC_QDRANT_URL"]
        await http.post(f"{qdrant}/misbehave", json=plan)
        answer = await search(client, "away", "gull")
        await http.post(f"{qdrant}/misbehave", json=plan | {"times": 1, "only": "nothing"})
    assert answer.partial
    assert [hit.title for hit in answer.hits] == ["gulls.md"]

    async def whole() -> bool:
        return not (await search(client, "away", "gull")).partial

    await eventually(whole, what="an answer that is whole again")


async def test_two_installations_with_default_settings_leave_each_other_alone(
    install_root: Path, addresses: Mapping[str, str], settings: dict[str, str]
) -> None:
    ours = Installation(install_root / "ours", settings, stores=own_stores(addresses))
    theirs = Installation(install_root / "theirs", settings, stores=own_stores(addresses))
    for one in (ours, theirs):
        await one.start()
        async with one.client() as client:
            await client.create(manifest("same"))
            await ingest(client, "same", "gulls.md", GULLS.encode())
            await settled(client, "same")
    kept = theirs.stored_blobs()
    async with ours.client() as client:
        report = await client.doctor(repair=True)
        assert report.clean
        assert not report.notes
        await client.delete("same")

        async def collected() -> bool:
            return ours.stored_blobs() == 0

        await eventually(collected, seconds=60)
    async with theirs.client() as client:
        assert (await client.doctor()).clean
        assert len((await search(client, "same", "where do gulls nest?")).hits) == 1
    assert theirs.stored_blobs() == kept > 0
    for one in (ours, theirs):
        assert await one.stop() == 0


async def test_a_restored_dump_is_refused_until_it_adopts_the_installation(
    install_root: Path, addresses: Mapping[str, str], settings: dict[str, str]
) -> None:
    stores = own_stores(addresses)
    original = Installation(install_root / "original", settings, stores=stores)
    await original.start()
    async with original.client() as client:
        await client.create(manifest("moved"))
        await ingest(client, "moved", "gulls.md", GULLS.encode())
        await settled(client, "moved")
    assert await original.stop() == 0
    name = conninfo_to_dict(stores["LLC_POSTGRES_DSN"])["dbname"]
    with psycopg.connect(addresses[POSTGRES], autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}_copy TEMPLATE {name}".encode())
    restored = stores | {
        "LLC_POSTGRES_DSN": make_conninfo(stores["LLC_POSTGRES_DSN"], dbname=f"{name}_copy")
    }
    copy = Installation(install_root / "copy", settings, stores=restored)
    with pytest.raises(AssertionError, match="is a copy of database"):
        await copy.start()
    code, adopted, err = await copy.cli("adopt", "--json")
    assert code == 0, err
    assert orjson.loads(adopted)["installation"]
    await copy.start()
    async with copy.client() as client:
        assert (await client.doctor()).clean
        assert len((await search(client, "moved", "where do gulls nest?")).hits) == 1
    with pytest.raises(AssertionError, match="belongs to database"):
        await original.start()
    assert await copy.stop() == 0


def in_bucket(name: str) -> Storage:
    return Storage(blobs=BlobStorage(bucket=name))


@pytest.mark.parametrize("public", [False, True], ids=["through-the-gateway", "presigned"])
async def test_a_container_with_a_bucket_of_its_own_is_stored_linked_exported_and_deleted_there(
    install_root: Path, addresses: Mapping[str, str], settings: dict[str, str], public: bool
) -> None:
    stores = own_stores(addresses)
    more = {"LLC_S3_PUBLIC_ENDPOINT": stores["LLC_S3_ENDPOINT"]} if public else {}
    one = Installation(install_root / f"buckets-{public}", settings | more, stores=stores)
    await one.start()
    bucket = f"named-{uuid4().hex[:12]}"
    async with one.client() as client:
        await client.create(manifest("own"))
        await client.create(manifest("elsewhere", storage=in_bucket(bucket)))
        for name in ("own", "elsewhere"):
            await ingest(client, name, "gulls.md", GULLS.encode())
            await settled(client, name)
        there = one.stored_blobs(bucket)
        assert there == one.stored_blobs() > 0
        (hit,) = (await search(client, "elsewhere", "where do gulls nest?")).hits
        assert bucket in hit.uri
        assert ("/v1/blobs/" in hit.uri) is not public
        async with httpx.AsyncClient(trust_env=False) as http:
            page = await http.get(hit.uri)
            assert page.status_code == 200
            assert page.headers["content-type"] == "image/webp"
            if not public:
                other = await http.get(hit.uri.replace(bucket, "latent"))
                assert other.status_code == 403
        described = await client.describe("elsewhere")
        moved = manifest("elsewhere", storage=in_bucket("another-one"))
        with pytest.raises(LatentError, match="--merge"):
            await client.update(moved, if_match=described.etag)
        report = await client.doctor(deep=True)
        assert report.clean
        archive = install_root / f"elsewhere-{public}.tar.zst"
        code, _, err = await one.cli("export", "elsewhere", "--to", str(archive))
        assert code == 0, err
        assert one.stored_blobs(bucket) == there + 1
        kept = one.stored_blobs()
        await client.delete("elsewhere")

        async def only_the_archive_is_left() -> bool:
            return one.stored_blobs(bucket) == 1

        await eventually(only_the_archive_is_left, seconds=60)
        assert one.stored_blobs() == kept
        code, _, err = await one.cli("import", str(archive))
        assert code == 0, err
        assert len((await search(client, "elsewhere", "where do gulls nest?")).hits) == 1
        assert one.stored_blobs(bucket) >= there
        assert (await client.doctor(deep=True)).clean
    assert await one.stop() == 0


async def test_the_own_bucket_cannot_be_one_that_a_container_names(
    install_root: Path, addresses: Mapping[str, str], settings: dict[str, str]
) -> None:
    stores, bucket = own_stores(addresses), f"named-{uuid4().hex[:12]}"
    one = Installation(install_root / "swapped", settings, stores=stores)
    await one.start()
    async with one.client() as client:
        await client.create(manifest("elsewhere", storage=in_bucket(bucket)))
        await ingest(client, "elsewhere", "gulls.md", GULLS.encode())
    assert await one.stop() == 0
    swapped = Installation(
        install_root / "swapped", settings | {"LLC_S3_BUCKET": bucket}, stores=stores
    )
    with pytest.raises(AssertionError, match=r"LLC_S3_BUCKET is .*storage\.blobs\.bucket"):
        await swapped.start()
    await one.start()
    async with one.client() as client:
        await ingest(client, "elsewhere", "fog.md", FOG.encode())
        assert (await client.doctor(deep=True)).clean
    assert await one.stop() == 0
