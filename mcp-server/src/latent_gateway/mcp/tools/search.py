"""``containers_search``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import orjson
from pydantic import BeforeValidator, Field, ValidationError

from latent_core.domain.errors import Invalid, IssueCode
from latent_core.domain.manifest.model import SearchMode
from latent_core.domain.text import Text
from latent_core.search.plan import cursor_at, offset_of
from latent_core.wire.search import (
    MAX_CONTAINERS,
    MAX_FACETS,
    MAX_NEIGHBOURS,
    MAX_PASSAGES,
    MAX_PATTERNS,
    MAX_QUERY_CHARS,
    MAX_TOP_K,
    Detail,
    Hit,
    LikeReference,
    Pattern,
    SearchRequest,
    SearchResponse,
    SourceTypes,
)
from latent_gateway.api.search import find
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.compact import ToolSearchResult, facet_content, fit
from latent_gateway.mcp.results import (
    DEFAULT_CHARS,
    MAX_CHARS,
    MIN_CHARS,
    issue_summary,
    problems,
    size,
)
from latent_gateway.mcp.tools.arguments import CLAMPED, UNLISTED
from latent_gateway.mcp.tools.port import UNTRUSTED, Arguments, Cursor, Tool

DEFAULT_TOP_K: Final = 10
DEFAULT_PASSAGES: Final = 3
DEFAULT_BUDGETS: Final[Mapping[Detail, int]] = {"brief": 6_000, "full": DEFAULT_CHARS}
"""``max_chars`` of an answer that sets none."""
MAX_ISSUES: Final = 3
MAX_CURSOR_CHARS: Final = 32
OWN: Final = frozenset({"detail", "max_chars"})
"""Arguments about the answer, not the query: they may differ from the previous page."""
NOTHING: Final = (
    "Use other or fewer words, mode 'semantic' for a meaning or 'lexical' for exact words, fewer must_terms and "
    "filters, a lower min_score, or other containers."
)
WEAK: Final = "All hits are weak: these containers may hold no answer. Do not state what the passages do not say."
MORE: Final = "More: next_cursor with the same arguments; documents_get reads a document, page_image shows a page."


def _list(value: Any) -> Any:
    """A list from a string, as some models send it."""
    if not isinstance(value, str):
        return value
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError:
        return [value]
    return parsed if isinstance(parsed, list) else [value]


Listed = BeforeValidator(_list)


def _reference(value: Any) -> Any:
    """A document from its id or the uri of a hit."""
    if not isinstance(value, str) or value.startswith("{"):
        return value
    return {"doc_id": value.partition("://")[2].partition("/")[0] or value}


class SearchArguments(Arguments):
    containers: Annotated[
        Annotated[list[Text], Field(min_length=1, max_length=MAX_CONTAINERS)] | None,
        Listed,
        Field(description="Ids. Default: all you may read."),
    ] = None
    query: Annotated[
        str,
        Field(max_length=MAX_QUERY_CHARS, description="A question, or words of the passage."),
    ] = ""
    image_ref: Annotated[
        Text | None,
        Field(
            max_length=200,
            description="Search by an image: id of an upload or a document, or page://<doc_id>/<page>.",
        ),
    ] = None
    top_k: Annotated[
        int,
        Field(ge=1, le=MAX_TOP_K, description="Documents per answer, 1 to 100, default 10."),
        CLAMPED,
    ] = DEFAULT_TOP_K
    mode: Annotated[
        SearchMode | None,
        Field(
            description="Default: the container's own.",
        ),
    ] = None
    filters: Annotated[
        dict[str, Any],
        Field(description='Such as {"meta.year": {"gte": 2020}}.'),
    ] = {}
    source_type: Annotated[
        SourceTypes,
        Listed,
        Field(description="Such as code.", json_schema_extra={"items": {"type": "string"}}),
    ] = []
    must_terms: Annotated[
        list[Pattern],
        Listed,
        Field(max_length=MAX_PATTERNS, description="Substrings that every hit contains."),
    ] = []
    regexes: Annotated[
        list[Pattern],
        Listed,
        Field(max_length=MAX_PATTERNS, description="RE2; every hit matches one."),
    ] = []
    path_like: Annotated[Pattern | None, Field(description="Glob or part of the source path.")] = (
        None
    )
    ignore_case: Annotated[bool, Field(description="For must_terms and regexes.")] = False
    rerank_k: Annotated[
        int | None, Field(ge=1, le=1000, description="Candidates of mode rerank."), CLAMPED
    ] = None
    dedup: Annotated[bool, Field(description="Collapse near-duplicates; default true.")] = True
    passages: Annotated[
        int,
        Field(ge=1, le=MAX_PASSAGES, description="Hits per document, 1 to 5, default 3."),
        CLAMPED,
    ] = DEFAULT_PASSAGES
    include_superseded: Annotated[
        bool, Field(description="Also outdated versions; default false.")
    ] = False
    neighbours: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_NEIGHBOURS,
            description="Passages around each hit, 0 to 5, default 0.",
        ),
        CLAMPED,
    ] = 0
    detail: Annotated[
        Detail,
        Field(description="brief (default) or full: whole passages, meta, scores, image links."),
    ] = "brief"
    max_chars: Annotated[
        int | None,
        Field(
            ge=MIN_CHARS,
            le=MAX_CHARS,
            description="1000 to 60000; default 6000, full 10000.",
        ),
        CLAMPED,
    ] = None
    cursor: Annotated[Cursor, Field(description="next_cursor of the previous answer.")] = None
    generated: Annotated[bool, UNLISTED] = True
    like: Annotated[LikeReference | None, BeforeValidator(_reference), UNLISTED] = None
    min_score: Annotated[float | None, UNLISTED, Field(ge=0, le=1), CLAMPED] = None
    mark_weak: Annotated[bool | None, UNLISTED] = None
    facets: Annotated[list[Pattern], Listed, UNLISTED, Field(max_length=MAX_FACETS)] = []

    def request(self) -> SearchRequest:
        """The search request; ``Invalid`` for what only the service can check."""
        given_arguments = self.model_dump(exclude=set(OWN), exclude_unset=True, exclude_none=True)
        try:
            return SearchRequest.model_validate(
                {
                    "top_k": DEFAULT_TOP_K,
                    "passages": DEFAULT_PASSAGES,
                    "diagnostics": False,
                    **given_arguments,
                }
            )
        except ValidationError as exc:
            raise Invalid(problems(exc)) from exc


async def search(call: ToolCall, arguments: SearchArguments) -> ToolSearchResult:
    request, detail = arguments.request(), arguments.detail
    answer = await find(request, call.shared, call.caller, call.request_id, call.links)
    return found(request, answer, detail, arguments.max_chars or DEFAULT_BUDGETS[detail])


def found(
    request: SearchRequest, answer: SearchResponse, detail: Detail, max_chars: int
) -> ToolSearchResult:
    """The answer within its budget; hits that do not fit are on the next page."""
    issues = [one for one in answer.issues if one.code is not IssueCode.NO_HITS or one.details]
    weak = bool(answer.hits) and all(hit.weak for hit in answer.hits)
    more = f"{WEAK} {MORE}" if weak else MORE
    frame = ToolSearchResult(
        hits=[],
        notice=UNTRUSTED,
        truncated=True,
        next_cursor="_" * MAX_CURSOR_CHARS,
        partial=answer.partial,
        issues=[issue_summary(issue) for issue in issues[:MAX_ISSUES]],
        facets={name: facet_content(facet) for name, facet in answer.facets.items()},
        advice=more,
    )
    fitted = fit(answer.hits, detail, max_chars - size(frame.compact()))
    next_cursor = answer.next_cursor
    shown = _places(request, answer.hits[: len(fitted.hits)])
    if shown < _places(request, answer.hits):
        next_cursor = cursor_at(request, offset_of(request) + shown)
    advice = more if next_cursor or fitted.truncated else WEAK if weak else None
    return frame.model_copy(
        update={
            "hits": fitted.hits,
            "truncated": fitted.truncated,
            "next_cursor": next_cursor,
            "advice": advice if fitted.hits else NOTHING,
        }
    )


def _places(request: SearchRequest, hits: Sequence[Hit]) -> int:
    """How many places of the ranking the hits take: the passages of a document take one."""
    return len({hit.doc_id for hit in hits}) if request.dedup else len(hits)


SEARCH: Final = Tool(
    name="containers.search",
    title="Search containers",
    description=(
        "Find passages in containers (collections of the user's documents) by meaning and by exact words, with source "
        "and page or lines to cite."
    ),
    scope=Scope.READ,
    arguments=SearchArguments,
    answer=ToolSearchResult,
    run=search,
)
