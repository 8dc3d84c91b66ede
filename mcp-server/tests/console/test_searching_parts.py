"""Parts of the search pages that need no server: the form and its request, citations, the picture, answers as HTML."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from starlette.datastructures import QueryParams

from latent_core.domain.errors import Invalid
from latent_core.wire.search import (
    ContainerStatus,
    Diagnostics,
    Hit,
    PlaceView,
    Provenance,
    Reason,
    SearchRequest,
)
from latent_gateway.console.searching.answer_text import formatted
from latent_gateway.console.searching.citation import calls, citation
from latent_gateway.console.searching.form import SearchForm
from latent_gateway.console.searching.why import LEFT, RIGHT, picture

EVERYTHING = (
    "q=fog+horn&mode=lexical&age=30d&path=*.pdf&must=steam&since=2024-01-01&until=2024-12-31&c=a&c=b"
    "&type=pdf&type=markdown&lang=english&tag=x&tag=y&topic=valve"
)


def hit(**more: Any) -> Hit:
    fields: dict[str, Any] = {
        "container_id": "c",
        "doc_id": UUID(int=1),
        "chunk_id": UUID(int=2),
        "modality": "text",
        "source_type": "pdf",
        "block_type": "paragraph",
        "score": 0.5,
        "base_score": 0.5,
        "title": "On fog",
        "snippet": "Fog horns sound.",
        "rendered_snippet": "",
        "offsets": (0, 1),
        "place": PlaceView(page=7, heading_path="Part > Horns"),
        "source_path": "on fog.pdf",
        "source_uri": "file:///on fog.pdf",
        "cite_as": "p. 7",
        "provenance": Provenance(
            source_uri="u",
            handler="h",
            handler_version="1",
            embedder="e",
            embedder_version="1",
            generation=1,
        ),
    }
    return Hit(**(fields | more))


@pytest.mark.parametrize("address", [EVERYTHING, "q=a", "q=a&mode=hybrid", "must=x&tag=a"])
def test_an_address_is_the_same_search_after_it_was_saved(address: str) -> None:
    form = SearchForm.of(QueryParams(address))
    saved = SearchRequest.model_validate(form.kept())
    again = SearchForm.of_request(saved)
    assert again == form
    assert sorted(again.parameters()) == sorted(QueryParams(address).multi_items())
    assert SearchForm.of(QueryParams(urlencode(again.parameters()))) == form


@pytest.mark.parametrize(
    "more",
    [
        {"filters": {"meta.year": 2020}},
        {"filters": {"or": [{"meta.tags": "a"}]}},
        {"must_terms": ["a", "b"]},
        {"regexes": ["a"]},
        {"top_k": 20},
        {"filters": {"max_age": {"lte": "3d"}}},
        {"filters": {"source_type": "pdf"}},
    ],
)
def test_a_request_that_the_form_cannot_show_has_no_form(more: dict[str, Any]) -> None:
    request = SearchRequest.model_validate({"query": "a", "top_k": 10} | more)
    assert SearchForm.of_request(request) is None


def test_too_long_and_too_many_values_are_refused() -> None:
    with pytest.raises(Invalid, match="'q' has more than 8192 characters"):
        SearchForm.of(QueryParams(q="x" * 8193))
    with pytest.raises(Invalid, match="'tag' has too many values"):
        SearchForm.of(QueryParams([("tag", str(n)) for n in range(51)]))


def test_a_paper_is_cited_with_authors_year_and_page() -> None:
    found = citation(
        hit(
            title="Fog & 50 % {steam}",
            meta={"author": "Winter, Ada; Tide, Ben", "date": "1987-03-01"},
        ),
        "http://x/console/d",
    )
    assert found.bibtex == (
        "@misc{winter1987steam,\n"
        "  author = {Winter, Ada and Tide, Ben},\n"
        "  title = {{Fog \\& 50 \\% \\{steam\\}}},\n"
        "  year = {1987},\n"
        "  note = {p. 7},\n"
        "}"
    )
    assert found.plain == (
        "Winter, Ada, Tide, Ben. Fog & 50 % {steam} (1987), Part > Horns, p. 7. on fog.pdf"
    )


def test_a_citation_is_one_link_whatever_the_title_holds() -> None:
    found = citation(
        hit(title="a](http://evil) <b>\n![x]", source_uri="https://a.b/c d>e"), "http://x/"
    )
    assert found.markdown.startswith(r"[a\](http://evil) \<b\> !\[x\]](<https://a.b/c%20d%3Ee>)")
    assert "\n" not in found.markdown + found.plain
    assert found.bibtex is None


def test_calls_are_quoted_for_their_shell() -> None:
    made = calls({"query": "it's; $(rm -rf x)", "top_k": 10}, "http://h:1")
    assert "'\"'\"'" in made.curl
    assert 'query="it\'s; $(rm -rf x)"' in made.python


def test_the_picture_puts_first_places_left_and_missing_ones_at_the_end() -> None:
    diagnostics = Diagnostics(
        container_status=[
            ContainerStatus(container_id="c", ok=True, list_lengths={"bm25": 100, "vector": 50})
        ],
        influence={"c": {"bm25": 0.25, "vector": 0.75}},
    )
    why = [Reason(channel="bm25", rank=1, score=1.0)]
    drawn = picture(hit(why=why), "fog zeppelins the", ["english"], diagnostics)
    words, meaning = drawn.rows
    assert (words.x, words.words, words.share) == (LEFT, "place 1 of 100", 0.25)
    assert (meaning.x, meaning.words) == (RIGHT, "not among the first 50")
    assert [(one.text, one.count) for one in drawn.words] == [("fog", 1), ("zeppelins", 0)]


def test_an_answer_is_formatted_and_everything_else_is_escaped() -> None:
    text = (
        "# Head\nA **bold** `co<de>` [1] [9]\nline <b>\n\n- one [1]\n- two\n1. three\n```py\n<x> **no**\n```\n"
        r"an \`escaped\` tick"
    )
    cite = '<a class="cite" href="/p?a=1&amp;b=2" data-swap="#panel" aria-label="Source 1">1</a>'
    assert formatted(text, {1: "/p?a=1&b=2"}).split("\n") == [
        "<h3>Head</h3>",
        f"<p>A <strong>bold</strong> <code>co&lt;de&gt;</code> {cite} [9]",
        "line &lt;b&gt;</p>",
        f"<ul><li>one {cite}</li><li>two</li><li>three</li></ul>",
        '<pre tabindex="0"><code>&lt;x&gt; **no**</code></pre>',
        "<p>an `escaped` tick</p>",
    ]
