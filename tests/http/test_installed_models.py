"""``embedder: <name>`` of an installed model in a running installation, and what is said when the model is missing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import psycopg
import pymupdf
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.domain.chunk import Modality
from latent_core.domain.errors import Invalid
from latent_core.domain.golden import parse_golden
from latent_core.domain.job import JobState, JobView
from latent_core.domain.manifest.model import Manifest, SearchMode
from latent_core.models.rerank.local import LocalReranker
from latent_core.models.store.layout import ModelStore
from latent_core.models.store.use_lock import in_use, unused
from latent_core.wire.evaluation import EvalReport
from latent_core.wire.refresh import RefreshRequest
from latent_core.wire.search import Hit, SearchRequest
from tests.conftest import DIMS as OPENAI_DIMS
from tests.http.test_http_surface import ingest
from tests.support.colours import COLOURS, picture
from tests.support.contracts.rerank import scores_of
from tests.support.harness.installation import LATENT, Installation, eventually
from tests.support.onnx_encoders import EncoderWeights, Positions, write_cross_encoder
from tests.support.servers.model_hub import ModelHub
from tests.support.tiny_model import DIMS, tiny_pictures, tiny_repository

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True
ID: Final = "acme/Tiny-Lamp"
NAME: Final = "tiny-lamp"
RANKER: Final = "acme/tiny-ranker"
TEXTS: Final = {"lamp": "lamp oil lamp oil", "boat": "storm boat storm boat"}

HYBRID: Final = SearchRequest(query="boat storm", containers=["lamps"], top_k=5)
SEMANTIC: Final = HYBRID.model_copy(update={"mode": SearchMode.SEMANTIC})


@pytest.fixture(scope="module")
def hub() -> Iterator[ModelHub]:
    with ModelHub() as running:
        running.publish(ID, tiny_repository())
        yield running


async def test_an_installed_model_embeds_and_a_missing_one_is_named_with_its_command(
    installation: Installation,
    client: AsyncClient,
    http: httpx.AsyncClient,
    hub: ModelHub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    manifest = Manifest(id="lamps", name="Lamps", embedder=NAME)

    with pytest.raises(Invalid, match=f"{NAME} is not installed.*latent models add <owner>/{NAME}"):
        await client.create(manifest)

    code, _, err = await installation.cli("models", "add", ID)
    assert code == 0, err
    revision = hub.repositories[ID].refs["main"]
    created = await client.create(manifest)
    assert created.container.dims == DIMS
    added = [await client.add("lamps", text=text, title=title) for title, text in TEXTS.items()]
    await client.wait([answer.job_id for answer in added])

    found = await client.search(SEMANTIC)
    assert found.hits[0].title == "boat"
    assert not found.issues
    described = await client.describe("lamps")
    assert described.embedder["version"] == f"{ID}@{revision[:12]}"
    assert "missing" not in described.embedder
    (model,) = (one for one in (await client.models()).models if one.name == NAME)
    assert [(use.container_id, use.state.value) for use in model.used_by] == [("lamps", "live")]

    code, _, err = await installation.cli("models", "remove", NAME)
    assert code == 1
    assert "makes the vectors of lamps (live)" in err

    code, _, err = await installation.cli("models", "remove", NAME, "--force")
    assert code == 0, err
    command = f"latent models add {ID}@{revision[:12]}"
    semantic = await client.search(SEMANTIC)
    assert [command in issue.message for issue in semantic.issues] == [True]
    hybrid = await client.search(HYBRID)
    assert hybrid.hits[0].title == "boat"
    assert sum(command in issue.message for issue in hybrid.issues) == 1
    assert command in (await client.describe("lamps")).embedder["missing"]
    (listed,) = (one for one in await client.containers() if one.id == "lamps")
    assert command in (listed.missing or "")
    report = await client.doctor("lamps")
    assert [command in note.message for note in report.containers["lamps"].notes] == [True]
    assert report.clean
    (missing,) = (one for one in (await client.models()).missing if one.name == NAME)
    assert command in missing.message
    form = {"token": installation.token, "next": "/console/containers/lamps"}
    page = await http.post(
        "/login", data=form, headers={"Origin": installation.url}, follow_redirects=True
    )
    assert f"keywords only: the embedder {NAME} is not installed" in page.text
    late = await client.add("lamps", text="oil lamp oil", title="late")

    async def waits() -> bool:
        view = await client.job(late.job_id)
        return view.state is JobState.QUEUED and view.cause is not None

    await eventually(waits, what="the job that waits for the model")
    job = await client.job(late.job_id)
    assert job.cause is not None
    assert command in job.cause.message
    assert "goes on by itself" in job.cause.message
    assert job.attempts == 0

    code, _, err = await installation.cli(*command.split()[1:])
    assert code == 0, err
    mended = await client.search(SEMANTIC)
    assert (mended.hits[0].title, mended.issues) == ("boat", [])
    async with await psycopg.AsyncConnection.connect(installation.dsn) as conn:
        await conn.execute("UPDATE jobs SET run_at = now() WHERE state = 'queued'")
    await client.wait([late.job_id])
    assert {hit.title for hit in (await client.search(SEMANTIC)).hits} == {*TEXTS, "late"}


def plates() -> bytes:
    """A PDF whose first page has words and whose second is green."""
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), "ledger of the keeper")
    page = document.new_page()
    page.draw_rect(page.rect, fill=[part / 255 for part in COLOURS["green"]], width=0)
    return bytes(document.tobytes())


async def test_two_repositories_make_an_embedder_that_finds_pictures_by_their_looks(
    installation: Installation,
    client: AsyncClient,
    hub: ModelHub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.publish("acme/eye-texts", tiny_repository())
    hub.publish("acme/eye-pictures", tiny_pictures())
    code, out, err = await installation.cli(
        "models", "add", "acme/eye-texts", "--with", "acme/eye-pictures"
    )
    assert code == 0, err
    assert "latent container create ID --embedder eye-texts" in out
    created = await client.create(Manifest(id="seen-here", name="Seen", embedder="eye-texts"))
    assert created.container.modalities == ["text", "image"]
    files = {"red.png": picture("red"), "blue.jpg": picture("blue", "JPEG"), "plates.pdf": plates()}
    for name, data in files.items():
        await ingest(client, "seen-here", name, data)
    await ingest(client, "seen-here", "words.md", b"lamp")

    async def found(**options: Any) -> tuple[str, int | None]:
        request = SearchRequest(
            containers=["seen-here"], mode=SearchMode.CROSSMODAL, top_k=5, **options
        )
        answer = await client.search(request)
        assert not answer.issues
        return answer.hits[0].source_path, answer.hits[0].place.page

    assert await found(query="lamp") == ("red.png", 1)
    assert await found(query="boat") == ("blue.jpg", 1)
    assert await found(query="oil", dedup=False) == ("plates.pdf", 2)
    ids = {
        doc.source_uri.rpartition("/")[2]: doc.doc_id async for doc in client.documents("seen-here")
    }
    assert (await found(image_ref=str(ids["red.png"])))[0] == "words.md"
    pages = [chunk async for chunk in client.chunks("seen-here", doc_id=ids["plates.pdf"])]
    assert [(chunk.modality, chunk.place.page) for chunk in pages] == [
        (Modality.TEXT, 1),
        (Modality.IMAGE, 1),
        (Modality.IMAGE, 2),
    ]
    described = await client.describe("seen-here")
    again = Manifest(id="seen-here", name="Seen again", embedder="eye-texts")
    changed = await client.update(again, if_match=described.etag)
    assert changed.container.modalities == ["text", "image"]
    code, _, err = await installation.cli("models", "remove", "eye-texts")
    assert (code, "makes the vectors of seen-here (live)" in err) == (1, True)


async def test_a_model_that_computes_other_vectors_than_when_it_was_added_is_refused_by_name(
    installation: Installation,
    client: AsyncClient,
    hub: ModelHub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.publish("acme/drifting", tiny_repository())
    code, out, err = await installation.cli("models", "add", "acme/drifting", "--json")
    assert code == 0, err
    model = orjson.loads(out)["model"]
    graph = installation.data_dir / "models" / model["reference"] / "onnx" / "model.onnx"
    graph.unlink()
    graph.write_bytes(tiny_repository(seed=8)["onnx/model.onnx"])
    await client.create(Manifest(id="drifted", name="Drifted", embedder="drifting"))
    added = await client.add("drifted", text="lamp oil", title="lamp")

    async def waits() -> bool:
        return (await client.job(added.job_id)).cause is not None

    await eventually(waits, what="the job that waits for a model that computes the same")
    cause = str((await client.job(added.job_id)).cause)
    assert "the embedder drifting stores no vectors" in cause
    assert f"latent models verify {model['reference']}" in cause
    report = await client.doctor()
    assert report.checks["local_models_run_on"] == "CPU"
    (note,) = (one for one in report.containers["drifted"].notes if one.kind == "embedder")
    assert "the embedder drifting stores no vectors" in note.message

    code, _, err = await installation.cli("models", "add", f"acme/drifting@{model['revision']}")
    assert code == 0, err
    async with await psycopg.AsyncConnection.connect(installation.dsn) as conn:
        await conn.execute("UPDATE jobs SET run_at = now() WHERE id = %s", [added.job_id])
    (done,) = await client.wait([added.job_id])
    assert done.state is JobState.DONE


@pytest_asyncio.fixture(loop_scope="module")
async def ranker(
    installation: Installation, hub: ModelHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    """The folder of a cross-encoder that is installed during a test."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    folder = tmp_path / "ranker"
    folder.mkdir()
    write_cross_encoder(folder, EncoderWeights(Positions.LEARNED))
    hub.publish(RANKER, {file.name: file.read_bytes() for file in folder.iterdir()})
    code, _, err = await installation.cli("models", "add", RANKER)
    assert code == 0, err
    yield folder
    code, _, err = await installation.cli("models", "remove", "tiny-ranker")
    assert code == 0, err


