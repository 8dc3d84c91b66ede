"""Doctor by its command on a running installation, and what a deletion leaves as its proof."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from latent_client import AsyncClient
from latent_core.domain import versions
from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import NotFound
from latent_core.domain.ids import document_id
from latent_core.domain.job import JobState
from latent_core.domain.manifest.model import Manifest
from tests.conftest import DIMS
from tests.http.test_http_surface import settled
from tests.support.harness.installation import Installation, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]


async def damage(installation: Installation, statement: str) -> None:
    """What no program of ours would do."""
    async with await psycopg.AsyncConnection.connect(installation.dsn) as conn:
        await conn.execute(statement)  # type: ignore[arg-type]


async def founded(client: AsyncClient, name: str, folder: Path, *texts: str) -> None:
    await client.create(Manifest(id=name, name=name, embedder="openai/test", dims=DIMS))
    jobs = []
    for number, text in enumerate(texts):
        file = folder / f"{number}.md"
        file.write_text(text, encoding="utf-8")
        upload = await client.upload(name, file)
        jobs.append((await client.add(name, file_ref=upload.file_ref)).job_id)
    ended = await client.wait(jobs, timeout_seconds=60)
    assert all(job.state is JobState.DONE for job in ended), ended


async def doctor(installation: Installation, *options: str) -> tuple[int, dict[str, Any]]:
    code, out, err = await installation.cli("doctor", "--json", *options)
    assert code in (0, 4), err
    return code, orjson.loads(out)


async def test_the_command_tells_repairs_and_then_finds_nothing(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await founded(
        client, "hurt", tmp_path, "# Lamps\n\nThe lamp is lit.\n", "# Lens\n\nIt turns.\n"
    )
    assert (await doctor(installation, "-c", "hurt", "--deep"))[0] == 0
    await damage(installation, "DELETE FROM unmerged_postings WHERE container_id = 'hurt'")
    code, out, _ = await installation.cli("doctor", "-c", "hurt")
    assert code == 4
    assert "(--repair: rebuild)" in out
    code, report = await doctor(installation, "-c", "hurt", "--repair")
    assert code == 0, "all of it could be repaired"
    assert {(r["repair"], r["done"]) for r in report["repairs"]} == {("rebuild", True)}
    code, report = await doctor(installation, "-c", "hurt", "--repair", "--deep")
    assert (code, report["clean"], report["repairs"]) == (0, True, [])


async def test_documents_of_an_older_parser_are_noted_until_they_are_read_again(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await founded(
        client, "aged", tmp_path, "# Lamps\n\nThe lamp is lit.\n", "# Lens\n\nIt turns.\n"
    )
    file = tmp_path / "lens.py"
    file.write_text("def turn_lens(lens):\n    return lens\n", encoding="utf-8")
    upload = await client.upload("aged", file)
    await client.wait([(await client.add("aged", file_ref=upload.file_ref)).job_id])
    code, report = await doctor(installation, "-c", "aged")
    assert (code, report["containers"]["aged"]["notes"]) == (0, [])
    # As the version before, which gave source code no recipe of its own.
    older = (
        f"UPDATE documents SET recipe = replace(recipe, '{versions.ending(SourceType.CODE)}', '')"
    )
    await damage(installation, f"{older} WHERE container_id = 'aged'")
    code, report = await doctor(installation, "-c", "aged")
    (note,) = report["containers"]["aged"]["notes"]
    assert (code, note["kind"], report["clean"]) == (0, "recipe", True)
    assert note["message"].startswith("1 document was read by an older version of the parsers")
    _, command = note["message"].split("`")[:2]
    code, _, err = await installation.cli(*command.split()[1:], "--wait")
    assert code == 0, err
    assert (await doctor(installation, "-c", "aged"))[1]["containers"]["aged"]["notes"] == []


async def test_a_manifest_file_that_says_something_else_is_noted(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "drifted", tmp_path)
    file = installation.manifests / "drifted.yaml"
    file.write_text(
        f"id: drifted\nname: Another\nembedder: openai/test\ndims: {DIMS}\n", encoding="utf-8"
    )
    code, report = await doctor(installation, "-c", "drifted")
    (note,) = report["containers"]["drifted"]["notes"]
    assert code == 0
    assert note["kind"] == "manifest"
    assert "differs from the stored manifest in name" in note["message"]
    file.unlink()


async def test_a_manifest_file_that_cannot_be_applied_is_a_difference_with_its_remedy(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "refused", tmp_path)
    file = installation.manifests / "refused.yaml"
    written = file.read_text(encoding="utf-8")
    try:
        file.write_text(
            f"id: refused\nname: refused\nembedder: openai/other\ndims: {DIMS}\n", encoding="utf-8"
        )
        code, report = await doctor(installation, "-c", "refused")
        (difference,) = report["containers"]["refused"]["differences"]
        assert (code, difference["kind"], difference["object"]) == (4, "manifest", "refused.yaml")
        assert "apply cannot change embedder" in difference["message"]
        assert "embedder: openai/test" in difference["message"], "what to write into the file"
        file.write_text("id: refused\nembeder: local\n", encoding="utf-8")
        code, report = await doctor(installation)
        assert code == 4
        (difference,) = [one for one in report["stores"] if one["object"] == "refused.yaml"]
        assert "embeder" in difference["message"]
        assert "Correct or remove it" in difference["message"]
        file.write_text("id: never-created\nname: N\nembedder: openai/new\n", encoding="utf-8")
        code, report = await doctor(installation)
        (difference,) = [one for one in report["stores"] if one["object"] == "refused.yaml"]
        assert (code, "container 'never-created' was not created" in difference["message"]) == (
            4,
            True,
        )
    finally:
        file.write_text(written, encoding="utf-8")
    assert (await doctor(installation, "-c", "refused"))[0] == 0


async def notes_of_files(installation: Installation) -> list[dict[str, Any]]:
    code, report = await doctor(installation, "-c", "renewed")
    assert code == 0
    return [one for one in report["containers"]["renewed"]["notes"] if one["kind"] == "manifest"]


async def test_after_a_refresh_the_file_is_no_difference_and_what_it_leaves_open_is_kept(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "renewed", tmp_path, "# Lamps\n\nThe lamp is lit.\n")
    options = ("--strategy", "parallel", "--to", "openai/other", "--version", "7", "--dims")
    code, _, err = await installation.cli(
        "refresh", "renewed", *options, str(DIMS), "--force", "--wait"
    )
    assert code == 0, err
    assert await notes_of_files(installation) == [], "the file is older"
    file = installation.manifests / "renewed.yaml"
    file.write_text("id: renewed\nname: renewed\nembedder: openai/other\n", encoding="utf-8")
    assert await notes_of_files(installation) == []
    code, out, err = await installation.cli("container", "apply", str(file))
    assert (code, "already up to date" in out) == (0, True), err
    file.write_text("id: renewed\nname: Again\nembedder: openai/other\n", encoding="utf-8")
    code, out, err = await installation.cli("container", "apply", str(file))
    assert code == 0, err
    assert (await client.describe("renewed")).embedder["version"] == "7"


async def test_a_damaged_export_is_reported_and_written_again(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "cutoff", tmp_path, "# Lamps\n\nThe lamp is lit.\n")
    await settled(client, "cutoff")  # pages and duplicates follow the document: another export
    job_id = (await client.export("cutoff")).job_id
    assert job_id is not None
    await client.wait([job_id], timeout_seconds=60)
    archive = (await client.export("cutoff")).archive
    assert archive is not None
    await damage(installation, "UPDATE archives SET bytes = bytes + 1")
    code, report = await doctor(installation, "-c", "cutoff")
    (difference,) = report["containers"]["cutoff"]["differences"]
    assert (code, difference["kind"], difference["repair"]) == (4, "export", "drop")
    with pytest.raises(NotFound, match="export again"):
        await client.exported(archive.id)
    assert (await client.export("cutoff")).archive is None, "it is not ready, but made anew"
    code, _, err = await installation.cli("export", "cutoff", "--to", str(tmp_path / "cutoff.tar"))
    assert code == 0, err
    assert (await doctor(installation, "-c", "cutoff"))[0] == 0


async def test_a_deletion_is_proven_by_its_job_and_confirmed_by_doctor(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "proven", tmp_path, "# One\n\nThe first.\n", "# Two\n\nThe second.\n")
    queued = await client.delete_document("proven", document_id("proven", "file:///0.md"), now=True)
    (job,) = await client.wait([queued.job_id], timeout_seconds=60)
    assert job.result is not None
    assert job.result["points"] == job.result["chunks"] == 1
    assert job.result["postings"] > 0
    assert job.result["blobs_released"] + job.result["blobs_kept"] >= 1
    code, out, _ = await installation.cli("jobs", "show", str(job.job_id))
    assert code == 0
    assert {"points 1", "chunks 1"} <= set(re.split(r"[,\n]\s*|\s{2,}", out)), out

    async def confirmed() -> bool:
        return (await doctor(installation, "--deep"))[1]["clean"] is True

    await eventually(confirmed, seconds=60, what="a clean report")
    queued = await client.delete("proven")
    (job,) = await client.wait([queued.job_id], timeout_seconds=60)
    assert job.result is not None
    assert (job.result["documents"], job.result["points"]) == (2, 1)
    await eventually(confirmed, seconds=60, what="a clean report")
