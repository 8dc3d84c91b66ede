"""Arguments as models write them."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pydantic import ValidationError

from latent_gateway.mcp.hints import nearest
from latent_gateway.mcp.results import problems
from latent_gateway.mcp.tools.arguments import Arguments
from latent_gateway.mcp.tools.containers import DescribeArguments
from latent_gateway.mcp.tools.doc_search import DocSearchArguments
from latent_gateway.mcp.tools.document_list import OutlineArguments
from latent_gateway.mcp.tools.documents import DocumentArguments
from latent_gateway.mcp.tools.jobs import JobArguments
from latent_gateway.mcp.tools.page_image import PageArguments
from latent_gateway.mcp.tools.registry import PAIR, TOOLS
from latent_gateway.mcp.tools.search import SearchArguments

DOC = "0191d6c2-7a51-5c7e-9f10-3f2a9d4b8c11"


def read(arguments: type[Arguments], given: dict[str, Any]) -> dict[str, Any]:
    return arguments.model_validate(given).model_dump(exclude_unset=True)


@pytest.mark.parametrize("empty", ["", "  ", None])
def test_an_empty_argument_is_absent(empty: str | None) -> None:
    given = {"containers": "notes", "query": "x", "mode": empty, "filters": empty, "top_k": empty}
    assert read(SearchArguments, given) == {"containers": ["notes"], "query": "x"}
    with pytest.raises(ValidationError) as caught:
        read(OutlineArguments, {"doc_id": empty})
    assert problems(caught.value) == "'doc_id' is required"


@pytest.mark.parametrize(
    ("tool", "given", "meant"),
    [
        (SearchArguments, {"limit": 3}, {"top_k": 3}),
        (SearchArguments, {"k": "3"}, {"top_k": 3}),
        (SearchArguments, {"topK": 3.0}, {"top_k": 3}),
        (SearchArguments, {"mustTerms": "a b"}, {"must_terms": ["a b"]}),
        (SearchArguments, {"filter": '{"page": 3}'}, {"filters": {"page": 3}}),
        (
            SearchArguments,
            {"dedup": "false", "ignore-case": "True"},
            {"dedup": False, "ignore_case": True},
        ),
        (SearchArguments, {"types": '["code", "pdf"]'}, {"source_type": ["code", "pdf"]}),
        (
            DocSearchArguments,
            {"formats": "pdf", "top_k": "7"},
            {"source_type": ["pdf"], "limit": 7},
        ),
        (DescribeArguments, {"container": "notes"}, {"container_id": "notes"}),
        (DescribeArguments, {"containers": ["notes"]}, {"container_id": "notes"}),
        (JobArguments, {"id": "7", "timeout": "5"}, {"job_id": 7, "wait_seconds": 5}),
        (DocumentArguments, {"id": DOC}, {"doc_id": DOC}),
        (DocumentArguments, {"uri": f"document://{DOC}"}, {"doc_id": DOC}),
    ],
)
def test_other_names_and_shapes_are_understood(
    tool: type[Arguments], given: dict[str, Any], meant: dict[str, Any]
) -> None:
    searches = tool in (SearchArguments, DocSearchArguments)
    fixed = {"containers": ["notes"], "query": "x"} if searches else {}
    assert read(tool, {**fixed, **given}) == {**fixed, **meant}


def test_one_container_by_any_name_is_a_list() -> None:
    for name in ("containers", "container", "container_id", "collection"):
        for value in ("notes", ["notes"], '["notes"]'):
            assert read(SearchArguments, {name: value})["containers"] == ["notes"]


def test_a_name_of_a_field_is_never_an_alias_of_another() -> None:
    given = {"containers": ["notes"], "top_k": 3, "limit": 5}
    with pytest.raises(ValidationError) as caught:
        read(SearchArguments, given)
    assert "'limit' is not an argument" in problems(caught.value)


@pytest.mark.parametrize("tool", [*TOOLS, *PAIR], ids=lambda t: t.name)
def test_every_argument_is_accepted_by_its_own_name(tool: Any) -> None:
    for name in tool.arguments.model_fields:
        assert "is not an argument" not in refusal(tool.arguments, {name: 1})


def refusal(tool: type[Arguments], given: dict[str, Any]) -> str:
    """Why the arguments are refused; empty if they are not."""
    try:
        tool.model_validate(given)
    except ValidationError as exc:
        return problems(exc)
    return ""


@pytest.mark.parametrize("tool", [DocumentArguments, PageArguments])
def test_the_uri_of_a_page_names_the_page(tool: type[Arguments]) -> None:
    uri = f"page://{DOC}/88"
    assert read(tool, {"doc_id": uri}) == {"doc_id": DOC, "page": 88}
    assert read(tool, {"doc_id": uri, "page": 4}) == {"doc_id": DOC, "page": 4}


@pytest.mark.parametrize(
    ("given", "used", "note"),
    [
        ({"top_k": 500}, {"top_k": 100}, "top_k 500 is above the limit 100: 100 used"),
        ({"limit": "0"}, {"top_k": 1}, "top_k 0 is below the limit 1: 1 used"),
        ({"max_chars": 10}, {"max_chars": 1000}, "max_chars 10 is below the limit 1000: 1000 used"),
        ({"neighbours": 9}, {"neighbours": 5}, "neighbours 9 is above the limit 5: 5 used"),
    ],
)
def test_a_number_out_of_range_is_clamped_and_noted(
    given: dict[str, Any], used: dict[str, Any], note: str
) -> None:
    arguments = SearchArguments.model_validate({"containers": ["notes"], **given})
    assert arguments.notes == [note]
    assert used.items() <= arguments.model_dump().items()


def test_numbers_that_name_something_are_not_clamped() -> None:
    for tool, given in ((JobArguments, {"job_id": 0}), (PageArguments, {"doc_id": DOC, "page": 0})):
        with pytest.raises(ValidationError, match="greater than or equal to 1"):
            cast(Any, tool).model_validate(given)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("qury", "did you mean 'query'?"),
        ("container_idd", "did you mean 'containers'?"),
        ("zzz", "it takes containers, query, "),
    ],
)
def test_an_unknown_argument_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SearchArguments.model_validate({"containers": ["notes"], name: 1})
    message = problems(caught.value, list(SearchArguments.model_fields))
    assert message.startswith(f"'{name}' is not an argument of this tool; {hint}")


def test_the_nearest_container_is_found_by_id_and_by_name() -> None:
    class NamedContainer:
        def __init__(self, id_: str, name: str) -> None:
            self.id, self.manifest = id_, type("M", (), {"name": name})

    known: Any = [
        NamedContainer("team-notes", "Notes of the team"),
        NamedContainer("papers", "Papers"),
    ]
    assert nearest("team_notes", known) == "team-notes"
    assert nearest("notes of the Team", known) == "team-notes"
    assert nearest("paper", known) == "papers"
    assert nearest("quantum", known) is None
