"""What a refresh may be asked for: nothing is accepted that would change nothing."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from latent_core.wire.refresh import RefreshRequest


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"strategy": "drift"}, "needs 'to'"),
        ({"strategy": "reparse", "to": {"embedder": "local"}}, "keeps the embedder"),
        ({"strategy": "parallel", "way": "query"}, "applies only to strategy drift"),
        ({"strategy": "inplace", "keep_days": 3}, "applies to parallel and drift"),
        ({"strategy": "reparse", "keep_days": 0}, "applies to parallel and drift"),
        ({"strategy": "reparse", "force": True}, "remove 'force'"),
    ],
)
def test_what_a_strategy_would_ignore_is_refused_with_its_reason(
    words: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        RefreshRequest.model_validate(words)


@pytest.mark.parametrize("strategy", ["parallel", "inplace", "reparse"])
def test_a_strategy_alone_is_enough_where_the_embedder_may_stay(strategy: str) -> None:
    assert RefreshRequest.model_validate({"strategy": strategy}).to is None
