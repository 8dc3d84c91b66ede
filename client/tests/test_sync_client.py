"""The sync face is the asynchronous client, waited for."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from latent_client import AsyncClient, SyncClient
from latent_core.domain.errors import NotFound
from latent_core.wire.search import SearchRequest
from tests.support.fake_gateway.gateway import TOKEN, FakeGateway


def test_it_answers_what_the_asynchronous_one_answers(gateway: FakeGateway, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("the Fresnel lens", encoding="utf-8")
    with SyncClient(gateway.url, TOKEN) as client:
        assert [c.id for c in client.containers()] == ["notes"]
        report = client.sync_folder("notes", tmp_path, "museum")
        client.wait(report.job_ids)
        answer = client.search(SearchRequest(containers=["notes"], query="fresnel", top_k=1))
        assert answer.hits[0].source_uri == "file:///museum/a.md"
        assert [n.event for n in client.events(report.job_ids[0])] == ["queued", "done", "end"]
        with pytest.raises(NotFound):
            client.describe("nothing")


def test_a_list_that_is_not_read_to_its_end_is_let_go(gateway: FakeGateway) -> None:
    for number in range(5):
        gateway.put("notes", f"file:///{number}", b"text")
    with SyncClient(gateway.url, TOKEN) as client:
        documents = client.documents("notes")
        assert next(documents).container_id == "notes"
        documents.close()
        assert len(gateway.requests_to("GET .*documents")) == 1


def test_it_has_every_method() -> None:
    methods = {
        name
        for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods <= set(vars(SyncClient))
