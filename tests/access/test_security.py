"""What docs/security.md promises, tried from outside: paths, bombs, headers, links, and what children are handed."""

from __future__ import annotations

import io
import os
import re
import sys
import time
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import psutil
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.blobs.signing import MAX_SECONDS
from latent_core.domain.job import JobState
from latent_core.wire.search import SearchRequest
from tests.http.test_http_surface import HANDBOOK, add, ingest, manifest, settled
from tests.support.harness.installation import Installation
from tests.support.on_servers import ON_SERVERS
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

OUTSIDE: Final = "nobody-may-read-this-7f3a"
TOKEN: Final = "owner-token-of-the-test-9c1e"
KEY: Final = "embedder-key-of-the-test-51bd"
SIGNING: Final = "signing-key-of-the-test-a08c"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(
    install_root: Path, embedding_server: EmbeddingServer
) -> AsyncIterator[Installation]:
    """With secrets in its environment, a folder to ingest from, a secret beside that, and small budgets."""
    folder = install_root / "security"
    inbox = folder / "inbox"
    inbox.mkdir(parents=True)
    (folder / "inbox-beside").mkdir()
    for place in (folder / "secret.txt", folder / "inbox-beside" / "secret.txt"):
        place.write_text(OUTSIDE, "utf-8")
    (inbox / "lamp.txt").write_text("The lamp is lit.", "utf-8")
    (inbox / "out").symlink_to(folder)
    one = Installation(
        folder / "installation",
        {
            "LLC_EMBED_BASE_URL": embedding_server.base_url,
            "LLC_EMBED_API_KEY": KEY,
            "LLC_EMBED_RATE_LIMIT_PER_MIN": "100000000",
            "LLC_MCP_TOKEN": TOKEN,
            "LLC_SIGNING_KEY": SIGNING,
            "LLC_INGEST_ROOTS": str(inbox),
            "LLC_PARSE_SECONDS": "8",
            "LLC_PARSE_MEMORY_BYTES": str(768 * 1024 * 1024),
        },
    )
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def owner(guarded: Installation) -> AsyncIterator[AsyncClient]:
    async with guarded.client(TOKEN) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def raw(guarded: Installation) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        base_url=guarded.url, headers=headers, trust_env=False, timeout=60
    ) as opened:
        yield opened


WAYS_OUT: Final = [
    "../secret.txt",
    "../../secret.txt",
    "lamp.txt/../../secret.txt",
    "./../secret.txt",
    "out/secret.txt",
    "out/../secret.txt",
    "../inbox-beside/secret.txt",
    "..\\secret.txt",
    "....//secret.txt",
    "..;/secret.txt",
    "%2e%2e/secret.txt",
    "..%2fsecret.txt",
    "..%252fsecret.txt",
    "..%c0%afsecret.txt",
    "\u2025/secret.txt",
    "\uff0e\uff0e/secret.txt",
    "~/secret.txt",
    "$HOME/secret.txt",
    "file:///etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/environ",
    "/dev/zero",
    "lamp.txt\x00.md",
    "a" * 5000,
]


async def test_no_spelling_of_a_path_leads_out_of_the_ingest_root(
    guarded: Installation, owner: AsyncClient, raw: httpx.AsyncClient
) -> None:
    await owner.create(manifest("inbox"))
    absolute = [str(guarded.folder.parent / "secret.txt"), str(guarded.data_dir / "token")]
    for way in (*WAYS_OUT, *absolute):
        body = {"container_id": "inbox", "file_ref": way}
        answer = await raw.post("/v1/containers/add", json=body)
        assert answer.status_code in (400, 404), way
        assert OUTSIDE not in answer.text
        assert str(guarded.folder.parent) not in answer.text.replace(way, ""), (
            "no server path is told"
        )
    assert not [d async for d in owner.documents("inbox")]


