"""Selected documents are ingested again, deleted and downloaded, over real HTTP."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest

from latent_client import AsyncClient
from latent_core.db.documents.originals import OriginalFile
from latent_core.domain.document import DocumentState
from latent_core.domain.errors import Forbidden, NotFound
from latent_core.domain.manifest.model import Acl, Roles
from latent_core.domain.token import Scope
from latent_gateway.api.originals_zip import path_of, safe_name
from tests.http.test_http_surface import add, ingest, manifest
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

PILE = "pile"
READER = "agent:pile-reader"


async def filled(client: AsyncClient) -> dict[str, UUID]:
    """Three texts, and a PDF that failed."""
    if PILE not in {one.id for one in await client.containers()}:
        roles = Roles(owner=["local:you"], reader=[READER])
        await client.create(manifest(PILE, acl=Acl(roles=roles)))
        for name in ("a.md", "b.md", "c.md"):
            await ingest(client, PILE, name, f"# {name}\n\nThe lamp of {name}.\n".encode())
        torn = await add(client, PILE, "torn.pdf", b"%PDF-1.7 torn")
        await client.wait([torn.job_id], timeout_seconds=60)
    return {one.source_uri[8:]: one.doc_id async for one in client.documents(PILE)}


async def test_documents_are_read_again_each_with_an_outcome_of_its_own(
    client: AsyncClient,
) -> None:
    ids = await filled(client)
    before = await client.document(PILE, ids["a.md"])
    stranger = uuid4()
    found = await client.reingest_documents(PILE, [ids["a.md"], ids["torn.pdf"], stranger])
    assert [one.doc_id for one in found] == [ids["a.md"], ids["torn.pdf"], stranger]
    assert [one.cause is None for one in found] == [True, True, False]
    jobs = await client.wait([one.job_id for one in found if one.job_id], timeout_seconds=60)
    assert [job.state for job in jobs] == ["done", "failed"]
    again = await client.document(PILE, ids["a.md"])
    assert (again.state, again.generation) == (DocumentState.LIVE, (before.generation or 0) + 1)
    assert again.written_by == before.written_by
    trail = [line.object async for line in client.audit(action="document.reingest")]
    assert "file:///a.md" in trail


async def test_originals_come_as_one_file_with_safe_names_and_say_what_is_missing(
    client: AsyncClient, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    ids = await filled(client)
    file = tmp_path / "pile.zip"
    size = await client.originals(PILE, [ids["b.md"], ids["torn.pdf"], ids["c.md"]], file)
    assert size == file.stat().st_size
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["b.md", "c.md", "not-included.txt"]
        assert archive.read("c.md") == b"# c.md\n\nThe lamp of c.md.\n"
        assert b"failed" in archive.read("not-included.txt")
    with pytest.raises(NotFound, match="none of these documents has an original"):
        await client.originals(PILE, [ids["torn.pdf"]], file)
    answer = await http.get(f"/v1/containers/{PILE}/originals", params={"doc": str(ids["b.md"])})
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == 'attachment; filename="pile-originals.zip"'
    assert zipfile.ZipFile(io.BytesIO(answer.content)).namelist() == ["b.md"]
    answer = await http.get(f"/v1/containers/{PILE}/originals")
    assert answer.status_code == 400


async def test_documents_are_deleted_and_can_be_restored(client: AsyncClient) -> None:
    await filled(client)
    await ingest(client, PILE, "gone-1.md", b"# Gone\n\nThe first that goes.\n")
    await ingest(client, PILE, "gone-2.md", b"# Gone\n\nThe second that goes.\n")
    ids = await filled(client)
    chosen = [ids["gone-1.md"], ids["gone-2.md"], uuid4()]
    found = await client.delete_documents(PILE, chosen)
    assert [one.cause is None for one in found] == [True, True, False]
    assert {"gone-1.md", "gone-2.md"}.isdisjoint(await filled(client))
    assert {one.doc_id for one in await client.trash(PILE)} >= set(chosen[:2])


async def test_a_reader_downloads_and_changes_nothing(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    ids = await filled(client)
    made = await client.create_token(READER, name="pile", scopes=[Scope.READ])
    async with installation.client(made.secret) as reader:
        assert await reader.originals(PILE, [ids["b.md"]], tmp_path / "b.zip") > 0
        for change in (reader.reingest_documents, reader.delete_documents):
            with pytest.raises(Forbidden):
                await change(PILE, [ids["b.md"]])
    assert "b.md" in await filled(client)


@pytest.mark.parametrize(
    ("part", "safe"),
    [
        ("..", ""),
        ("a/b", "a/b"),
        ("con.txt", "_con.txt"),
        ("a\x00b\n.md", "a_b_.md"),
        ("gnp\u202e.exe", "gnp_.exe"),
        ("x" * 300 + ".md", "x" * 117 + ".md"),
        ('C:<>"|?*', "C_______"),
        (" . ", ""),
    ],
)
async def test_a_name_that_a_system_refuses_is_made_safe(part: str, safe: str) -> None:
    assert safe_name(part) == safe


async def test_no_path_leaves_the_folder_into_which_it_is_unpacked(client: AsyncClient) -> None:
    ids = await filled(client)
    document = await client.document(PILE, ids["b.md"])
    stored = OriginalFile("", "0" * 64, "text/plain", "../../etc/passwd")
    for uri, path in (
        ("file:///../../etc/passwd", "etc/passwd"),
        ("file:////etc//passwd", "etc/passwd"),
        ("file:///..%2F..%2Fetc/passwd", "etc/passwd"),
        ("file:///a\\..\\b.md", "a/b.md"),
        ("https://example.org/x", "etc/passwd"),
        ("file:///..", str(document.doc_id)),
    ):
        assert path_of(document.model_copy(update={"source_uri": uri}), stored) == path
