"""Conversations in a running installation: hits name the speaker and the time, and filters read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from latent_client import AsyncClient, sync_folder
from latent_core.domain.conversation import CONVERSATION_MIME, read_conversation
from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import Manifest, SearchMode
from latent_core.wire.search import Hit, SearchRequest
from tests.conftest import DIMS
from tests.http.test_http_surface import settled
from tests.support import transcripts
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True

CONTAINER: Final = "talks"
TALK: Final = {
    "title": "The lighthouse",
    "session": "s-7",
    "messages": [
        {"name": "Ada", "content": "The lamp went out.", "time": "2026-03-01T23:30:00Z"},
        {"name": "Bob", "content": "I trim the lamp now.", "time": "2026-03-01T23:40:00Z"},
    ],
}
LATER: Final = {
    "messages": [
        {"name": "Eve", "content": "The lamp is lit again.", "time": "2026-03-05T08:00:00Z"}
    ]
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def talks(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A transcript and an export as files, and two conversations in the stored form."""
    folder: Path = tmp_path_factory.mktemp("talks")
    (folder / "session.jsonl").write_bytes(transcripts.claude_code())
    (folder / "conversations.json").write_bytes(transcripts.chatgpt())
    async with installation.client() as client:
        manifest = Manifest(id=CONTAINER, name="Talks", embedder="openai/test", dims=DIMS)
        await client.create(manifest)
        for name in ("session.jsonl", "conversations.json"):
            upload = await client.upload(CONTAINER, folder / name)
            await client.add(CONTAINER, file_ref=upload.file_ref)
        for name, talk in (("talk", TALK), ("later", LATER)):
            path = folder / name
            path.write_bytes(read_conversation(talk).encode())
            upload = await client.upload(CONTAINER, path, mime=CONVERSATION_MIME)
            await client.add(CONTAINER, file_ref=upload.file_ref)
        await settled(client, CONTAINER)


async def _search(client: AsyncClient, query: str, filters: dict[str, Any]) -> list[Hit]:
    request = SearchRequest(
        containers=[CONTAINER], query=query, top_k=20, mode=SearchMode.LEXICAL, filters=filters
    )
    return (await client.search(request)).hits


async def test_a_hit_names_messages_speakers_and_time(client: AsyncClient, talks: None) -> None:
    (hit,) = await _search(client, "trim the lamp", {"meta.session": "s-7"})
    assert hit.source_type == "conversation"
    assert hit.place.heading_path == "Ada, Bob, 2026-03-01 23:30"
    assert hit.meta["speaker"] == ["Ada", "Bob"]
    assert (hit.meta["turn"], hit.meta["time"]) == ([1, 2], "2026-03-01T23:30:00+00:00")
    assert hit.title == "The lighthouse"


@pytest.mark.parametrize(
    ("filters", "titles"),
    [
        ({"meta.speaker": "Bob"}, {"The lighthouse"}),
        ({"meta.speaker": ["Bob", "Eve"]}, {"The lighthouse", "later"}),
        ({"meta.speaker": {"contains": "Eve"}}, {"later"}),
        ({"meta.speaker": {"ne": "user"}}, {"The lighthouse", "later"}),
        ({"meta.time": {"gt": "2026-03-01"}}, {"later"}),
        ({"meta.time": "2026-03-01"}, {"The lighthouse", "A dark lamp"}),
        ({"meta.time": {"gte": "2026-03-01T23:00:00Z"}}, {"The lighthouse", "later"}),
        ({"source_type": "conversation", "meta.speaker": "user"}, {"A dark lamp"}),
    ],
)
async def test_filters_read_speaker_and_time(
    client: AsyncClient, talks: None, filters: dict[str, Any], titles: set[str]
) -> None:
    assert {hit.title for hit in await _search(client, "lamp", filters)} == titles


async def test_a_time_that_is_none_is_refused(client: AsyncClient, talks: None) -> None:
    with pytest.raises(Invalid, match=r"filters\.meta\.time"):
        await _search(client, "lamp", {"meta.time": {"gt": "noon"}})


async def test_an_export_is_one_document_per_conversation(client: AsyncClient, talks: None) -> None:
    (hit,) = await _search(client, "colza", {})
    assert (hit.title, hit.external_id) == ("Oil for lamps", "c-1")
    assert hit.source_path == "conversations.json#c-1"
    documents = [one async for one in client.documents(CONTAINER)]
    assert sum(one.source_type == "conversation" for one in documents) == 5


async def test_a_folder_of_transcripts_is_in_step_after_one_sync(
    client: AsyncClient, installation: Installation, tmp_path: Path
) -> None:
    await client.create(Manifest(id="sessions", name="S", embedder="openai/test", dims=DIMS))
    (tmp_path / "session.jsonl").write_bytes(transcripts.claude_code())
    (tmp_path / "conversations.json").write_bytes(transcripts.chatgpt())
    (tmp_path / "empty.jsonl").write_bytes(b'{"type":"session_meta","payload":{"id":"s"}}\n')
    code, out, err = await installation.cli(
        "ingest", str(tmp_path), "-c", "sessions", "--dry-run", "--json"
    )
    assert code == 0, err
    planned = json.loads(out)
    assert planned["types"]["conversation"]["documents"] == 3
    assert [one["path"] for one in planned["would_fail"]] == [f"{tmp_path.name}/empty.jsonl"]
    report = await sync_folder(client, "sessions", tmp_path)
    await client.wait(report.job_ids, timeout_seconds=60)
    types = [one.source_type async for one in client.documents("sessions") if one.chunks]
    assert types == ["conversation"] * 3
    again = await sync_folder(client, "sessions", tmp_path)
    assert (again.added, again.unchanged) == ([], 2)
    assert [one.path for one in again.skipped] == ["empty.jsonl"]
