"""``embedder: <name>`` of an installed model in a running installation, and what is said when the model is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from latent_client import AsyncClient
from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import Manifest, SearchMode
from latent_core.wire.search import SearchRequest
from tests.support.harness.installation import Installation
from tests.support.servers.model_hub import ModelHub
from tests.support.tiny_model import DIMS, tiny_repository

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True
ID: Final = "acme/Tiny-Lamp"
NAME: Final = "tiny-lamp"
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

    code, _, err = await installation.cli(*command.split()[1:])
    assert code == 0, err
    mended = await client.search(SEMANTIC)
    assert (mended.hits[0].title, mended.issues) == ("boat", [])
