"""This release starts on an installation that the previous one filled (`make upgrade-trial` also tries the way back)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from latent_client import SyncClient
from latent_core.db.migrate import head_revision
from latent_core.domain.errors import Forbidden
from latent_core.wire.containers import ContainerState
from latent_core.wire.search import SearchRequest
from tests.support.harness.throwaway import TemporaryInstallation, throwaway
from tests.support.upgrades import (
    CONTAINER,
    QUERIES,
    TEXTS,
    Facts,
    documents,
    facts_in,
    latent,
    unpack,
)


@pytest.fixture(scope="module")
def upgraded() -> Iterator[TemporaryInstallation]:
    with throwaway(prepare=unpack) as installation:
        yield installation


@pytest.fixture(scope="module")
def facts(upgraded: TemporaryInstallation) -> Facts:
    return facts_in(upgraded.folder)


def test_the_database_is_migrated_and_the_log_names_the_revisions(
    upgraded: TemporaryInstallation,
) -> None:
    [line] = [line for line in upgraded.tail(400).splitlines() if "database_migrated" in line]
    assert head_revision() in line
    assert "0001_initial" not in line


def test_documents_are_found_as_before_without_being_read_again(
    upgraded: TemporaryInstallation, facts: Facts
) -> None:
    with SyncClient(upgraded.url, upgraded.token) as owner:
        for query in QUERIES:
            answer = owner.search(SearchRequest(containers=[CONTAINER], query=query, top_k=10))
            now = [str(hit.chunk_id) for hit in answer.hits]
            assert now[0] == facts.hits[query][0], query
            assert set(now) <= set(facts.hits[query]), query


def test_a_token_reads_as_before_and_may_do_no_more(
    upgraded: TemporaryInstallation, facts: Facts
) -> None:
    with SyncClient(upgraded.url, facts.secret) as guide:
        answer = guide.search(SearchRequest(query="oil", top_k=3))
        assert {hit.container_id for hit in answer.hits} == {CONTAINER}
        assert answer.hits[0].page_uri is not None
        assert guide.fetch(answer.hits[0].page_uri).content.startswith(b"RIFF")
        with pytest.raises(Forbidden):
            guide.set_state(CONTAINER, ContainerState.ARCHIVED)


def test_doctor_finds_no_difference_and_the_backup_is_restored(
    upgraded: TemporaryInstallation, facts: Facts
) -> None:
    assert latent(upgraded, "doctor", "--deep")["clean"]
    latent(upgraded, "backup", "restore", str(facts.backup), "--as", "notes-then")


def test_the_folder_is_synced_into_the_same_documents(upgraded: TemporaryInstallation) -> None:
    latent(upgraded, "ingest", documents(upgraded.folder), "-c", CONTAINER, "--wait")
    listed = latent(upgraded, "documents", "list", "-c", CONTAINER)["documents"]
    assert {one["source_uri"] for one in listed} == {f"file:///lighthouse/{name}" for name in TEXTS}
    assert {one["state"] for one in listed} == {"live"}
    assert latent(upgraded, "doctor")["clean"]
