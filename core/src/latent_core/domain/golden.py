"""Golden queries with the answers that a container must give (CONTRACT). ``latent_core.eval`` has the figures and the gates.

Long form: ``{queries: [{id, query, expect_docs, expect_keywords, min_score}], thresholds}``; short form:
``{queries: [{q, expect}]}``. A query with documents is measured by their ranks. A query with strings
only is measured once per string; its only relevant document is the first hit that contains the string.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from latent_core.domain.errors import Invalid
from latent_core.domain.text import Text, trouble

MAX_QUERIES: Final = 10_000
MAX_ID_CHARS: Final = 256
MAX_QUERY_CHARS: Final = 8192
"""As of a search."""
MAX_EXPECTED: Final = 1000
"""Documents or strings of one query."""
MAX_EXPECTED_CHARS: Final = 4096
EXPECTED: Final = ("expect_docs", "expect_keywords", "expect", "min_score")
"""Fields of a query that say what it expects."""


def _sound(value: str) -> str:
    wrong = trouble(value, layout=True)
    if wrong is not None:
        raise ValueError(wrong)
    return value


Texts = Annotated[
    list[
        Annotated[str, Field(min_length=1, max_length=MAX_EXPECTED_CHARS), AfterValidator(_sound)]
    ],
    Field(max_length=MAX_EXPECTED),
]


class GoldenQuery(BaseModel):
    """One query with its expected answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[Text, Field(max_length=MAX_ID_CHARS)] = ""
    query: Annotated[
        str,
        Field(
            min_length=1,
            max_length=MAX_QUERY_CHARS,
            validation_alias=AliasChoices("query", "q"),
        ),
        AfterValidator(_sound),
    ]
    expect_docs: Texts = []
    """Document ids, source uris or external ids."""
    expect_keywords: Texts = []
    """Each must appear in the texts of the first ten hits."""
    expect: Texts = []
    """Each must appear in title or text of the first ten hits."""
    min_score: Annotated[float | None, Field(ge=0.0, le=1.0)] = None
    """Minimum nDCG@10 of this query."""

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        if not (self.expect_docs or self.expect_keywords or self.expect):
            raise ValueError("expects nothing: give expect_docs, expect_keywords or expect")
        return self


class Thresholds(BaseModel):
    """Minimum means over all queries, and the maximum p95 in milliseconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)

    ndcg_at_10: Annotated[float | None, Field(alias="ndcg@10", ge=0.0, le=1.0)] = None
    recall_at_20: Annotated[float | None, Field(alias="recall@20", ge=0.0, le=1.0)] = None
    p95_latency_ms: Annotated[float | None, Field(gt=0.0)] = None

    def filled(self, defaults: Mapping[Any, float]) -> Thresholds:
        """These thresholds, with those of a manifest where one is missing."""
        own = self.model_dump(by_alias=True, exclude_none=True)
        return Thresholds.model_validate({**defaults, **own})


class GoldenSet(BaseModel):
    """Queries of one container, in either form, and the thresholds of their means."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    queries: Annotated[list[GoldenQuery], Field(max_length=MAX_QUERIES)]
    thresholds: Thresholds = Thresholds()

    @field_validator("queries")
    @classmethod
    def _named_apart(cls, queries: list[GoldenQuery]) -> list[GoldenQuery]:
        if not queries:
            raise ValueError("the list is empty; add at least one query")
        named = [
            query if query.id else query.model_copy(update={"id": f"q{number}"})
            for number, query in enumerate(queries, start=1)
        ]
        counts = Counter(query.id for query in named)
        twice = [name for name, count in counts.items() if count > 1]
        if twice:
            raise ValueError(f"ids stand twice: {', '.join(twice)}")
        return named

    def written(self) -> dict[str, Any]:
        """As in a file of golden queries."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def parse_golden(data: Any, *, where: str = "golden queries") -> GoldenSet:
    """Validate either form; ``Invalid`` names where, the key and what is wrong with it."""
    try:
        return GoldenSet.model_validate(data)
    except ValidationError as exc:
        problems = [_problem(error, where) for error in exc.errors()]
        raise Invalid("; ".join(problems[:5]), problems=problems) from exc


def _problem(error: Any, where: str) -> str:
    key = ".".join(str(part) for part in error["loc"])
    return f"{where}: {key + ': ' if key else ''}{str(error['msg']).removeprefix('Value error, ')}"
