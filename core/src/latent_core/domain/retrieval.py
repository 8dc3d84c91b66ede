"""How a search finds and fuses: words of manifests and of requests.

They are apart from the manifest since `latent search` needs only these, and the whole manifest takes longer to import
than the request itself.
"""

from __future__ import annotations

import difflib
import re
from enum import StrEnum
from typing import Annotated, Final, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, field_validator
from pydantic_core import CoreSchema

CHANNELS: Final = ("bm25", "vector", "exact", "summaries")
"""Channels that find candidates; each can have a weight."""


class SearchMode(StrEnum):
    SEMANTIC = "semantic"
    LEXICAL = "lexical"
    HYBRID = "hybrid"
    MULTIVECTOR = "multivector"
    CROSSMODAL = "crossmodal"
    RERANK = "rerank"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[SearchMode], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Schemas and messages list the modes that this version supports. The contract's other mode can be read, and
        is refused by name where it is used."""
        schema = handler(source)
        if schema["type"] != "enum":
            return schema
        contracted = {cls.MULTIVECTOR.value: cls.MULTIVECTOR}
        offered = {"members": list(OFFERED_MODES), "missing": contracted.get}
        return cast(CoreSchema, {**schema, **offered})


OFFERED_MODES: Final[tuple[SearchMode, ...]] = (
    SearchMode.HYBRID,
    SearchMode.SEMANTIC,
    SearchMode.LEXICAL,
    SearchMode.RERANK,
    SearchMode.CROSSMODAL,
)
"""Modes that this version supports; a search in another mode is refused."""


class FusionMethod(StrEnum):
    RRF = "rrf"
    WEIGHTED = "weighted"
    DBSF = "dbsf"
    AUTO = "auto"


Weight = Annotated[float, Field(ge=0.0, le=1_000_000.0, allow_inf_nan=False)]


class Fusion(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    method: FusionMethod = FusionMethod.RRF
    k: int = Field(default=60, ge=1, le=10_000)
    weights: dict[str, Weight] = Field(default_factory=dict)
    """Channel name to weight; a channel not named weighs 1."""

    @field_validator("weights")
    @classmethod
    def _of_channels(cls, value: dict[str, float]) -> dict[str, float]:
        strange = sorted(set(value) - set(CHANNELS))
        if strange:
            raise ValueError(f"'{strange[0]}' is no channel; there are {', '.join(CHANNELS)}")
        if value and not any(value.get(channel, 1.0) for channel in ("bm25", "vector")):
            raise ValueError("bm25 and vector cannot both weigh 0: every score would be 0")
        return value


RERANKERS: Final = ("none", "api", "local")
_RERANKER: Final = re.compile(r"[a-z0-9][a-z0-9_-]*/\S+")


def check_reranker(value: str) -> str:
    """A reranker's name: one of ``RERANKERS``, or a model of a provider."""
    if value not in RERANKERS and not _RERANKER.fullmatch(value):
        near = difflib.get_close_matches(value, RERANKERS, n=1)
        hint = (
            f"did you mean '{near[0]}'?"
            if near
            else f"use {', '.join(RERANKERS)} or <provider>/<model>"
        )
        raise ValueError(f"'{value}' names no reranker; {hint}")
    return value