async def test_an_installed_cross_encoder_reranks_by_default_and_an_evaluation_tells_its_gain(
    installation: Installation, client: AsyncClient, ranker: Path, tmp_path: Path
) -> None:
    await client.create(Manifest(id="ranked", name="R", embedder="openai/test", dims=OPENAI_DIMS))
    texts = [f"red {letters} harbour {letters}{letters}" for letters in ("b c", "d", "e f", "g h")]
    added = [await client.add("ranked", text=text, title=str(n)) for n, text in enumerate(texts)]
    await client.wait([answer.job_id for answer in added])
    query = SearchRequest(query="red harbour", containers=["ranked"], top_k=4)
    fused = await client.search(query)
    answer = await client.search(query.model_copy(update={"mode": SearchMode.RERANK}))
    assert not answer.issues
    model = LocalReranker(ranker)
    hits = sorted(answer.hits, key=lambda hit: hit.title)
    scores = await scores_of(model, [hit.text or "" for hit in hits], query.query)
    await model.close()
    by_score = sorted(zip(scores, hits, strict=True), key=lambda pair: -pair[0])
    assert [h.title for h in answer.hits] == [h.title for _, h in by_score]
    best = answer.hits[0].doc_id
    assert best != fused.hits[0].doc_id

    golden = {"queries": [{"q": query.query, "expect_docs": [str(best)]}]}
    file = tmp_path / "golden.json"
    file.write_bytes(orjson.dumps(golden))
    command = ("eval", "ranked", "--dataset", str(file), "--rounds", "1")
    code, out, err = await installation.cli(*command, "--json")
    assert code == 0, (out, err)
    report = EvalReport.model_validate_json(out).reranking
    assert report is not None
    assert report.without is not None
    assert report.reranked is not None
    assert (report.without.hit_at_1, report.reranked.hit_at_1) == (0.0, 1.0)
    assert (report.without.recall_at_20, report.reranked.recall_at_20) == (1.0, 1.0)
    assert report.without.ndcg_at_10 < report.reranked.ndcg_at_10 == 1.0
    assert (report.queries, report.partial, report.missing) == (1, 0, "")
    code, out, err = await installation.cli(*command)
    assert "with reranking" in out
    assert re.search(r"^reranking: nDCG@10 \.\d\d → 1\.00, [+-]\d+ ms at p95$", out, re.MULTILINE)


