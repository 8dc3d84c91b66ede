"""The blocks of a manifest that permit language models, and what they may use."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from latent_core.domain.retrieval import Weight

MODEL_BLOCKS: Final = ("summaries", "extraction", "captions", "speech", "ask")
"""Keys of a manifest that permit a language model."""


def check_language_model(name: str) -> str:
    provider, slash, model = name.partition("/")
    if not slash or not provider or not model:
        raise ValueError(
            f"'{name}' names no language model: give <provider>/<model>, with a provider of the file LLC_PROVIDERS"
        )
    return name


class ModelBlock(BaseModel):
    """Permits a language model to read the container for one purpose."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    provider: Annotated[str, AfterValidator(check_language_model)] | None = None
    """``<provider>/<model>``."""


class Summaries(ModelBlock):
    weight: Weight = 0.1
    """Of the channel ``summaries`` in fusion (ADR 0055)."""


class ModelBudget(BaseModel):
    """Limits on language models. null is no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job_tokens: int | None = Field(default=None, ge=1)
    """Of one job."""
    tokens: int | None = Field(default=None, ge=1)
    """Of the container, of all jobs and questions together."""
    cost: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """Of the container, in the currency of the provider's prices."""