@pytest.mark.parametrize("way", WAYS_OUT)
async def test_no_spelling_in_an_address_reaches_a_file(raw: httpx.AsyncClient, way: str) -> None:
    spelled = quote(way.replace("\x00", "%00"), safe="/.%;$~\\:")
    for prefix in ("/v1/blobs/", "/v1/containers/", "/v1/documents/", "/static/", "/"):
        answer = await raw.get(prefix + spelled + ("/pages/1" if "documents" in prefix else ""))
        assert 300 <= answer.status_code < 500, prefix + spelled
        assert OUTSIDE not in answer.text
        assert "root:x:0" not in answer.text


async def test_names_of_uploads_are_names_and_never_places(
    guarded: Installation, owner: AsyncClient
) -> None:
    await owner.create(manifest("names"))
    file = guarded.folder / "harmless.txt"
    file.write_text("A harmless file about wicks.", "utf-8")
    before = set(guarded.data_dir.parent.rglob("escaped*"))
    for name in (
        "../../escaped.txt",
        "/tmp/escaped.txt",
        "..\\..\\escaped.txt",
        "a/../escaped.txt",
    ):
        upload = await owner.upload("names", file, filename=name)
        added = await owner.add("names", file_ref=upload.file_ref)
        (job,) = await owner.wait([added.job_id], timeout_seconds=60)
        assert job.state is JobState.DONE, job
    assert set(guarded.data_dir.parent.rglob("escaped*")) == before
    assert "escaped.txt" not in os.listdir("/tmp")


def flate_pdf() -> bytes:
    """A page whose content is 300 MB of spaces, packed to a third of a megabyte."""
    packer = zlib.compressobj(9)
    piece = b" " * (1024 * 1024)
    packed = b"".join(packer.compress(piece) for _ in range(300)) + packer.flush()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(packed), packed),
    ]
    return pdf(objects)


def endless_pages() -> bytes:
    """A page tree that contains itself."""
    return pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 1000000>>",
        ]
    )


def huge_page() -> bytes:
    """A page of a kilometre by a kilometre."""
    return pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 2834645 2834645]/Contents 4 0 R"
            b"/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>",
            b"<</Length 44>>stream\nBT /F 12 Tf 72 720 Td (Big page) Tj ET\nendstream",
        ]
    )


def pdf(objects: list[bytes]) -> bytes:
    out, places = io.BytesIO(b"%PDF-1.7\n"), []
    out.seek(0, io.SEEK_END)
    for number, body in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    out.write(b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, table))
    return out.getvalue()


def laughs() -> bytes:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines).encode()


def entities() -> bytes:
    inner = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    return f'<!DOCTYPE a [<!ENTITY e0 "lol">{inner}]><html><p>&e11; lamps</p></html>'.encode()


def zipped() -> bytes:
    """Ten megabytes of nothing in ten kilobytes, nested."""
    inner = b"\0" * (10 * 1024 * 1024)
    for _ in range(3):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inner", inner)
        inner = packed.getvalue()
    return inner


