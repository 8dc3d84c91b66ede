"""Hits within a budget: whatever they hold, an answer fits, shows at least one, and stays JSON as declared."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid5

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import orjson
import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.errors import Issue, IssueCode
from latent_core.domain.generated import GeneratedBy, GeneratedKind
from latent_core.domain.ids import NAMESPACE
from latent_core.search.plan import offset_of
from latent_core.wire.search import (
    AlsoInDocument,
    Duplicate,
    Hit,
    Neighbour,
    PlaceView,
    Provenance,
    Reason,
    SearchRequest,
    SearchResponse,
)
from latent_gateway.mcp.compact import MAX_WHOLE_BYTES, brief, cut, fit, full
from latent_gateway.mcp.results import MIN_CHARS, size
from latent_gateway.mcp.tools.registry import PAIR, TOOLS
from latent_gateway.mcp.tools.schema import answer_schema_of, schema_of
from latent_gateway.mcp.tools.search import SearchArguments, found

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=300)
LONG = st.builds(lambda text, times: text * times, WORDS, st.integers(1, 60))


def hit(number: int, words: dict[str, Any]) -> Hit:
    place = PlaceView(page=number, line_start=1, line_end=9, heading_path=words["heading"])
    doc_id = uuid5(NAMESPACE, str(number))
    return Hit(
        container_id="notes",
        doc_id=doc_id,
        chunk_id=doc_id,
        modality="text",
        source_type="markdown",
        block_type="paragraph",
        score=1.0 / (number + 1),
        base_score=0.5,
        title=words["title"],
        snippet=words["snippet"],
        rendered_snippet=words["snippet"],
        text=words["text"],
        page_uri="http://127.0.0.1:7801/v1/blobs/x?sig=y",
        page_image="ready",
        offsets=(0, 1),
        place=place,
        source_path=words["source"],
        source_uri=f"file:///{words['source']}",
        provenance=Provenance(
            source_uri="x",
            handler="h",
            handler_version="1",
            embedder="e",
            embedder_version="1",
            page=number,
            generation=1,
        ),
        meta={"note": words["meta"]},
        before=[Neighbour(chunk_id=doc_id, text=words["text"], place=place)],
        also_in_document=[AlsoInDocument(chunk_id=doc_id, score=0.1, place=place)],
        duplicates=[
            Duplicate(
                container_id="notes",
                doc_id=doc_id,
                chunk_id=doc_id,
                title="t",
                source_uri="u",
                score=0.1,
                place=place,
            )
        ],
    )


PARTS = {
    "title": WORDS,
    "source": WORDS,
    "heading": WORDS,
    "snippet": WORDS,
    "text": LONG,
    "meta": LONG,
}
HITS = st.lists(st.fixed_dictionaries(PARTS), min_size=1, max_size=8).map(
    lambda all_: [hit(number, words) for number, words in enumerate(all_)]
)


@settings(max_examples=60, deadline=None)
@given(HITS, st.sampled_from(["brief", "full"]), st.integers(MIN_CHARS, 20_000))
def test_an_answer_fits_its_budget_and_the_next_page_begins_where_it_ends(
    hits: list[Hit], detail: Any, max_chars: int
) -> None:
    request = SearchRequest(containers=["notes"], query="x", top_k=8)
    answer = found(request, SearchResponse(hits=hits), detail, max_chars)
    content = answer.compact()
    assert size(content) <= max_chars
    assert 1 <= len(answer.hits) <= len(hits)
    assert [h.doc_id for h in answer.hits] == [str(h.doc_id) for h in hits[: len(answer.hits)]]
    if len(answer.hits) < len(hits):
        assert answer.truncated
        next_page = request.model_copy(update={"cursor": answer.next_cursor})
        assert offset_of(next_page) == len(answer.hits)
    else:
        assert answer.next_cursor is None
    jsonschema.validate(orjson.loads(orjson.dumps(content)), answer_schema_of(type(answer)))


@given(HITS)
def test_what_fits_is_shown_whole(hits: list[Hit]) -> None:
    fitted = fit(hits, "full", 10_000_000)
    assert not fitted.truncated
    assert [h.untrusted_content.text for h in fitted.hits] == [h.text for h in hits]


@given(LONG, st.integers(0, 2_000))
def test_a_cut_text_is_a_beginning_that_fits(text: str, max_bytes: int) -> None:
    short = cut(text, max_bytes)
    assert size(short) - 2 <= max(max_bytes, 0) or short == text == ""
    assert short == text or text.startswith(short.removesuffix("..."))


def test_words_of_the_document_stand_in_one_field() -> None:
    words = dict.fromkeys(PARTS, "EVIL")
    for whole in (full(hit(1, words)), brief(hit(1, words), MAX_WHOLE_BYTES)):
        shown = whole.compact()
        assert "EVIL" in str(shown.pop("untrusted_content"))
        assert "EVIL" not in str(shown)


CITED = {"container_id", "doc_id", "page", "lines", "untrusted_content"}


def test_a_brief_hit_has_what_a_citation_needs_and_a_full_one_everything() -> None:
    words = {name: f"the {name}" for name in PARTS}
    shown = brief(hit(3, words), MAX_WHOLE_BYTES).compact()
    assert set(shown) == CITED
    assert (shown["page"], shown["lines"]) == (3, [1, 9])
    assert shown["untrusted_content"] | {"before": []} == {
        "title": "the title",
        "source": "the source",
        "section": "the heading",
        "snippet": "the text",
        "before": [],
    }
    more = {"chunk_id", "score", "uri", "source_type", "page_uri", "duplicates", "page_image"}
    assert set(full(hit(3, words)).compact()) > CITED | more


def test_the_page_of_a_hit_is_that_of_its_best_match() -> None:
    found = hit(2, {name: f"the {name}" for name in PARTS})
    found.place.page_end = 4
    found.provenance.page = 3
    shown = full(found)
    assert (shown.page, shown.page_end) == (3, 4)
    assert shown.uri == f"page://{found.doc_id}/3"
    found.provenance.page = 4
    assert (full(found).page, full(found).page_end) == (4, None)


def test_reasons_name_the_terms_and_patterns_that_matched_with_their_lines_and_page() -> None:
    found_by = [
        Reason(channel="bm25", rank=1, score=9.5),
        Reason(channel="exact", rank=1, score=3.0, term="Argand", count=2, lines=[4, 7], page=3),
        Reason(channel="exact", rank=1, score=3.0, regex="lamp.*", count=1, page=3),
    ]
    one = hit(3, dict.fromkeys(PARTS, "x")).model_copy(update={"why": found_by})
    exact = [
        {"term": "Argand", "count": 2, "lines": [4, 7], "page": 3},
        {"regex": "lamp.*", "count": 1, "page": 3},
    ]
    assert brief(one, 1000).compact()["why"] == exact
    assert full(one).compact()["why"] == [*exact, {"channel": "bm25"}]


def test_the_first_passages_are_whole_and_the_later_ones_parts_around_the_words() -> None:
    texts = [f"{n} begins. " + f"Filler {n} fills. " * 60 + f"The needle {n}." for n in range(9)]
    hits = [
        hit(n, dict.fromkeys(PARTS, "x") | {"text": text, "snippet": f"The needle {n}."})
        for n, text in enumerate(texts)
    ]
    hits = [one.model_copy(update={"before": []}) for one in hits]
    shown = [one.untrusted_content.snippet for one in fit(hits, "brief", 6_000).hits]
    whole = [snippet == text for snippet, text in zip(shown, texts, strict=False)]
    assert whole == sorted(whole, reverse=True)
    assert whole[:2] == [True, True]
    assert whole.count(False) >= 3
    for n, snippet in enumerate(shown[:-1]):
        assert f"The needle {n}." in snippet


def test_what_the_budget_leaves_makes_the_later_passages_longer() -> None:
    text = "Filler fills. " * 100 + "The needle."
    hits = [
        hit(n, dict.fromkeys(PARTS, "x") | {"text": text, "snippet": "The needle."}).model_copy(
            update={"before": []}
        )
        for n in range(3)
    ]
    assert [one.untrusted_content.snippet for one in fit(hits, "brief", 6_000).hits] == [text] * 3


@pytest.mark.parametrize("tool", [*TOOLS, *PAIR], ids=lambda t: t.name)
def test_schemas_are_valid_and_without_unions_references_or_null(tool: Any) -> None:
    schemas = [schema_of(tool.arguments), *([answer_schema_of(tool.answer)] if tool.answer else [])]
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        written = orjson.dumps(schema).decode()
        assert not any(
            key in written for key in ('"$ref"', '"$defs"', '"anyOf"', '"oneOf"', '"null"')
        )


def test_a_page_may_be_requested_with_another_budget_than_the_one_before() -> None:
    base_arguments = {"containers": ["notes"], "query": "x"}
    first = SearchArguments.model_validate({**base_arguments, "max_chars": 1000}).request()
    second = SearchArguments.model_validate({**base_arguments, "detail": "full"}).request()
    assert first == second
    assert (first.top_k, first.passages) == (10, 3)
    assert first.requested_rerank_k is None


def plain_hit(number: int, **more: Any) -> Hit:
    words = dict.fromkeys(("heading", "title", "snippet", "text", "source", "meta"), "fog")
    return hit(number, words).model_copy(update=more)


def test_a_hit_that_a_model_wrote_says_so_in_brief_and_in_full() -> None:
    by = GeneratedBy(
        kind=GeneratedKind.PAGE,
        model="lab/reader",
        prompt_version="2",
        created_at=datetime(2026, 11, 24, tzinfo=UTC),
    )
    for shown in (brief(plain_hit(1, generated=by), 500), full(plain_hit(1, generated=by))):
        assert shown.compact()["generated"] == {
            "kind": "page",
            "model": "lab/reader",
            "prompt_version": "2",
            "created_at": "2026-11-24T00:00:00Z",
        }
    assert "generated" not in brief(plain_hit(1), 500).compact()


def test_a_brief_hit_says_weak_only_if_it_is_and_a_full_one_its_relevance() -> None:
    strong, weak = plain_hit(1, relevance=0.9), plain_hit(2, relevance=0.2, weak=True)
    assert "weak" not in brief(strong, 500).compact()
    assert "relevance" not in brief(strong, 500).compact()
    assert brief(weak, 500).compact()["weak"] is True
    assert full(strong).compact()["relevance"] == 0.9


def test_an_answer_of_weak_hits_alone_warns_the_model_and_one_with_a_strong_hit_does_not() -> None:
    request = SearchRequest(query="fog", top_k=2)
    strong, weak = plain_hit(1, relevance=0.9), plain_hit(2, relevance=0.2, weak=True)
    warned = found(request, SearchResponse(hits=[weak]), "brief", 6_000).compact()
    assert "may hold no answer" in warned["advice"]
    silent = found(request, SearchResponse(hits=[strong, weak]), "brief", 6_000).compact()
    assert "advice" not in silent


def test_a_model_may_set_a_min_score_and_learns_what_the_best_hit_had() -> None:
    assert (
        SearchArguments.model_validate({"query": "fog", "min_score": "0.6"}).request().min_score
        == 0.6
    )
    issue = Issue(code=IssueCode.NO_HITS, message="None reaches it.", details={"best_below": 0.3})
    request = SearchRequest(query="fog", top_k=2, min_score=0.6)
    answer = found(request, SearchResponse(issues=[issue]), "brief", 6_000).compact()
    assert [one["message"] for one in answer["issues"]] == ["None reaches it."]
    assert "lower min_score" in answer["advice"]
