"""Files with a password in a running installation: read once, and the password is nowhere afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import httpx
import psycopg
import pytest
from psycopg import sql

from latent_client import AsyncClient
from latent_core.domain.job import JobState
from latent_core.wire.refresh import RefreshRequest, Strategy
from tests.http.test_http_surface import add, manifest, search, settled
from tests.support.harness.installation import Installation
from tests.support.locked_files import PASSWORD, locked_office, locked_pdf
from tests.support.office_files import docx, p

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

BOX: Final = "strongbox"
SEALED: Final = "gAAAAA"
"""The first characters of every sealed password."""
TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"


async def stored_rows(installation: Installation) -> str:
    """The rows of all tables."""
    async with await psycopg.AsyncConnection.connect(installation.dsn) as conn:
        names = await (await conn.execute(TABLES)).fetchall()
        texts = []
        for (name,) in names:
            rows = sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(name))
            texts += [row[0] for row in await (await conn.execute(rows)).fetchall()]
    return "\n".join(texts)


def files_with(folder: Path, words: str) -> list[str]:
    return [
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and words.encode() in file.read_bytes()
    ]


async def test_a_password_file_opens_what_was_refused_and_is_kept_nowhere(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await client.create(manifest(BOX))
    folder = tmp_path / "safe"
    folder.mkdir()
    (folder / "heron.pdf").write_bytes(locked_pdf("The heron is quiet."))
    (folder / "gull.docx").write_bytes(locked_office(docx(p("The gull is loud."))))
    ingest = ("ingest", str(folder), "-c", BOX, "--wait")
    code, out, _ = await installation.cli(*ingest)
    assert code == 4
    assert "2 failed" in out or out.count("is encrypted") == 2
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\nnot this line\n")
    file.chmod(0o600)
    code, _, err = await installation.cli(*ingest, "--password-file", str(file))
    assert (code, "others can read" in err) == (0, False)
    await settled(client, BOX)
    for query, word in (("quiet heron", "heron.pdf"), ("loud gull", "gull.docx")):
        hit = (await search(client, BOX, query)).hits[0]
        assert hit.source_uri == f"file:///safe/{word}"
        assert hit.page_image == "ready"
    backup = tmp_path / "backup"
    code, _, err = await installation.cli("backup", "all", "--to", str(backup))
    assert code == 0, err
    rows = await stored_rows(installation)
    # Postgres itself keeps replaced rows in its files for a while: of the sealed password, not of the password.
    assert files_with(installation.data_dir, PASSWORD) == []
    kept = files_with(installation.data_dir, SEALED)
    assert all(file.startswith("postgres/") for file in kept)
    for secret in (PASSWORD, SEALED):
        assert secret not in rows
        assert files_with(backup, secret) == []
        assert secret not in installation.log.read_text(errors="replace")


async def test_a_later_reparse_fails_by_name_and_the_document_stays(client: AsyncClient) -> None:
    await client.create(manifest("reparsed"))
    added = await add(
        client, "reparsed", "a.pdf", locked_pdf("The heron is quiet."), password=PASSWORD
    )
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.state is JobState.DONE, job
    started = await client.refresh("reparsed", RefreshRequest(strategy=Strategy.REPARSE))
    await client.wait([started.job_id], timeout_seconds=60)
    await settled(client, "reparsed")
    document = await client.document("reparsed", added.doc_id)
    assert document.failure is not None
    assert "add it again with its password (--password-file)" in document.failure.cause
    assert (await search(client, "reparsed", "quiet heron")).hits[0].doc_id == added.doc_id


async def test_a_wrong_password_is_a_refusal_by_name_and_no_answer_repeats_one(
    client: AsyncClient, http: httpx.AsyncClient
) -> None:
    await client.create(manifest("guessed"))
    added = await add(client, "guessed", "a.pdf", locked_pdf("quiet"), password="wrong-guess")
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.state is JobState.FAILED
    assert job.cause is not None
    assert "'a.pdf' is encrypted, and the given password does not open it" in job.cause.message
    shown = await http.get(f"/v1/jobs/{added.job_id}")
    assert "wrong-guess" not in shown.text
    assert "sealed" not in shown.text
    for password, words in (("x" * 300, "password"), ("", "password")):
        body = {"container_id": "guessed", "file_ref": "x", "password": password}
        refused = await http.post("/v1/containers/add", json=body)
        assert refused.status_code == 400
        assert words in refused.text
        assert "xxx" not in refused.text
    body = {"container_id": "guessed", "text": "a note", "password": "wrong-guess"}
    refused = await http.post("/v1/containers/add", json=body)
    assert refused.status_code == 400
    assert "password is only for files" in refused.text
