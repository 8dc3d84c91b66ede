"""Words find pictures, pictures find words, and hits tell how their page is best read. OCR is a stand-in."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid4

import httpx
import numpy as np
import orjson
import psycopg
import pymupdf
import pytest
import pytest_asyncio
from PIL import Image

from latent_client import AsyncClient
from latent_core.domain.errors import Forbidden, Invalid, IssueCode
from latent_core.domain.job import JobKind, JobState
from latent_core.domain.manifest.model import Dedup, Manifest, Modality, Retrieval, SearchMode
from latent_core.wire.search import SearchRequest, SearchResponse
from tests.http.test_http_surface import add, ingest, manifest
from tests.support.harness.installation import Installation, eventually
from tests.support.onnx_encoders import EncoderWeights, Positions, write_clip
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="programs are started so on Linux"
    ),
]

OCR_TEXTS = {
    101: "granite lighthouse",
    102: '"granite lighthouse" of "Oban"',
    103: "",
    104: "slow kipper",
}
"""Width of a picture to the words that are read in it."""
SLOW = 104
LEAKED_WORDS = """
UPDATE containers SET etag = 'other', manifest = manifest || '{"acl": {"roles": {"owner": ["local:somebody"]}}}'
WHERE id = 'others'
"""


def stand_in(folder: Path, gate: Path) -> None:
    """A program named tesseract that knows pictures by their width (small ones come enlarged)."""
    program = folder / "tesseract"
    program.write_text(
        f"#!{sys.executable} -IS\n"
        "import os, sys, time\n"
        "if '--version' in sys.argv:\n    sys.exit(print('tesseract 9.8.7'))\n"
        "if '--list-langs' in sys.argv:\n    sys.exit(print('List:', 'eng', sep=chr(10)))\n"
        "width = int(sys.stdin.buffer.read().split()[1]) // 2\n"
        f"until = time.monotonic() + 60\n"
        f"while width == {SLOW} and not os.path.exists({str(gate)!r}) and time.monotonic() < until:\n"
        "    time.sleep(0.02)\n"
        "print('level', *range(10), 'text', sep=chr(9))\n"
        f"for word in {OCR_TEXTS!r}.get(width, 'unknown').split():\n"
        "    print(5, 1, 1, 1, 1, 1, 0, 0, 9, 9, 90, word, sep=chr(9))\n",
        encoding="utf-8",
    )
    program.chmod(0o755)


def picture(width: int, shade: int = 200) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (width, 60), shade).save(buffer, "PNG")
    return buffer.getvalue()


def report() -> bytes:
    """Page 1 says it in words, page 2 shows it."""
    document = pymupdf.open()
    document.new_page().insert_text((72, 72), "The lighthouse keeper writes his report here.")
    page = document.new_page()
    page.insert_text((72, 40), "Plate two: lighthouse in fog")
    page.insert_image((50, 60, 545, 800), stream=picture(300), keep_proportion=False)
    return bytes(document.tobytes())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stocked(
    install_root: Path, embedding_server: EmbeddingServer
) -> AsyncIterator[Installation]:
    folder = install_root / "crossmodal-bin"
    folder.mkdir(mode=0o755)
    stand_in(folder, folder / "gate")
    one = Installation(
        install_root / "crossmodal",
        {
            "LLC_EMBED_BASE_URL": embedding_server.base_url,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_OCR": "tesseract",
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",  # noqa: TID251 - of this machine
        },
    )
    await one.start()
    try:
        async with one.client() as client:
            await client.create(manifest("coast"))
            await ingest(client, "coast", "beacon.png", picture(101))
            await ingest(client, "coast", "report.pdf", report())
            await ingest(client, "coast", "notes.md", b"# Notes\n\nThe granite lighthouse of Oban.")
            record = {"_id": "r1", "text": "A record of the granite lighthouse, without a page."}
            await ingest(client, "coast", "records.jsonl", orjson.dumps(record))
            await eventually(lambda: drawn(client), what="page images")
        yield one
    finally:
        await one.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def client(stocked: Installation) -> AsyncIterator[AsyncClient]:
    async with stocked.client() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def http(stocked: Installation) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {stocked.token}"}
    async with httpx.AsyncClient(
        base_url=stocked.url, headers=headers, trust_env=False, timeout=60
    ) as opened:
        yield opened


async def drawn(client: AsyncClient) -> bool:
    jobs = [job async for job in client.jobs(container_id="coast")]
    renders = [job for job in jobs if job.kind is JobKind.RENDER]
    return len(renders) >= 3 and all(job.state is JobState.DONE for job in renders)


async def search(
    client: AsyncClient, *, container: str = "coast", **options: Any
) -> SearchResponse:
    options = {"top_k": 20, **options}
    return await client.search(SearchRequest(containers=[container], **options))


async def upload(
    client: AsyncClient, data: bytes, name: str = "seen.png", container: str = "coast"
) -> str:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return (await client.upload(container, path)).file_ref


async def known(client: AsyncClient, ref: str, **options: Any) -> SearchResponse:
    """The answer once the picture has been read; before, the answer says by which job it is being read."""
    answers: list[SearchResponse] = []

    async def read() -> bool:
        answers.append(await search(client, image_ref=ref, **options))
        return not any(issue.code is IssueCode.TIMEOUT for issue in answers[-1].issues)

    await eventually(read, what="the picture's text")
    return answers[-1]


def names(answer: SearchResponse) -> set[str]:
    return {hit.source_path.partition("#")[0] for hit in answer.hits}


async def documents(client: AsyncClient) -> dict[str, UUID]:
    answer = await search(client, query="lighthouse")
    return {hit.source_path.partition("#")[0]: hit.doc_id for hit in answer.hits}


async def test_words_find_what_has_a_picture_and_each_hit_leads_to_it(client: AsyncClient) -> None:
    everything = await search(client, query="lighthouse")
    assert names(everything) == {"beacon.png", "report.pdf", "notes.md", "records.jsonl"}
    found = await search(client, query="lighthouse", mode=SearchMode.CROSSMODAL, dedup=False)
    assert names(found) == {"beacon.png", "report.pdf", "notes.md"}
    assert all(hit.page_uri and hit.uri == hit.page_uri for hit in found.hits)
    filtered = await search(
        client, query="lighthouse", mode=SearchMode.CROSSMODAL, filters={"source_type": "pdf"}
    )
    assert names(filtered) == {"report.pdf"}
    assert filtered.diagnostics is None or filtered.diagnostics.applied_filters


async def test_a_container_may_be_crossmodal_by_its_manifest(client: AsyncClient) -> None:
    shown = Retrieval(mode_default=SearchMode.CROSSMODAL)
    await client.create(manifest("shown", retrieval=shown))
    await ingest(client, "shown", "r.jsonl", b'{"_id": "r", "text": "lighthouse without a page"}')
    assert (await search(client, container="shown", query="lighthouse")).hits == []


async def test_a_picture_finds_the_words_it_shows_and_is_read_once(client: AsyncClient) -> None:
    ref = await upload(client, picture(102))
    answer = await known(client, ref, explain=True)
    assert names(answer) == {"beacon.png", "report.pdf", "notes.md", "records.jsonl"}
    assert not answer.partial
    assert answer.diagnostics is not None
    assert any("image" in step for step in answer.diagnostics.plan)
    assert "oban" in answer.diagnostics.terms["coast"]
    before = [job.job_id async for job in client.jobs(container_id="coast")]
    again = await search(client, image_ref=await upload(client, picture(102)), query="granite")
    assert again.hits[0].source_path == "notes.md"
    assert [job.job_id async for job in client.jobs(container_id="coast")] == before


async def test_a_stored_image_is_searched_by_without_reading_it_again(client: AsyncClient) -> None:
    ids = await documents(client)
    whole = {"beacon.png", "report.pdf", "notes.md", "records.jsonl"}
    assert names(await search(client, image_ref=str(ids["beacon.png"]))) == whole
    for ref in (f"page://{ids['report.pdf']}/1", f"document://{ids['report.pdf']}"):
        answer = await search(client, image_ref=ref)
        assert answer.hits[0].source_path == "report.pdf"
        assert not answer.issues


async def test_an_image_without_text_is_reported_and_dropped_from_the_query(
    client: AsyncClient,
) -> None:
    ref = await upload(client, picture(103))
    answer = await known(client, ref)
    assert answer.hits == []
    assert [issue.code for issue in answer.issues] == [IssueCode.NO_HITS]
    assert not answer.partial
    with pytest.raises(Forbidden, match="multivector"):
        await search(client, image_ref=ref, mode=SearchMode.MULTIVECTOR)
    worded = await search(client, image_ref=ref, query="lighthouse")
    assert names(worded) == {"beacon.png", "report.pdf", "notes.md", "records.jsonl"}
    assert [issue.code for issue in worded.issues] == [IssueCode.NO_HITS]


async def test_a_file_that_is_no_image_is_reported_with_its_cause(client: AsyncClient) -> None:
    answer = await known(client, await upload(client, b"no picture at all"))
    (issue,) = answer.issues
    assert issue.code is IssueCode.INGEST_FAIL
    assert "seen.png" in issue.message
    assert answer.partial


async def test_a_picture_that_takes_too_long_is_named_and_found_the_next_time(
    client: AsyncClient, install_root: Path
) -> None:
    ref = await upload(client, picture(SLOW))
    answer = await search(client, image_ref=ref, query="lighthouse")
    (issue,) = answer.issues
    assert issue.code is IssueCode.TIMEOUT
    assert answer.partial
    assert names(answer)  # by the words of the query meanwhile
    job = await client.job(issue.details["job_id"])
    assert (job.kind, job.state) == (JobKind.READ_IMAGE, JobState.RUNNING)
    (install_root / "crossmodal-bin" / "gate").touch()
    answer = await known(client, ref, explain=True)
    assert answer.diagnostics is not None
    assert "kipper" in answer.diagnostics.terms["coast"]


async def test_unknown_and_unreadable_pictures_get_the_same_answer(
    client: AsyncClient, http: httpx.AsyncClient, stocked: Installation
) -> None:
    await client.create(manifest("others"))
    added = await add(client, "others", "secret.png", picture(101))
    await client.wait([added.job_id], timeout_seconds=60)
    async with await psycopg.AsyncConnection.connect(stocked.dsn, autocommit=True) as conn:
        await conn.execute(LEAKED_WORDS)
    nobody = uuid4()
    for shape in ("{}", "page://{}/1", "document://{}"):
        summary = []
        for doc_id in (added.doc_id, nobody):
            body = {"containers": ["coast"], "top_k": 5, "image_ref": shape.format(doc_id)}
            answer = await http.post("/v1/search", json=body)
            assert answer.status_code == 404
            summary.append(answer.json()["issues"][0]["message"].replace(str(doc_id), "id"))
        assert summary[0] == summary[1]


@pytest.mark.parametrize("ref", ["beacon.png", "page://x/1", "s3://bucket/key", "page://1"])
async def test_a_reference_that_is_none_is_refused(client: AsyncClient, ref: str) -> None:
    with pytest.raises(Invalid, match="page://<doc_id>/<page>"):
        await search(client, image_ref=ref)


async def test_a_hit_says_how_its_page_is_best_read(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    found = await search(client, query="lighthouse", dedup=False)
    routed = {
        (hit.source_path.partition("#")[0], hit.place.page): (hit.read_as, hit.visual_share)
        for hit in found.hits
    }
    plate = routed.pop(("report.pdf", 2))
    assert plate[0] == "image"
    assert 0.6 < (plate[1] or 0) < 0.8
    assert routed == {
        ("beacon.png", 1): ("image", 1.0),
        ("report.pdf", 1): ("text", 0.0),
        ("notes.md", 1): ("text", 0.0),
        ("records.jsonl", None): ("text", None),
    }
    assert {hit.visual_importance_by for hit in found.hits} == {"measure", None}
    doc_id = next(hit.doc_id for hit in found.hits if hit.source_path == "report.pdf")
    assert all(hit.page_pdf_uri is None for hit in found.hits)
    made = await http.get(f"/v1/documents/{doc_id}/pages/2/pdf", params={"wait_ms": 60_000})
    assert made.status_code == 200
    found = await search(client, query="lighthouse", dedup=False)
    (uri,) = [hit.page_pdf_uri for hit in found.hits if hit.page_pdf_uri is not None]
    assert (await http.get(uri)).content.startswith(b"%PDF-")


def colours(seed: int) -> bytes:
    """A picture without words whose look a small encoder can tell from others."""
    values = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(values).resize((320, 320), Image.Resampling.NEAREST).save(buffer, "PNG")
    return buffer.getvalue()


async def test_a_local_pair_of_encoders_finds_pictures_and_pages_by_their_looks(
    client: AsyncClient, tmp_path: Path
) -> None:
    write_clip(tmp_path, EncoderWeights(Positions.LEARNED))
    await client.create(
        Manifest(
            id="looks",
            name="Looks",
            embedder=f"local:{tmp_path}",
            modalities=[Modality.TEXT, Modality.IMAGE],
            dedup=Dedup(semantic_threshold=1.0),
        )
    )
    for seed in range(3):
        await ingest(client, "looks", f"{seed}.png", colours(seed))
    document = pymupdf.open()
    document.new_page(width=320, height=320).insert_image((0, 0, 320, 320), stream=colours(7))
    await ingest(client, "looks", "plate.pdf", bytes(document.tobytes()))

    async def first(seed: int) -> str:
        ref = await upload(client, colours(seed), container="looks")
        answer = await search(client, container="looks", image_ref=ref, top_k=1)
        return answer.hits[0].source_path.partition("#")[0] if answer.hits else ""

    assert [await first(seed) for seed in range(3)] == ["0.png", "1.png", "2.png"]

    async def page_found() -> bool:
        return await first(7) == "plate.pdf"

    await eventually(page_found, what="the page's picture")
    by_words = await search(client, container="looks", query="a b", mode=SearchMode.CROSSMODAL)
    assert names(by_words) == {"0.png", "1.png", "2.png", "plate.pdf"}
    assert not by_words.partial