async def test_a_refresh_from_the_built_in_to_an_installed_model_is_gated_and_rolls_back(
    installation: Installation,
    client: AsyncClient,
    hub: ModelHub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    other = "acme/Tiny-Beacon"
    hub.publish(other, tiny_repository())
    code, _, err = await installation.cli("models", "add", other)
    assert code == 0, err
    await client.create(Manifest(id="gated-model", name="Gated model", embedder="local"))
    added = [
        await client.add("gated-model", text=text, title=title) for title, text in TEXTS.items()
    ]
    await client.wait([answer.job_id for answer in added])
    ids = {hit.title: str(hit.doc_id) for hit in await answered_of(client, "gated-model")}
    request = RefreshRequest.model_validate(
        {"strategy": "parallel", "to": {"embedder": "tiny-beacon"}}
    )

    await expect(client, ids["lamp"])  # which no model answers to "boat storm"
    job = await refreshed(client, request)
    assert job.state is JobState.FAILED
    assert job.cause is not None
    assert "not switched" in job.cause.message
    assert await embedder_of(client) == "local"

    await expect(client, ids["boat"])
    job = await refreshed(client, request)
    assert job.state is JobState.DONE, job.cause
    assert await embedder_of(client) == "tiny-beacon"
    assert (await answered_of(client, "gated-model"))[0].title == "boat"
    await client.rollback("gated-model")
    assert await embedder_of(client) == "local"
    assert (await answered_of(client, "gated-model"))[0].title == "boat"
    report = await client.doctor("gated-model")
    assert report.clean, report


async def test_a_model_is_not_removed_while_a_container_that_uses_it_is_created(
    installation: Installation,
    client: AsyncClient,
    hub: ModelHub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process holds the model as a gateway does between its look for the model and the row of the vectors."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    other = "acme/Tiny-Buoy"
    hub.publish(other, tiny_repository())
    code, _, err = await installation.cli("models", "add", other)
    assert code == 0, err
    store = ModelStore(installation.data_dir / "models")
    async with in_use(store, "tiny-buoy"):
        removal = await asyncio.create_subprocess_exec(
            str(LATENT),
            *("models", "remove", "tiny-buoy"),
            stderr=asyncio.subprocess.PIPE,
            env=installation.environment(),
        )
        assert removal.stderr is not None
        async with asyncio.timeout(60):
            assert b"waiting until a container that uses it" in await removal.stderr.readline()
        await client.create(Manifest(id="buoys", name="Buoys", embedder="tiny-buoy"))
    _, err_bytes = await removal.communicate()
    assert removal.returncode == 1
    assert b"makes the vectors of buoys (live)" in err_bytes
    assert store.newest("tiny-buoy") is not None


async def test_a_container_that_is_created_during_a_removal_is_refused_and_leaves_no_row(
    installation: Installation,
    client: AsyncClient,
    hub: ModelHub,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    other = "acme/Tiny-Pier"
    hub.publish(other, tiny_repository())
    code, _, err = await installation.cli("models", "add", other)
    assert code == 0, err
    store = ModelStore(installation.data_dir / "models")
    model = store.find("tiny-pier")
    with unused(store, "tiny-pier", 0):
        creation = asyncio.create_task(
            client.create(Manifest(id="piers", name="Piers", embedder="tiny-pier"))
        )
        done, _ = await asyncio.wait({creation}, timeout=1)
        assert not done
        store.remove(model)
    with pytest.raises(Invalid, match="tiny-pier is not installed"):
        await creation
    assert "piers" not in [one.id for one in await client.containers()]


async def expect(client: AsyncClient, doc_id: str) -> None:
    """Make the golden queries of the container expect one document."""
    query = {"id": "q", "query": "boat storm", "expect_docs": [doc_id]}
    golden = parse_golden({"queries": [query], "thresholds": {"ndcg@10": 0.9}})
    known = await client.golden_list("gated-model")
    await client.replace_golden("gated-model", golden, if_match=known.etag)


async def answered_of(client: AsyncClient, container: str) -> list[Hit]:
    request = SEMANTIC.model_copy(update={"containers": [container]})
    answer = await client.search(request)
    assert not answer.issues
    return answer.hits


async def refreshed(client: AsyncClient, request: RefreshRequest) -> JobView:
    begun = await client.refresh("gated-model", request)
    assert begun.job_id is not None
    (job,) = await client.wait([begun.job_id], timeout_seconds=120)
    return job


async def embedder_of(client: AsyncClient) -> str:
    return str((await client.describe("gated-model")).embedder["embedder"])
