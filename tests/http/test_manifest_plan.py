"""The plan of a changed manifest: what would change, for how many documents, and what it takes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from latent_client import AsyncClient
from latent_core.domain.errors import Conflict, Invalid, NotFound
from latent_core.domain.job import JobState
from latent_core.domain.manifest.changes import ChangeEffect
from latent_core.domain.manifest.model import Manifest, parse_manifest
from latent_core.domain.manifest.templates import KINDS, template
from latent_core.wire.refresh import RefreshAnswer, Strategy
from tests.conftest import DIMS
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

FILES = {
    "tides.md": "# Tides\n\nThe harbour is deep at high tide.\n",
    "lamp.py": "def lit(hour: int) -> bool:\n    return hour > 18\n",
    "notes.txt": "The horn blows when there is fog.\n",
}


def manifest(name: str, **more: Any) -> Manifest:
    return parse_manifest(
        {"id": name, "name": name, "embedder": "openai/test", "dims": DIMS, **more}
    )


async def founded(client: AsyncClient, name: str, folder: Path) -> None:
    await client.create(manifest(name))
    jobs = [await added(client, name, folder / file, text) for file, text in FILES.items()]
    for job in await client.wait(jobs, timeout_seconds=60):
        assert job.state is JobState.DONE, job


async def added(client: AsyncClient, name: str, file: Path, text: str) -> int | str:
    await asyncio.to_thread(file.write_text, text, encoding="utf-8")
    upload = await client.upload(name, file)
    return (await client.add(name, file_ref=upload.file_ref)).job_id


async def test_a_plan_says_for_each_key_what_follows_and_changes_nothing(
    client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "planned", tmp_path)
    before = await client.describe("planned")
    same = await client.plan(manifest("planned"))
    assert (same.effect, same.changes, same.refresh, same.etag) == (None, [], None, before.etag)

    light = await client.plan(manifest("planned", theme="tides", display={"max_snippet_chars": 99}))
    assert light.effect is ChangeEffect.IMMEDIATE
    assert [change.key for change in light.changes] == ["theme", "display.max_snippet_chars"]
    assert (light.refresh, light.documents, light.cost, light.seconds) == (None, 0, 0.0, 0.0)

    code = await client.plan(manifest("planned", chunker={"code_lines": 40}, theme="tides"))
    assert code.effect is ChangeEffect.RECHUNK
    assert {change.key: change.documents for change in code.changes} == {
        "theme": 0,
        "chunker.code_lines": 1,
    }
    whole = await client.plan(manifest("planned", chunker={"size": 64}))
    assert [change.documents for change in whole.changes] == [3]
    assert whole.refresh is not None
    assert whole.refresh.strategy is Strategy.REPARSE
    assert (whole.documents, whole.chunks) == (3, before.sizes.chunks)
    assert whole.texts > code.texts > 0
    assert whole.tokens > code.tokens > 0
    assert whole.basis.startswith("embedding only")  # three documents tell nothing
    for number in range(3):
        await client.wait([await added(client, "planned", tmp_path / f"{number}.txt", f"{number}")])
    known = await client.plan(manifest("planned", chunker={"size": 64}))
    assert known.basis.startswith("the last 6 documents took ")
    assert known.seconds is not None
    assert known.seconds > 0
    assert known.documents == 6
    assert (await client.describe("planned")).etag == before.etag


async def test_a_plan_to_another_embedder_has_the_figures_of_the_refresh(
    client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "moved", tmp_path)
    other = parse_manifest({"id": "moved", "name": "moved", "embedder": "local"})
    plan = await client.plan(other)
    assert plan.effect is ChangeEffect.REEMBED
    assert plan.refresh is not None
    assert plan.refresh.to is not None
    assert (plan.refresh.strategy, plan.refresh.to.embedder) == (Strategy.PARALLEL, "local")
    assert (plan.documents, plan.cost) == (3, 0.0)
    assert plan.texts + plan.cached >= plan.chunks > 0
    with pytest.raises(Conflict, match="apply cannot change embedder"):
        await client.update(other, if_match=plan.etag)
    started = await client.refresh("moved", plan.refresh)
    assert isinstance(started, RefreshAnswer)
    (job,) = await client.wait([started.job_id], timeout_seconds=120)
    assert job.state is JobState.DONE, job
    assert (await client.plan(other)).effect is None


async def test_what_cannot_change_is_refused_in_the_plan_and_what_is_wrong_by_its_key(
    client: AsyncClient, tmp_path: Path
) -> None:
    await client.create(manifest("kept"))
    late = await client.plan(manifest("kept", ingest={"ttl_days": 9}))
    assert "0 documents were last fetched more than 9 days ago" in late.notes[0]
    with pytest.raises(Invalid, match=r"ask\.enabled is true, but ask\.provider"):
        await client.plan(manifest("kept", ask={"enabled": True}))
    with pytest.raises(Invalid, match="you would lose access"):
        await client.plan(manifest("kept", acl={"roles": {"owner": ["agent:x"]}}))
    with pytest.raises(NotFound):
        await client.plan(manifest("elsewhere"))
    assert await client.store_sizes("kept", days=3) is not None


async def test_the_command_shows_the_plan_of_a_file(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    await founded(client, "shown", tmp_path)
    file = tmp_path / "shown.yaml"
    words = {"id": "shown", "name": "shown", "embedder": "openai/test", "dims": DIMS}
    file.write_text(yaml.safe_dump({**words, "chunker": {"size": 64}}), encoding="utf-8")
    code, out, err = await installation.cli("container", "apply", file, "--dry-run")
    assert code == 0, (out, err)
    assert "chunker.size: None → 64 (re-chunk, 3 documents)" in out
    assert "latent refresh shown --strategy reparse" in out
    assert (await client.plan(manifest("shown"))).effect is None


async def test_every_template_makes_a_container_in_a_new_installation(client: AsyncClient) -> None:
    for name in KINDS:
        made = await client.create(template(name).filled({"id": f"of-{name}"}))
        assert made.container.id == f"of-{name}"
        assert (await client.plan(template(name).filled({"id": f"of-{name}"}))).effect is None
