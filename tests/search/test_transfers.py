"""A container out of one installation's hands and back into them: by command line, HTTP and MCP."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import httpx
import orjson
import pytest

from latent_client import AsyncClient
from latent_core.domain.errors import NotFound
from latent_core.domain.golden import GoldenQuery
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Manifest, SearchMode
from latent_core.wire.search import SearchRequest
from tests.conftest import DIMS
from tests.support.harness.installation import Installation, eventually

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(180),
    pytest.mark.slow,
]

WORDS: Final = ("lamp", "lens", "keeper", "fog", "horn", "gull", "tern", "rock", "light", "stair")
MODES: Final = (SearchMode.HYBRID, SearchMode.SEMANTIC, SearchMode.LEXICAL)
RECORDS: Final = 60


def manifest(name: str) -> Manifest:
    return Manifest(id=name, name=name, embedder="openai/test", dims=DIMS)


async def fill(client: AsyncClient, name: str, folder: Path) -> None:
    """A corpus and some documents with pages, and everything done that follows them."""
    await client.create(manifest(name))
    for file in files_in(folder):
        upload = await client.upload(name, file)
        await client.add(name, file_ref=upload.file_ref, source_uri=f"file:///{file.name}")
    await quiet(client, name)


def files_in(folder: Path) -> list[Path]:
    folder.mkdir()
    lines = [
        orjson.dumps({"_id": f"r{n}", "title": f"Record {n}", "text": text_of(n)})
        for n in range(RECORDS)
    ]
    (folder / "records.jsonl").write_bytes(b"\n".join(lines))
    (folder / "lamp.md").write_text("# Lamps\n\nThe lamp is lit.\n\n## Lens\n\nThe lens turns.\n")
    (folder / "fog.md").write_text("# Fog\n\nThe horn blows when fog comes over the rock.\n")
    return sorted(folder.iterdir())


def text_of(n: int) -> str:
    return " ".join(WORDS[(n * k + k) % len(WORDS)] for k in range(1, 3 + n % 9)) + f" number {n}"


async def quiet(client: AsyncClient, name: str) -> None:
    async def idle() -> bool:
        states = (JobState.QUEUED, JobState.RUNNING)
        busy = [j async for j in client.jobs(container_id=name, states=states)]
        return all(j.kind.value in ("purge", "garbage") for j in busy)

    await eventually(idle, seconds=60, what=f"the end of {name}'s jobs")


async def answers(client: AsyncClient, name: str) -> list[Any]:
    """Ids and scores of many queries, in every mode."""
    found: list[Any] = []
    for n in range(40):
        query = f"{WORDS[n % 10]} {WORDS[(n * 3 + 1) % 10]} {n if n % 4 == 0 else ''}".strip()
        request = SearchRequest(
            containers=[name], query=query, top_k=10, mode=MODES[n % len(MODES)]
        )
        answer = await client.search(request)
        assert not answer.partial
        found.append([(h.chunk_id, h.doc_id, round(h.score, 6)) for h in answer.hits])
    return found


async def test_a_container_comes_back_from_its_file_with_the_same_ids_and_scores(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await fill(client, "keep", tmp_path / "in")
    before = await answers(client, "keep")
    assert sum(bool(hits) for hits in before) > 35
    pages = [p async for d in client.documents("keep") async for p in client.pages(d.doc_id)]
    file = tmp_path / "keep.latent.tar.zst"
    code, out, err = await installation.cli("export", "keep", "--to", str(file), "--json")
    assert code == 0, err
    archive_totals = orjson.loads(out)["archive"]
    assert (archive_totals["bytes"], archive_totals["totals"]["documents"]) == (
        file.stat().st_size,
        RECORDS + 3,
    )

    code, _, err = await installation.cli("import", str(file))
    assert code != 0
    assert "--as" in err
    code, out, err = await installation.cli("import", str(file), "--as", "twin", "--json")
    assert code == 0, err
    assert orjson.loads(out)["job"]["result"]["embedded"] == 0
    twin = await answers(client, "twin")
    assert [[s for *_, s in hits] for hits in twin] == [[s for *_, s in hits] for hits in before]

    queued = await client.delete("keep")
    await gone(client, "keep", queued.job_id)
    code, _, err = await installation.cli("import", str(file))
    assert code == 0, err
    assert await answers(client, "keep") == before
    after = [p async for d in client.documents("keep") async for p in client.pages(d.doc_id)]
    assert [[q.sha256 for q in p.pages] for p in after] == [
        [q.sha256 for q in p.pages] for p in pages
    ]
    link = next(q.page_uri for p in after for q in p.pages if q.page_uri)
    assert (await client.fetch(link)).content
    report = await client.doctor("keep")
    assert report.clean, report


async def gone(client: AsyncClient, name: str, job_id: int) -> None:
    """The removal is done, and the id free again."""

    async def free() -> bool:
        try:
            return (await client.job(job_id)).state is JobState.DONE
        except NotFound:
            return True

    await eventually(free, seconds=60, what=f"the removal of {name}")


async def test_a_file_that_was_cut_off_is_refused_and_says_where(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await client.create(manifest("short"))
    file = tmp_path / "short.zst"
    code, _, err = await installation.cli("export", "short", "--to", str(file))
    assert code == 0, err
    file.write_bytes(file.read_bytes()[:-20])
    code, out, _ = await installation.cli("import", str(file), "--as", "shorter")
    assert code == 4
    assert "truncated" in out
    assert "byte" in out
    assert "shorter" not in [c.id for c in await client.containers()]


async def test_what_is_no_archive_is_refused_at_once(http: httpx.AsyncClient) -> None:
    ignored = await http.post("/v1/imports?filename=a.zst&policy=newest", content=b"any")
    assert (ignored.status_code, "Set merge" in ignored.text) == (400, True)
    answer = await http.post("/v1/imports?filename=a.zst", content=b"no archive at all")
    assert answer.status_code == 400
    assert "cannot be imported" in answer.json()["issues"][0]["message"]


async def test_an_export_is_ready_until_something_changes(
    client: AsyncClient, http: httpx.AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await fill(client, "ready", tmp_path / "in")
    first = await http.post("/v1/containers/export", json={"container_id": "ready"})
    assert first.status_code == 202
    await client.wait([first.json()["job_id"]])
    second = await http.post("/v1/containers/export", json={"container_id": "ready"})
    assert second.status_code == 200
    assert (await client.fetch(second.json()["url"])).content[:4] == b"\x28\xb5\x2f\xfd"
    await client.add_golden("ready", GoldenQuery(query="lamp", expect=["lamp"]))
    edited = await http.post("/v1/containers/export", json={"container_id": "ready"})
    assert edited.status_code == 202
    await client.wait([edited.json()["job_id"]])
    again = await http.post("/v1/containers/export", json={"container_id": "ready"})
    assert again.status_code == 200
    assert again.json()["archive"]["id"] != second.json()["archive"]["id"]
    (tmp_path / "in" / "more.md").write_text("# More\n\nMore lamps.\n")
    upload = await client.upload("ready", tmp_path / "in" / "more.md")
    added = await client.add("ready", file_ref=upload.file_ref)
    await client.wait([added.job_id])
    third = await http.post("/v1/containers/export", json={"container_id": "ready"})
    assert third.status_code == 202


async def test_backups_by_command(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await fill(client, "safe", tmp_path / "in")
    before = await answers(client, "safe")
    code, _, err = await installation.cli("backup", "now", "safe", "--wait")
    assert code == 0, err
    code, out, err = await installation.cli("backup", "list", "-c", "safe", "--json")
    assert code == 0, err
    (one,) = orjson.loads(out)["backups"]
    code, _, err = await installation.cli("backup", "verify", str(one["id"]), "--wait")
    assert code == 0, err
    file = tmp_path / "safe.zst"
    code, _, err = await installation.cli("backup", "fetch", str(one["id"]), "--to", str(file))
    assert code == 0, err
    assert file.stat().st_size == one["bytes"]
    queued = await client.delete("safe")
    await gone(client, "safe", queued.job_id)
    code, _, err = await installation.cli("backup", "restore", str(one["id"]))
    assert code == 0, err
    assert await answers(client, "safe") == before
    code, _, err = await installation.cli("backup", "delete", str(one["id"]))
    assert (code, "--yes" in err) == (2, True)
    code, _, err = await installation.cli("backup", "delete", str(one["id"]), "--yes", "--wait")
    assert code == 0, err
    assert await client.backups("safe") == []
    (line,) = [line async for line in client.audit(container_id="safe", action="backup.")]
    assert (line.action, line.object) == ("backup.delete", str(one["id"]))
    assert await answers(client, "safe") == before
    with pytest.raises(NotFound):
        await client.delete_backup(one["id"])


async def test_an_agent_that_owns_a_container_exports_it(
    client: AsyncClient, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    await fill(client, "agents", tmp_path / "in")
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "containers_export", "arguments": {"container_id": "agents"}},
    }
    headers = {"Accept": "application/json, text/event-stream"}

    async def archive_totals() -> dict[str, Any]:
        answer = await http.post("/mcp", json=call, headers=headers)
        text = answer.text
        if text.startswith(("event:", "id:", "data:")):
            text = next(
                line[5:] for line in text.splitlines() if line.startswith("data:") and "{" in line
            )
        found: dict[str, Any] = orjson.loads(text)["result"]["structuredContent"]
        return found

    first = await archive_totals()
    assert first["status"] == "queued"
    await client.wait([first["job_id"]])
    second = await archive_totals()
    assert second["status"] == "ready"
    assert second["totals"]["documents"] == RECORDS + 3
    assert (await client.fetch(second["url"])).content