BOMBS: Final[dict[str, Callable[[], bytes]]] = {
    "flate.pdf": flate_pdf,
    "endless.pdf": endless_pages,
    "huge-page.pdf": huge_page,
    "laughs.yaml": laughs,
    "entities.html": entities,
    "nested.json": lambda: b"[" * 200_000 + b"]" * 200_000,
    "nested.yaml": lambda: b"".join(b" " * n + b"a:\n" for n in range(3000)),
    "nested.html": lambda: b"<div>" * 100_000 + b"words",
    "nested.md": lambda: b"> " * 20_000 + b"words\n\n" + b"[" * 50_000 + b"\n\n" + b"*_" * 50_000,
    "one-line.json": lambda: b'"' + b"x" * 8_000_000 + b'"',
    "one-line.py": lambda: b"x = (" + b"1+" * 400_000 + b"1)\n",
    "backticks.md": lambda: b"`" * 100_000 + b"\n" + b"~" * 100_000,
    "archive.zip": zipped,
    "pixels.svg": lambda: (
        b'<svg xmlns="http://www.w3.org/2000/svg" width="999999" height="999999"/>'
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_bombs_cost_their_own_document_and_nothing_else(
    guarded: Installation, owner: AsyncClient
) -> None:
    await owner.create(manifest("bombs"))
    added = {}
    for name, made in BOMBS.items():
        added[name] = (await add(owner, "bombs", name, made())).job_id
    harmless = (await add(owner, "bombs", "harmless.md", HANDBOOK.encode())).job_id
    *ended, last = await owner.wait([*added.values(), harmless], timeout_seconds=480)
    assert last.job_id == harmless
    assert last.state is JobState.DONE, last
    for job in ended:
        assert job.state in (JobState.DONE, JobState.FAILED), job
        if job.state is JobState.FAILED:
            assert job.cause is not None
            assert job.cause.code.value in ("INGEST_FAIL", "INVALID", "TIMEOUT"), job.cause
            assert str(guarded.data_dir) not in job.cause.message
    found = await owner.search(SearchRequest(containers=["bombs"], query="keeper lamp", top_k=5))
    assert any(hit.source_path.endswith("harmless.md") for hit in found.hits)
    log = guarded.log.read_text("utf-8")
    assert "MemoryError" not in log
    assert "Traceback" not in log
    await owner.delete("bombs")  # their thousands of pages are drawn for minutes otherwise


async def test_every_answer_says_what_it_is_and_may_not_be_framed(
    owner: AsyncClient, raw: httpx.AsyncClient, guarded: Installation
) -> None:
    async with httpx.AsyncClient(base_url=guarded.url, trust_env=False) as stranger:
        answers = [
            await raw.get("/v1/containers/list"),
            await raw.get("/v1/containers/describe?container_id=absent"),
            await raw.post("/v1/containers/search", json={}),
            await raw.get("/no/such/route"),
            await raw.post("/mcp", json={}),
            await raw.get("/mcp/tools"),
            await stranger.get("/v1/containers/list"),
            await stranger.get("/healthz"),
            await stranger.get("/v1/blobs/" + "0" * 64),
            await stranger.get("/"),
        ]
    for answer in answers:
        response_headers = answer.headers
        assert response_headers["x-content-type-options"] == "nosniff", answer.url
        assert response_headers["referrer-policy"], answer.url
        assert "frame-ancestors 'none'" in response_headers["content-security-policy"], answer.url
        assert response_headers["x-frame-options"] == "DENY", answer.url
        assert "server" not in response_headers, "nobody needs to know what serves it"
        assert "latent-issue" not in response_headers
        assert "access-control-allow-origin" not in response_headers
        assert response_headers["x-request-id"]


async def test_no_link_lives_longer_than_five_minutes(owner: AsyncClient) -> None:
    await owner.create(manifest("links"))
    await ingest(owner, "links", "handbook.md", HANDBOOK.encode())
    await settled(owner, "links")
    answer = await owner.search(SearchRequest(containers=["links"], query="lamp", top_k=5))
    links = re.findall(r"https?://[^\s\"]+/v1/blobs/[^\s\"]+", answer.model_dump_json())
    assert links
    for link in links:
        (expires,) = parse_qs(urlsplit(link).query)["exp"]
        assert int(expires) <= time.time() + MAX_SECONDS + 1
    assert MAX_SECONDS <= 300


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the environment of a process")
async def test_no_child_is_handed_a_secret(guarded: Installation, owner: AsyncClient) -> None:
    await owner.create(manifest("children"))
    await ingest(owner, "children", "handbook.md", HANDBOOK.encode())  # parsers and painters run
    await settled(owner, "children")
    children = guarded.children()
    min_children = 1 if ON_SERVERS else 3
    assert len(children) >= min_children, (
        "a parser; embedded also Postgres, its guardian, the vector engine"
    )
    secrets = {"LLC_MCP_TOKEN": TOKEN, "LLC_EMBED_API_KEY": KEY, "LLC_SIGNING_KEY": SIGNING}
    for child in children:
        given = environment_of(child)
        assert not [name for name, value in secrets.items() if value in given], child
    assert TOKEN not in " ".join(word for child in children for word in command(child))


def environment_of(process: psutil.Process) -> str:
    try:
        return " ".join(f"{name}={value}" for name, value in process.environ().items())
    except psutil.NoSuchProcess:
        return ""


def command(process: psutil.Process) -> list[Any]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []
