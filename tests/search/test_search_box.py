"""What people expect of a search box: completion of the last word, and correction of words that are in no text."""

from __future__ import annotations

from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from latent_client import AsyncClient
from latent_core.wire.search import SearchRequest, SearchResponse, StageScore
from tests.http.test_http_surface import ingest, manifest
from tests.support.harness.installation import Installation
from tests.support.servers.embedding_server import EmbeddingServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXTS: Final = {
    "harbour.txt": "The harbour master lights the lantern and logs every schooner at dusk.",
    "harbinger.txt": "A harbinger of storms, the petrel circles the breakwater.",
    "auth.md": "Authentication needs a verifier: call getUserName before the rotation of keys.",
    "lanterns.txt": "Lanterns, lanterns and a lantern hang in the chandlery.",
    "theory.txt": "The theory of tides explains the spring and the neap.",
}
GERMAN: Final = "Der Leuchtturm steht am Hafen, und das Licht ist in der Nacht nicht zu sehen."


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def stocked(installation: Installation) -> None:
    async with installation.client() as client:
        await client.create(manifest("port"))
        await client.create(manifest("hafen"))
        for name, text in TEXTS.items():
            await ingest(client, "port", name, text.encode())
        await ingest(client, "hafen", "leuchtturm.txt", GERMAN.encode())


async def search(client: AsyncClient, query: str, **more: Any) -> SearchResponse:
    request = {"containers": ["port"], "top_k": 10, "mode": "lexical", **more}
    for _ in range(20):
        answer = await client.search(SearchRequest(query=query, **request))
        if not answer.partial:
            return answer
    raise AssertionError(f"no whole answer: {answer.issues}")


def paths(answer: SearchResponse) -> set[str]:
    return {hit.source_path for hit in answer.hits}


def marked(answer: SearchResponse) -> set[str]:
    return {hit.snippet[start:end] for hit in answer.hits for start, end in hit.highlights}


@pytest.mark.parametrize(
    ("query", "found", "words"),
    [
        ("harb", {"harbour.txt", "harbinger.txt"}, {"harbour", "harbinger"}),
        ("harbo", {"harbour.txt"}, {"harbour"}),
        ("AUTHENTICA", {"auth.md"}, {"Authentication"}),
        ("getUserNa", {"auth.md"}, {"getUserName"}),
        ("the", {"theory.txt"}, {"theory"}),
        ("petrel lan", {"harbinger.txt", "harbour.txt", "lanterns.txt"}, {"petrel", "lantern", "Lanterns", "lanterns"}),
        ("tides sp", {"theory.txt"}, {"tides", "spring"}),
        ("zz", set(), set()),
    ],
)  # fmt: skip
async def test_the_last_word_matches_the_words_that_begin_with_it_and_they_are_highlighted(
    client: AsyncClient, query: str, found: set[str], words: set[str]
) -> None:
    answer = await search(client, query, as_you_type=True)
    assert paths(answer) == found
    assert marked(answer) == words
    assert [issue.code for issue in answer.issues] == ([] if found else ["NO_HITS"])


@pytest.mark.parametrize("query", ["harb ", "harb lantern", '"harb"', "harb,"])
async def test_only_a_last_word_that_ends_the_query_is_a_beginning(
    client: AsyncClient, query: str
) -> None:
    answer = await search(client, query, as_you_type=True)
    assert "harbinger.txt" not in paths(answer)
    assert not paths(await search(client, "harb"))


async def test_half_a_word_is_not_embedded_and_a_whole_one_is(
    client: AsyncClient, embedding_server: EmbeddingServer
) -> None:
    requests = embedding_server.stats.requests
    answer = await search(client, "harb", as_you_type=True, mode="hybrid", diagnostics=True)
    assert paths(answer) == {"harbour.txt", "harbinger.txt"}
    assert embedding_server.stats.requests == requests
    for query in ("petrel storms har", "petrel storms harb", "petrel storms harbi"):
        answer = await search(client, query, as_you_type=True, mode="hybrid", diagnostics=True)
        assert answer.diagnostics is not None
        assert answer.diagnostics.stage_scores["vector"]
    assert embedding_server.stats.requests == requests + 1, "the same complete words"
    await search(client, "petrel storms harbinger", as_you_type=True, mode="hybrid")
    assert embedding_server.stats.requests == requests + 2
    assert (await search(client, "harb", as_you_type=True, mode="semantic")).hits
    assert embedding_server.stats.requests == requests + 3


async def test_by_meaning_alone_half_a_word_is_ignored_and_a_whole_one_counts(
    client: AsyncClient,
) -> None:
    async def cosines(query: str, *, typing: bool) -> list[StageScore]:
        found = await search(client, query, as_you_type=typing, mode="semantic", diagnostics=True)
        assert found.diagnostics is not None
        return found.diagnostics.stage_scores["vector"]

    assert await cosines("schooner lan", typing=True) == await cosines("schooner ", typing=False)
    whole = await cosines("schooner lantern", typing=False)
    assert await cosines("schooner lantern", typing=True) == whole


async def test_filters_facets_and_several_containers_hold_while_typing(client: AsyncClient) -> None:
    answer = await search(
        client,
        "lan",
        as_you_type=True,
        filters={"path": "l*.txt"},
        facets=["source_type"],
        containers=["port", "hafen"],
    )
    assert paths(answer) == {"lanterns.txt"}
    assert answer.facets["source_type"].documents == 1
    both = await search(client, "ha", as_you_type=True, containers=["port", "hafen"])
    assert {"leuchtturm.txt", "harbour.txt"} <= paths(both)


@pytest.mark.parametrize(
    ("query", "word", "searched", "found"),
    [
        ("harbuor", "harbuor", "harbour", {"harbour.txt"}),
        ("Schoner", "Schoner", "schooner", {"harbour.txt"}),
        ("schoonner", "schoonner", "schooner", {"harbour.txt"}),
        ("authentcation", "authentcation", "authentication", {"auth.md"}),
        ("petrol circles", "petrol", "petrel", {"harbinger.txt"}),
    ],
)
async def test_a_word_that_is_in_no_text_is_searched_at_one_edit_and_the_answer_says_so(
    client: AsyncClient, query: str, word: str, searched: str, found: set[str]
) -> None:
    for mode in ("lexical", "hybrid"):
        answer = await search(client, query, mode=mode)
        assert answer.hits[0].source_path in found
        (issue,) = answer.issues
        assert (issue.code, issue.details) == ("NO_HITS", {"word": word, "searched": searched})
        assert issue.message == f"No text contains '{word}'; searched '{searched}' instead."
        assert searched in {shown.casefold() for shown in marked(answer)}
    typed = await search(client, query, as_you_type=True)
    assert paths(typed) == found


@pytest.mark.parametrize(
    "query",
    [
        "lanter7",  # digits
        "getUserNme",  # an identifier
        '"harbuor master"',  # a phrase
        "dask",  # four letters
        "hrabuor",  # two edits
        "zeppelin",
        "lanternic",  # no text has a word at one edit, only its stem
    ],
)
async def test_names_phrases_and_short_words_are_searched_as_they_are(
    client: AsyncClient, query: str
) -> None:
    answer = await search(client, query)
    assert not any("searched" in issue.details for issue in answer.issues)


async def test_a_word_of_another_searched_container_is_not_corrected(client: AsyncClient) -> None:
    alone = await search(client, "laterns")
    assert alone.issues[0].details["searched"] == "lanterns"
    await client.create(manifest("names"))
    await ingest(client, "names", "laterns.txt", b"Laterns & Sons, ship chandlers.")
    both = await search(client, "laterns", containers=["port", "names"])
    assert paths(both) == {"laterns.txt"}
    assert not both.issues


async def test_exact_terms_are_never_corrected(http: httpx.AsyncClient) -> None:
    body = {"containers": ["port"], "must_terms": ["harbuor"], "top_k": 5}
    answer = (await http.post("/v1/search", json=body)).json()
    assert not answer["hits"]
    assert [issue["details"] for issue in answer["issues"]] == [{}]
