"""Hits within a budget: whatever they hold, an answer fits, shows at least one, and stays JSON as declared."""

from __future__ import annotations

from typing import Any
from uuid import uuid5

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package of their own
import orjson
import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.ids import NAMESPACE
from latent_core.search.plan import offset_of
from latent_core.wire.search import (
    AlsoInDocument,
    Duplicate,
    Hit,
    Neighbour,
    PlaceView,
    Provenance,
    SearchRequest,
    SearchResponse,
)
from latent_gateway.mcp.compact import compact, cut, fit
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
            generation=1,
        ),
        meta={"note": words["meta"]},
        before=[Neighbour(chunk_id=doc_id, text=words["text"], place=place)],
        also_in_document=[AlsoInDocument(chunk_id=doc_id, score=0.1, place=place)],
        duplicates=[
            Duplicate(
                doc_id=doc_id, chunk_id=doc_id, title="t", source_uri="u", score=0.1, place=place
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
    for detail in ("brief", "full"):
        shown = compact(hit(1, words), detail).compact()
        assert "EVIL" in str(shown.pop("untrusted_content"))
        assert "EVIL" not in str(shown)


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
    assert first.top_k == 10
    assert first.requested_rerank_k is None
