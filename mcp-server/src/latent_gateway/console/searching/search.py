"""The search page: a form whose values are in the address, and the answer below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import urlencode

from fastapi import Request, Response
from pydantic import ValidationError
from starlette.datastructures import QueryParams

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import Invalid, Issue, LatentError
from latent_core.domain.manifest.model import OFFERED_MODES, SearchMode
from latent_core.wire.search import (
    MAX_CONTAINERS,
    MAX_PATTERN_CHARS,
    MAX_QUERY_CHARS,
    SearchRequest,
    SearchResponse,
)
from latent_gateway.api.search import find
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import page, wants_part
from latent_gateway.context import Shared

HITS: Final = 10
MAX_ID_CHARS: Final = 64
MAX_DATE_CHARS: Final = 32
MAX_CURSOR_CHARS: Final = 128


@dataclass(frozen=True, slots=True)
class SearchForm:
    """The values of the form."""

    query: str = ""
    containers: tuple[str, ...] = ()
    """Without any: all containers that the user may read."""
    mode: str = ""
    types: tuple[str, ...] = ()
    path: str = ""
    must: str = ""
    since: str = ""
    until: str = ""
    explain: bool = False
    cursor: str = ""

    @classmethod
    def of(cls, given: QueryParams) -> Self:
        def one(name: str, max_chars: int) -> str:
            value = given.get(name, "").strip()
            if len(value) > max_chars:
                raise Invalid(f"'{name}' has more than {max_chars} characters: shorten it")
            return value

        def several(name: str, max_chars: int) -> tuple[str, ...]:
            values = tuple(dict.fromkeys(v for v in given.getlist(name) if v))
            if len(values) > max_chars or any(len(v) > MAX_ID_CHARS for v in values):
                raise Invalid(f"'{name}' has too many values: choose at most {max_chars}")
            return values

        return cls(
            query=one("q", MAX_QUERY_CHARS),
            containers=several("c", MAX_CONTAINERS),
            mode=one("mode", MAX_ID_CHARS),
            types=several("type", len(SourceType)),
            path=one("path", MAX_PATTERN_CHARS),
            must=one("must", MAX_PATTERN_CHARS),
            since=one("since", MAX_DATE_CHARS),
            until=one("until", MAX_DATE_CHARS),
            explain=given.get("explain") == "1",
            cursor=one("cursor", MAX_CURSOR_CHARS),
        )

    @property
    def nothing(self) -> bool:
        """Nothing to search for: only the form is shown."""
        return not (self.query or self.must)

    @property
    def narrowed(self) -> bool:
        """Whether one of the further fields is set; they are then shown open."""
        return bool(self.types or self.path or self.must or self.since or self.until)

    def request(self) -> SearchRequest:
        """The search request; ``Invalid`` names the field with the error."""
        search_fields: dict[str, Any] = {
            "containers": list(self.containers) or None,
            "query": self.query,
            "top_k": HITS,
            "explain": self.explain,
            "diagnostics": True,
            "filters": self._filters(),
            "must_terms": [self.must] if self.must else [],
            "path_like": self.path or None,
            "cursor": self.cursor or None,
        }
        if self.mode:
            search_fields["mode"] = self.mode
        try:
            return SearchRequest.model_validate(search_fields)
        except ValidationError as exc:
            message = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
            raise Invalid(message) from exc

    def _filters(self) -> dict[str, Any]:
        """Filters. Dates are whole days in UTC, both included."""
        days = {"gte": self.since, "lte": self.until}
        modified = {op: day for op, day in days.items() if day}
        filters: dict[str, Any] = {"source_type": list(self.types)} if self.types else {}
        return filters | ({"modified": modified} if modified else {})

    def parameters(self, **other: str) -> list[tuple[str, str]]:
        """The parameters of an address with the same search, with ``other`` fields replaced."""
        fields = {
            "q": self.query,
            "mode": self.mode,
            "path": self.path,
            "must": self.must,
            "since": self.since,
            "until": self.until,
            "explain": "1" if self.explain else "",
        } | other
        several = [("c", c) for c in self.containers] + [("type", t) for t in self.types]
        return [(name, value) for name, value in fields.items() if value] + several


MODES: Final = {
    SearchMode.HYBRID: "Meaning and words",
    SearchMode.SEMANTIC: "Meaning only",
    SearchMode.LEXICAL: "Words only",
    SearchMode.RERANK: "Reranked",
    SearchMode.CROSSMODAL: "Pages and pictures",
}
"""The offered modes that users may choose."""
CHOICES: Final = tuple((m.value, MODES.get(m, m.value)) for m in OFFERED_MODES)
TYPES: Final = tuple(t.value for t in SourceType)


router = pages()


@router.get("/console/search")
async def search(request: Request, shared: Shared, session: SignedIn) -> Response:
    """Search with the address alone: it can be saved, shared and read without scripts."""
    form = SearchForm.of(request.query_params)
    async with shared.stack.db.reading() as conn:
        readable = await access.all_searchable(conn, session.principal)
    answer, trouble, status = None, None, 200
    if not form.nothing and (form.containers or readable):
        try:
            answer = await find(
                form.request(), shared, session.principal, session.request_id, session.links
            )
        except LatentError as error:
            trouble, status = error.issue(), error.status
    return page(
        "searching/answer.html" if wants_part(request) else "searching/search.html",
        session,
        status=status,
        form=form,
        containers=readable,
        modes=CHOICES,
        types=TYPES,
        trouble=trouble,
        **_shown(form, answer),
    )


def _shown(form: SearchForm, answer: SearchResponse | None) -> dict[str, object]:
    """The template's values of an answer."""
    notes: list[Issue] = answer.issues if answer is not None else []
    following = None
    if answer is not None and answer.next_cursor is not None:
        following = f"/console/search?{urlencode(form.parameters(cursor=answer.next_cursor))}"
    # Embedding runs in parallel with the other stages, so it is not added to them.
    spent = sum(ms for stage, ms in answer.timings.items() if stage != "embed") if answer else 0.0
    return {"answer": answer, "notes": notes, "following": following, "milliseconds": spent}
