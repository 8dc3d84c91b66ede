"""Notes in a running installation: added, replaced, superseded, found by who wrote them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from latent_client import AsyncClient
from latent_core.domain.errors import Conflict, Forbidden, Invalid, NotFound, RateLimited
from latent_core.domain.origin import Origin
from latent_core.domain.token import Scope
from latent_core.wire.documents import AddAnswer
from latent_core.wire.refresh import RefreshAnswer, RefreshRequest, RefreshTarget, Strategy
from latent_core.wire.search import Hit
from tests.conftest import DIMS
from tests.http.test_http_surface import add, manifest, search, settled
from tests.support.harness.installation import Installation, eventually
from tests.support.servers.embedding_server import EmbeddingFault, EmbeddingServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASE_SECONDS: Final = 2
AGENT: Final = "agent:ada"
NOTES_PER_DAY: Final = 20
SETTINGS: Final = {"LLC_QUOTA_NOTES_PER_DAY": str(NOTES_PER_DAY)}
FERRY: Final = b"# Ferry\n\nThe ferry leaves at nine.\n"


async def made(client: AsyncClient) -> str:
    container = f"memory-{uuid4().hex[:8]}"
    await client.create(manifest(container))
    return container


async def remember(client: AsyncClient, container: str, text: str | None, **note: Any) -> AddAnswer:
    """Add a note and wait until it is searchable."""
    added = await client.add(container, text=text, **note)
    (job,) = await client.wait([added.job_id], timeout_seconds=60)
    assert job.cause is None
    return added


async def hits(client: AsyncClient, container: str, query: str, **request: Any) -> list[Hit]:
    answer = await search(client, container, query, top_k=10, **request)
    return list(answer.hits)


async def ferry(client: AsyncClient, container: str) -> UUID:
    added = await add(client, container, "ferry.md", FERRY)
    await client.wait([added.job_id], timeout_seconds=60)
    return added.doc_id


async def agent(
    installation: Installation,
    client: AsyncClient,
    container: str,
    *scopes: Scope,
    name: str = AGENT,
) -> AsyncClient:
    created = await client.create_token(
        name, name=uuid4().hex, scopes=list(scopes), containers=[container]
    )
    return installation.client(created.secret)


async def test_a_note_is_found_with_who_wrote_it_and_when(
    installation: Installation, client: AsyncClient
) -> None:
    container = await made(client)
    async with await agent(installation, client, container, Scope.READ, Scope.WRITE) as ada:
        added = await ada.add(
            container,
            text="The harbour lamp is green since May.",
            title="Lamp",
            session="s1",
            wait_seconds=5,
        )
        assert added.source_uri.startswith(f"note:///{AGENT}/")
        await client.wait([added.job_id], timeout_seconds=60)
        (hit,) = await hits(ada, container, "which colour has the harbour lamp")
        assert (hit.doc_id, hit.title, hit.origin, hit.written_by) == (
            added.doc_id,
            "Lamp",
            Origin.AGENT,
            AGENT,
        )
        assert hit.written_at is not None
        shown = await client.document(container, added.doc_id)
        assert (shown.session, shown.version, shown.written_by) == ("s1", 1, AGENT)
        assert shown.token_name
        assert await hits(client, container, "lamp", filters={"origin": {"ne": "agent"}}) == []
        assert await hits(client, container, "lamp", filters={"session": "s1", "written_by": AGENT})


async def test_the_same_text_twice_is_one_note(client: AsyncClient) -> None:
    container = await made(client)
    first = await remember(client, container, "Gulls sleep on the north cliff.")
    second = await remember(client, container, "Gulls sleep on the north cliff.")
    assert (second.doc_id, second.note_version, second.replaced) == (first.doc_id, 1, None)
    assert len([d async for d in client.documents(container)]) == 1


async def test_a_text_under_the_same_name_replaces_the_former_which_is_kept(
    client: AsyncClient,
) -> None:
    container = await made(client)
    first = await remember(client, container, "The key hangs behind the door.", name="key")
    second = await remember(client, container, "The key lies in the boat shed.", name="key")
    assert (second.doc_id, second.note_version) == (first.doc_id, 2)
    assert second.replaced is not None
    await settled(client, container)
    found = await hits(client, container, "where is the key")
    assert [hit.doc_id for hit in found] == [first.doc_id]
    assert "boat shed" in (found[0].text or "")
    everything = await hits(client, container, "where is the key", include_superseded=True)
    assert {hit.doc_id for hit in everything} == {first.doc_id, second.replaced}
    former = next(hit for hit in everything if hit.doc_id == second.replaced)
    assert "behind the door" in (former.text or "")
    assert former.superseded_by == first.doc_id
    assert (await client.doctor(container)).clean


async def test_texts_that_follow_each_other_faster_than_the_worker_are_all_kept(
    client: AsyncClient,
) -> None:
    container = await made(client)
    texts = [f"Reading {n}: the tide stands at {n} metres." for n in range(6)]
    added = await asyncio.gather(*(client.add(container, text=t, name="tide") for t in texts))
    assert sorted(one.note_version for one in added) == [1, 2, 3, 4, 5, 6]
    await settled(client, container)
    found = await hits(
        client, container, "tide metres reading", include_superseded=True, dedup=False
    )
    assert {(hit.text or "").strip() for hit in found} == set(texts)
    (current,) = await hits(client, container, "tide metres reading")
    newest = max(added, key=lambda one: one.note_version)
    assert (current.text or "").strip() == texts[added.index(newest)]


async def test_of_two_agents_that_write_one_name_at_once_one_wins_and_the_other_merges(
    installation: Installation, client: AsyncClient
) -> None:
    container = await made(client)
    rights = (Scope.READ, Scope.WRITE)
    agents = [await agent(installation, client, container, *rights) for _ in range(2)]
    await remember(agents[0], container, "Draft.", name="plan", if_version=0)
    texts = ["Paint the tower.", "Oil the hinges."]
    answers = await asyncio.gather(
        *(
            one.add(container, text=text, name="plan", if_version=1)
            for one, text in zip(agents, texts, strict=True)
        ),
        return_exceptions=True,
    )
    (refused,) = [one for one in answers if isinstance(one, BaseException)]
    assert isinstance(refused, Conflict)
    assert refused.details["version"] == 2
    assert "if_version 2" in refused.message
    loser = answers.index(refused)
    merged = f"{texts[1 - loser]} {texts[loser]}"
    await agents[loser].add(container, text=merged, name="plan", if_version=2)
    await settled(client, container)
    versions = await hits(
        client, container, "plan draft paint oil", include_superseded=True, dedup=False
    )
    assert {(hit.text or "").strip() for hit in versions} == {"Draft.", texts[1 - loser], merged}
    with pytest.raises(Conflict, match="without if_version"):
        await client.add(container, text="x", name="unknown", if_version=3)
    for one in agents:
        await one.close()


async def test_a_superseded_document_is_found_until_its_successor_is_and_then_on_request(
    client: AsyncClient,
) -> None:
    container = await made(client)
    old = await ferry(client, container)
    new = await remember(client, container, "The ferry leaves at ten.", supersedes=old)
    assert [hit.doc_id for hit in await hits(client, container, "when does the ferry leave")] == [
        new.doc_id
    ]
    both = await hits(client, container, "when does the ferry leave", include_superseded=True)
    assert {hit.doc_id for hit in both} == {old, new.doc_id}
    shown = await client.document(container, old)
    assert (shown.superseded_by, shown.superseded_at is not None) == (new.doc_id, True)
    with pytest.raises(Conflict, match="already superseded"):
        await client.add(container, text="The ferry is cancelled.", supersedes=old)
    with pytest.raises(NotFound, match="supersedes"):
        await client.add(container, text="Nothing.", supersedes=uuid4())


async def test_notes_keep_writer_versions_and_successors_through_export_import_and_refresh(
    installation: Installation, client: AsyncClient, tmp_path: Path
) -> None:
    container = await made(client)
    ada = await agent(installation, client, container, Scope.READ, Scope.WRITE)
    await remember(ada, container, "The pilot boat is red.", name="boat", session="s1")
    await remember(ada, container, "The pilot boat is blue.", name="boat", session="s2")
    old = await remember(ada, container, "Ada steers the pilot boat.", name="pilot")
    await remember(ada, container, "Ben steers the pilot boat.", supersedes=old.doc_id)
    await ada.close()
    await settled(client, container)
    before = await kept_notes(client, container)
    assert len(before) == 4
    assert {writer for _, writer, *_ in before} == {AGENT}

    exported = await client.export(container)
    (job,) = await client.wait([exported.job_id or 0], timeout_seconds=60)
    link = await client.exported(int((job.result or {})["archive_id"]))
    archive = tmp_path / "notes.llc"
    await client.download(link, archive)
    twin = f"{container}-twin"
    imported = await client.import_archive(archive, container_id=twin)
    await client.wait([imported.job_id], timeout_seconds=60)
    await settled(client, twin)
    assert await kept_notes(client, twin) == before

    to = RefreshTarget(embedder="openai/other", dims=DIMS)
    refreshed = await client.refresh(twin, RefreshRequest(strategy=Strategy.PARALLEL, to=to))
    assert isinstance(refreshed, RefreshAnswer)
    (job,) = await client.wait([refreshed.job_id], timeout_seconds=60)
    assert job.cause is None
    assert (await client.describe(twin)).manifest["embedder"] == "openai/other"
    assert await kept_notes(client, twin) == before


async def kept_notes(client: AsyncClient, container: str) -> set[tuple[Any, ...]]:
    """What a search finds of all notes: name, writer, time, session, version, whether it is superseded, text."""
    documents = {d.doc_id: d async for d in client.documents(container)}
    found = await hits(client, container, "pilot boat", include_superseded=True, dedup=False)
    current = {hit.doc_id for hit in await hits(client, container, "pilot boat", dedup=False)}
    listed = [(documents[hit.doc_id], (hit.text or "").strip()) for hit in found]
    assert current == {d.doc_id for d, _ in listed if d.superseded_by is None}
    return {
        (d.source_uri, d.written_by, d.written_at, d.session, d.version, bool(d.superseded_by), t)
        for d, t in listed
    }


async def test_a_writer_replaces_only_its_own(
    installation: Installation, client: AsyncClient
) -> None:
    container = await made(client)
    old = await ferry(client, container)
    async with await agent(installation, client, container, Scope.READ, Scope.WRITE) as ada:
        with pytest.raises(Forbidden, match="scope 'delete'"):
            await ada.add(container, text="At ten.", supersedes=old)
        with pytest.raises(Forbidden, match="added by 'local:you'"):
            await add(ada, container, "ferry.md", b"# Ferry\n\nAt eleven.\n")
        with pytest.raises(Forbidden):
            await ada.delete_document(container, old)
        with pytest.raises(Invalid, match="reserved for notes"):
            await add(ada, container, "x.md", b"x", source_uri="note:///local:you/x")
    async with await agent(
        installation, client, container, Scope.READ, Scope.WRITE, Scope.DELETE
    ) as eve:
        await eve.add(container, text="At ten.", supersedes=old)


async def test_a_deleted_document_is_invisible_and_can_be_restored_whole(
    client: AsyncClient,
) -> None:
    container = await made(client)
    first = await remember(client, container, "The buoy is yellow.", name="buoy", session="s")
    second = await remember(client, container, "The buoy is black.", name="buoy", session="s")
    await settled(client, container)
    gone = await client.delete_document(container, first.doc_id)
    assert gone.restorable_until is not None
    await client.wait([gone.job_id], timeout_seconds=60)
    assert await hits(client, container, "which colour is the buoy", include_superseded=True) == []
    assert [d async for d in client.documents(container)] == []
    (deleted,) = await client.trash(container)
    assert (deleted.doc_id, deleted.title) == (first.doc_id, "buoy")
    assert (await client.doctor(container)).clean
    back = await client.restore_document(container, first.doc_id)
    await client.wait([back.job_id], timeout_seconds=60)
    await settled(client, container)
    (hit,) = await hits(client, container, "which colour is the buoy")
    assert (hit.doc_id, (hit.text or "").strip()) == (first.doc_id, "The buoy is black.")
    both = await hits(client, container, "which colour is the buoy", include_superseded=True)
    assert {hit.doc_id for hit in both} == {first.doc_id, second.replaced}
    shown = await client.document(container, first.doc_id)
    assert (shown.version, shown.written_by, shown.session) == (2, "local:you", "s")
    assert await client.trash(container) == []
    assert (await client.doctor(container)).clean
    with pytest.raises(NotFound, match="no deleted document"):
        await client.restore_document(container, first.doc_id)


async def test_what_is_deleted_for_good_leaves_no_bytes_and_cannot_be_restored(
    client: AsyncClient,
) -> None:
    container = await made(client)
    note = await remember(client, container, "The code of the shed is not written anywhere.")
    await client.delete_document(container, note.doc_id)
    assert len(await client.trash(container)) == 1
    final = await client.delete_document(container, note.doc_id, now=True)
    assert final.restorable_until is None
    await client.wait([final.job_id], timeout_seconds=60)
    assert await client.trash(container) == []
    with pytest.raises(NotFound):
        await client.restore_document(container, note.doc_id)
    with pytest.raises(NotFound):
        await client.delete_document(container, note.doc_id, now=True)


async def test_a_writer_deletes_and_restores_its_own_and_sees_no_other_trash(
    installation: Installation, client: AsyncClient
) -> None:
    container = await made(client)
    old = await ferry(client, container)
    async with await agent(installation, client, container, Scope.READ, Scope.WRITE) as ada:
        own = await remember(ada, container, "Mine.")
        await ada.delete_document(container, own.doc_id)
        await client.delete_document(container, old)
        assert [one.doc_id for one in await ada.trash(container)] == [own.doc_id]
        with pytest.raises(Forbidden, match="not added by you"):
            await ada.restore_document(container, old)
        await ada.restore_document(container, own.doc_id)
    assert {one.doc_id for one in await client.trash(container)} == {old}


async def test_an_expired_note_is_not_found_and_is_deleted(client: AsyncClient) -> None:
    container = await made(client)
    soon = datetime.now(UTC) + timedelta(seconds=3)
    await remember(client, container, "The parking ticket is valid today.", expires_at=soon)

    async def gone() -> bool:
        return await hits(client, container, "parking ticket") == []

    await eventually(gone, seconds=30, what="the end of the note")


async def test_a_conversation_is_continued_by_name_and_its_messages_are_found(
    client: AsyncClient,
) -> None:
    container = await made(client)
    first = [
        {
            "role": "user",
            "name": "Ada",
            "content": "The regatta is on the fourth of June.",
            "time": "2026-05-01T10:00:00Z",
        },
        {
            "role": "assistant",
            "content": "Noted: regatta on 4 June.",
            "time": "2026-05-01T10:00:05Z",
        },
    ]
    more = [
        *first,
        {
            "role": "user",
            "name": "Ada",
            "content": "The prize is a brass sextant.",
            "time": "2026-05-01T10:01:00Z",
        },
    ]
    added = await remember(client, container, None, messages=first, name="regatta")
    again = await remember(client, container, None, messages=more, name="regatta")
    assert (again.doc_id, again.replaced) == (added.doc_id, None)
    await settled(client, container)
    assert len([d async for d in client.documents(container)]) == 1
    (hit,) = await hits(client, container, "what is the prize, a sextant")
    assert "brass sextant" in (hit.text or "")
    assert hit.source_type == "conversation"
    assert await hits(client, container, "regatta", filters={"meta.speaker": {"contains": "Ada"}})


async def test_of_many_who_continue_a_conversation_no_message_is_lost(client: AsyncClient) -> None:
    container = await made(client)
    lines = [f"Gull number {n} was seen at the quay." for n in range(5)]
    await asyncio.gather(
        *(
            client.add(container, messages=[{"role": "user", "content": one}], name="gulls")
            for one in lines
        )
    )
    await settled(client, container)
    found = await hits(client, container, "gull number seen at the quay", dedup=False)
    text = "\n".join(hit.text or "" for hit in found)
    assert all(one in text for one in lines)


async def test_a_secret_in_a_note_is_masked_before_it_is_stored(client: AsyncClient) -> None:
    container = await made(client)
    secret = "hX7" + "q9Zr2LmPw4Tk8Vb"
    added = await remember(client, container, f"The router: password = {secret}")
    assert sum(added.masked.values()) == 1
    (hit,) = await hits(client, container, "router password")
    assert secret not in (hit.text or "")
    assert "[masked: " in (hit.text or "")


async def test_the_nearest_notes_are_named_and_not_merged(client: AsyncClient) -> None:
    container = await made(client)
    lamp = await remember(
        client, container, "The harbour lamp shines green at night.", title="Lamp"
    )
    await remember(client, container, "Bread is baked on Fridays.", title="Bread")
    added = await client.add(container, text="At night the harbour lamp shines red.")
    assert added.nearest[0].doc_id == lamp.doc_id
    assert added.nearest[0].title == "Lamp"
    assert len(added.nearest) <= 3


async def test_the_nearest_notes_are_looked_up_by_the_words_of_the_note_as_they_are(
    client: AsyncClient, embedding_server: EmbeddingServer
) -> None:
    container = await made(client)
    schooner = await remember(client, container, "The schooner is white.")
    embedding_server.misbehave(EmbeddingFault.NO_MODEL, times=1000, only_with="red")
    try:
        same = await client.add(container, text="A schooner, painted red.")
        assert [note.doc_id for note in same.nearest] == [schooner.doc_id]
        misspelt = await client.add(container, text="A schoner, painted red.")
        assert not misspelt.nearest
    finally:
        embedding_server.misbehave(EmbeddingFault.NO_MODEL, only_with="in no text of these tests")


async def test_notes_are_limited_per_token_and_day(
    installation: Installation, client: AsyncClient
) -> None:
    container = await made(client)
    async with await agent(installation, client, container, Scope.WRITE) as ada:
        for n in range(NOTES_PER_DAY):
            await ada.add(container, text=f"Note {n}")
        with pytest.raises(RateLimited, match="LLC_QUOTA_NOTES_PER_DAY"):
            await ada.add(container, text="One more")


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ({"text": "  "}, "empty"),
        ({"text": "a\x00b"}, "U\\+0000"),
        ({"text": "a", "uri": "https://example.com"}, "either text or a source"),
        ({"text": "a", "expires_at": "2020-01-01T00:00:00Z"}, "has passed"),
        ({"uri": "https://example.com", "name": "x"}, "only for notes"),
    ],
)
async def test_a_note_that_cannot_be_one_is_refused_with_its_cause(
    http: Any, client: AsyncClient, body: dict[str, Any], cause: str
) -> None:
    container = await made(client)
    answer = await http.post("/v1/containers/add", json={"container_id": container, **body})
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["issues"][0]["code"] == "INVALID"
