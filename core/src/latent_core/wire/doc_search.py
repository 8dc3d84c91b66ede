"""``POST /v1/doc_search``: documents alone, without code (CONTRACT "Retrieval")."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from latent_core.domain.chunk import SourceType
from latent_core.domain.query import MAX_CONTAINERS, MAX_QUERY_CHARS, MAX_TOP_K
from latent_core.domain.text import Text
from latent_core.wire.base import RequestBody

DOCUMENTS: Final = (
    SourceType.MARKDOWN,
    SourceType.PDF,
    SourceType.WEB,
    SourceType.YAML,
    SourceType.JSON,
)


class DocSearchBody(RequestBody):
    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)]
    formats: Annotated[list[SourceType], Field(max_length=len(SourceType))] = list(DOCUMENTS)
    limit: Annotated[int, Field(ge=1, le=MAX_TOP_K)] = 10
    containers: Annotated[list[Text] | None, Field(min_length=1, max_length=MAX_CONTAINERS)] = None
    """Default: all readable containers."""
