"""``admin_refresh`` takes what the route takes."""

from __future__ import annotations

from latent_gateway.api.refresh import RefreshBody
from latent_gateway.mcp.tools.refresh import RefreshArguments


def test_the_tool_takes_every_word_of_the_route() -> None:
    assert set(RefreshArguments.model_fields) == set(RefreshBody.model_fields)
