"""The search form: its values are the address of a search, and both ways they are a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import ValidationError
from starlette.datastructures import QueryParams

from latent_core.domain.chunk import SourceType
from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import OFFERED_MODES, SearchMode
from latent_core.wire.search import (
    MAX_CONTAINERS,
    MAX_PATTERN_CHARS,
    MAX_QUERY_CHARS,
    SearchRequest,
)

HITS: Final = 10
MAX_ID_CHARS: Final = 64
MAX_TAG_CHARS: Final = 256
MAX_DATE_CHARS: Final = 32
MAX_CURSOR_CHARS: Final = 128
MAX_VALUES: Final = 50
"""Of one facet."""
PATH: Final = "/console/search"

MODES: Final = {
    SearchMode.HYBRID: "Meaning and words",
    SearchMode.SEMANTIC: "Meaning only",
    SearchMode.LEXICAL: "Words only",
    SearchMode.RERANK: "Reranked",
    SearchMode.CROSSMODAL: "Pages and pictures",
}
"""The offered modes that users may choose."""
CHOICES: Final = (
    ("", "Default of the container"),
    *((m.value, MODES.get(m, m.value)) for m in OFFERED_MODES),
)
TYPES: Final = tuple(t.value for t in SourceType)
TAGS: Final = "meta.tags"
LISTS: Final[Mapping[str, tuple[str, str]]] = {
    "type": ("types", "source_type"),
    "lang": ("languages", "language"),
    "tag": ("tags", TAGS),
    "topic": ("topics", "summary.product_tags"),
}
"""Parameters of the address with several values: their field of the form, and of filters."""
DEFAULTS: Final[dict[str, Any]] = {"top_k": HITS, "diagnostics": True, "mark_weak": True}
"""What the page requests whatever the form says."""


@dataclass(frozen=True, slots=True)
class SearchForm:
    """The values of the form."""

    query: str = ""
    containers: tuple[str, ...] = ()
    """Without any: all containers that the user may read."""
    mode: str = ""
    types: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    age: str = ""
    """``30d``: not older than that."""
    path: str = ""
    must: str = ""
    since: str = ""
    until: str = ""
    explain: bool = False
    typing: bool = False
    """The last word of the query is not complete yet."""
    cursor: str = ""

    @classmethod
    def of(cls, given: QueryParams) -> Self:
        """``Invalid`` for a value that is too long."""

        def one(name: str, max_chars: int) -> str:
            value = given.get(name, "").strip()
            if len(value) > max_chars:
                raise Invalid(f"'{name}' has more than {max_chars} characters: shorten it")
            return value

        def several(name: str, max_values: int, max_chars: int) -> tuple[str, ...]:
            values = tuple(dict.fromkeys(v for v in given.getlist(name) if v))
            if len(values) > max_values or any(len(v) > max_chars for v in values):
                raise Invalid(f"'{name}' has too many values: choose at most {max_values}")
            return values

        lists = {
            field: several(name, MAX_VALUES, MAX_TAG_CHARS) for name, (field, _) in LISTS.items()
        }
        return cls(
            query=one("q", MAX_QUERY_CHARS),
            containers=several("c", MAX_CONTAINERS, MAX_ID_CHARS),
            mode=one("mode", MAX_ID_CHARS),
            age=one("age", MAX_DATE_CHARS),
            path=one("path", MAX_PATTERN_CHARS),
            must=one("must", MAX_PATTERN_CHARS),
            since=one("since", MAX_DATE_CHARS),
            until=one("until", MAX_DATE_CHARS),
            explain=given.get("explain") == "1",
            typing=given.get("typing") == "1",
            cursor=one("cursor", MAX_CURSOR_CHARS),
            **lists,
        )

    @classmethod
    def of_request(cls, request: SearchRequest) -> Self | None:
        """The form that requests this; None if the form cannot."""
        filters = dict(request.filters)
        modified = filters.pop("modified", {})
        tags = filters.pop("or", [])
        given: dict[str, Any] = {
            field: tuple(filters.pop(name, ())) for field, name in LISTS.values() if name != TAGS
        }
        form = cls(
            query=request.query,
            containers=tuple(request.containers or ()),
            mode=request.requested_mode.value if request.requested_mode else "",
            age=_text(filters.pop("max_age", "")),
            path=request.path_like or "",
            must=next(iter(request.must_terms), ""),
            since=_text(modified.get("gte", "")) if isinstance(modified, dict) else "",
            until=_text(modified.get("lte", "")) if isinstance(modified, dict) else "",
            tags=tuple(tag for one in tags for tag in _tag_of(one)),
            **given,
        )
        same = form.kept() == request.model_dump(mode="json", exclude_unset=True)
        return form if same and not filters else None

    @property
    def nothing(self) -> bool:
        """Nothing to search for: only the form is shown."""
        return not (self.query or self.must)

    @property
    def narrowed(self) -> bool:
        """Whether one of the further fields is set; they are then shown open."""
        return bool(self.mode or self.path or self.must or self.since or self.until or self.explain)

    def request(self, *, facets: tuple[str, ...] = (), mode: str | None = None) -> SearchRequest:
        """The search request of the page; ``Invalid`` names the field with the error. ``mode``: in place of the
        form's."""
        return self._validated(
            {
                **self._fields(self.mode if mode is None else mode),
                **DEFAULTS,
                "explain": self.explain,
                "facets": list(facets),
                **({"cursor": self.cursor} if self.cursor else {}),
                **({"as_you_type": True} if self.typing else {}),
            }
        )

    def kept(self) -> dict[str, Any]:
        """The request to save and to copy: what the user chose, and no more. Its hits are those of the page."""
        request = self._validated({**self._fields(self.mode), "top_k": HITS})
        return request.model_dump(mode="json", exclude_unset=True)

    def _validated(self, fields: dict[str, Any]) -> SearchRequest:
        try:
            return SearchRequest.model_validate(fields)
        except ValidationError as exc:
            message = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
            raise Invalid(message) from exc

    def _fields(self, mode: str) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "query": self.query,
            "containers": list(self.containers) or None,
            "mode": mode or None,
            "filters": self._filters(),
            "must_terms": [self.must] if self.must else [],
            "path_like": self.path or None,
        }
        return {name: value for name, value in fields.items() if value}

    def _filters(self) -> dict[str, Any]:
        """Filters. Dates are whole days in UTC, both included."""
        found: dict[str, Any] = {
            name: list(values) for field, name in LISTS.values() if (values := getattr(self, field))
        }
        if tags := found.pop(TAGS, []):  # a list has no operator for any of several items
            found["or"] = [{TAGS: {"contains": tag}} for tag in tags]
        days = {"gte": self.since, "lte": self.until}
        modified = {op: day for op, day in days.items() if day}
        return (
            found
            | ({"modified": modified} if modified else {})
            | ({"max_age": self.age} if self.age else {})
        )

    def parameters(self, **other: str) -> list[tuple[str, str]]:
        """The parameters of an address with the same search, with ``other`` fields replaced."""
        fields = {
            "q": self.query,
            "mode": self.mode,
            "age": self.age,
            "path": self.path,
            "must": self.must,
            "since": self.since,
            "until": self.until,
            "explain": "1" if self.explain else "",
        } | other
        several = [("c", c) for c in self.containers]
        several += [(name, v) for name, (field, _) in LISTS.items() for v in getattr(self, field)]
        return [(name, value) for name, value in fields.items() if value] + several


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _tag_of(condition: Any) -> list[str]:
    """The tag of one condition of ``SearchForm._filters``."""
    tag = condition.get(TAGS, {}) if isinstance(condition, dict) else {}
    found = tag.get("contains") if isinstance(tag, dict) else None
    return [found] if isinstance(found, str) else []
