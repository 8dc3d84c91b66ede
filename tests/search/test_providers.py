"""Providers of a running installation: containers by their names, and what is said when one cannot be used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import psycopg
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.errors import Invalid, Unavailable
from latent_core.domain.job import JobState
from latent_core.domain.manifest.language_models import ModelBlock
from latent_core.domain.manifest.model import Manifest, SearchMode
from latent_core.models.providers.entry import Kind
from latent_core.wire.search import SearchRequest
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.provider_server import MODEL, ProviderServer

pytestmark = pytest.mark.asyncio(loop_scope="module")
KEY: Final = "sk-of-a-provider-that-no-log-shows"
DIMS: Final = 48


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[ProviderServer]:
    async with ProviderServer(Kind.COHERE, dims=DIMS, key=KEY) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(install_root: Path, server: ProviderServer) -> AsyncIterator[Installation]:
    folder = install_root / "providers"
    folder.mkdir()
    (folder / "key").write_text(KEY, encoding="utf-8")
    file = folder / "providers.yaml"
    file.write_text(
        "providers:\n"
        f"- {{name: work, kind: cohere, base_url: '{server.base_url}/v1', key_file: key, price: 100}}\n"
        "- {name: away, kind: ollama, base_url: 'http://127.0.0.1:1'}\n"
        "- {name: keyless, kind: voyage, key_file: none}\n",
        encoding="utf-8",
    )
    one = Installation(folder, {"LLC_PROVIDERS": str(file)})
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(installation: Installation) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(installation.url, installation.token) as client:
        yield client


async def test_a_container_of_a_provider_is_created_without_dims_filled_and_searched(
    client: AsyncClient, tmp_path: Path
) -> None:
    await client.create(Manifest(id="papers", name="Papers", embedder=f"work/{MODEL}"))
    described = await client.describe("papers")
    assert described.embedder == {"embedder": f"work/{MODEL}", "version": "1", "dims": DIMS}
    file = tmp_path / "gulls.txt"
    file.write_text("Gulls follow the boats into the harbour.", encoding="utf-8")
    upload = await client.upload("papers", file)
    added = await client.add("papers", file_ref=upload.file_ref)
    (job,) = await client.wait([added.job_id], timeout_seconds=120)
    assert job.state is JobState.DONE, job.cause
    found = await client.search(
        SearchRequest(containers=["papers"], query="boats in the harbour", mode="semantic", top_k=3)
    )
    assert found.hits
    usage = (await client.describe("papers")).embedder["usage"]
    assert usage["cost"] == pytest.approx(usage["tokens"] / 10_000)


async def test_what_cannot_be_created_is_refused_by_name(client: AsyncClient) -> None:
    for embedder, error, words in (
        ("wrok/m", Invalid, "did you mean 'work/m'"),
        ("away/m", Unavailable, "refuses connections.*Set dims"),
        ("keyless/m", Unavailable, "key_file of the provider 'keyless'"),
    ):
        with pytest.raises(error, match=words):
            await client.create(Manifest(id="refused", name="Refused", embedder=embedder))
    await client.create(Manifest(id="later", name="Later", embedder="away/m", dims=8))


async def test_a_language_model_that_is_not_there_is_refused_when_a_manifest_names_it(
    client: AsyncClient,
) -> None:
    for provider, words in (
        ("wrok/m", r"ask\.provider: .* did you mean 'work/m'"),
        ("work/m", r"ask\.provider: .* kind cohere, which has no language models"),
        (None, r"ask\.provider names no language model"),
    ):
        asking = {"enabled": True, "provider": provider}
        with pytest.raises(Invalid, match=words):
            await client.create(Manifest(id="asking", name="Asking", ask=ModelBlock(**asking)))
        described = await client.describe("papers")
        changed = Manifest.model_validate({**described.manifest, "ask": asking})
        with pytest.raises(Invalid, match=words):
            await client.update(changed, if_match=described.etag)
    unchanged = await client.describe("papers")
    assert (unchanged.etag, "asking" in {c.id for c in await client.containers()}) == (
        described.etag,
        False,
    )


async def test_a_container_without_documents_is_silent_in_a_search_of_all(
    client: AsyncClient,
) -> None:
    """Its embedder is away."""
    found = await client.search(SearchRequest(query="boats in the harbour", explain=True, top_k=3))
    assert (found.partial, found.issues, bool(found.hits)) == (False, [], True)
    assert found.diagnostics is not None
    states = {one.container_id: one for one in found.diagnostics.container_status}
    assert (states["later"].ok, states["later"].exhausted) == (True, True)
    assert set(found.diagnostics.terms) == {"papers"}
    assert "'later' holds no text or image yet." in found.diagnostics.plan


async def test_doctor_names_providers_that_cannot_be_used(
    installation: Installation, client: AsyncClient
) -> None:
    report = await client.doctor()
    notes = {note.object: note.message for note in report.notes if note.kind == "provider"}
    assert set(notes) == {"away", "keyless"}
    assert "refuses connections" in notes["away"]
    assert "cannot be read" in notes["keyless"]
    code, out, err = await installation.cli("doctor")
    assert "provider away" in out, err
    assert code == 0


async def test_no_key_is_shown_anywhere(
    installation: Installation, server: ProviderServer, client: AsyncClient
) -> None:
    server.key = "another"
    try:
        found = await client.search(
            SearchRequest(containers=["papers"], query="a new question", mode="semantic", top_k=3)
        )
        assert "key_file of the provider 'work'" in " ".join(
            issue.message for issue in found.issues
        )
    finally:
        server.key = KEY
    async with httpx.AsyncClient(base_url=installation.url) as http:
        shown = (await http.get("/readyz")).text
    code, out, err = await installation.cli("config")
    assert code == 0, err
    logs = "".join(file.read_text("utf-8") for file in installation.folder.rglob("*.log"))
    assert KEY not in f"{shown}{out}{err}{found.issues}{logs}"


async def test_a_model_that_becomes_another_one_is_named_mixes_nothing_and_a_refresh_mends_it(
    installation: Installation, server: ProviderServer
) -> None:
    async with installation.client() as client:
        await client.create(Manifest(id="swapped", name="Swapped", embedder=f"work/{MODEL}"))
        added = await client.add("swapped", text="A keel of oak rots in the yard.", title="keel")
        await client.wait([added.job_id])
    await installation.stop()
    server.other_model = True
    await installation.start()
    hybrid = SearchRequest(containers=["swapped"], query="keel in the yard", top_k=3)
    semantic = hybrid.model_copy(update={"mode": SearchMode.SEMANTIC})
    async with installation.client() as client:
        found = await client.search(hybrid)
        assert [hit.title for hit in found.hits] == ["keel"]
        (issue,) = found.issues
        message = issue.message[issue.message.index(f"the model behind work/{MODEL} is another") :]
        assert not (await client.search(semantic)).hits
        assert message in (await client.describe("swapped")).embedder["missing"]
        late = await client.add("swapped", text="An anchor lies in the yard.", title="anchor")

        async def waits() -> bool:
            return (await client.job(late.job_id)).cause is not None

        await eventually(waits, what="the job that waits for the model")
        job = await client.job(late.job_id)
        assert job.cause is not None
        assert (job.state, message in job.cause.message) == (JobState.QUEUED, True)

        command = message[message.index("latent refresh") :].replace("CONTAINER", "swapped")
        code, _, err = await installation.cli(*command.split()[1:], "--wait")
        assert code == 0, err
        mended = await client.search(semantic)
        # The waiting job may have tried again by now, and its note is then found, too.
        assert (mended.hits[0].title, mended.issues) == ("keel", [])
        async with await psycopg.AsyncConnection.connect(installation.dsn) as conn:
            await conn.execute("UPDATE jobs SET run_at = now() WHERE state = 'queued'")
        await client.wait([late.job_id])
        assert {hit.title for hit in (await client.search(semantic)).hits} == {"keel", "anchor"}
