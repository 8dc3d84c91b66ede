"""What a model pays before its first call: the list of tools, in tokens of o200k_base."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import pytest

from latent_core.settings import Settings
from latent_gateway.auth.principal import Principal
from latent_gateway.mcp.calls import Scope, may
from latent_gateway.mcp.server import INSTRUCTIONS
from latent_gateway.mcp.tools import ask
from latent_gateway.mcp.tools.port import Tool
from latent_gateway.mcp.tools.registry import TOOLS, tools_of

READER = frozenset({Scope.READ})
WRITER = frozenset({Scope.READ, Scope.WRITE})
MAX_TOKENS = [(READER, 1_800), (WRITER, 2_400)]
BYTES_PER_TOKEN = 4.15
"""Of JSON like this; measured with o200k_base: 4.17."""
FIRST_CHARS = 512
"""Of the instructions: what every client shows."""


def listed(scopes: frozenset[Scope], tools_there: Sequence[Tool] = TOOLS) -> bytes:
    """``tools/list`` as JSON."""
    caller = Principal("agent:one", scopes)
    tools = [tool.listed() for tool in tools_there if may(caller, tool)]
    dumped = [t.model_dump(mode="json", by_alias=True, exclude_none=True) for t in tools]
    return orjson.dumps({"tools": dumped})


@pytest.mark.parametrize(("scopes", "max_tokens"), MAX_TOKENS)
def test_the_list_of_tools_is_short(scopes: frozenset[Scope], max_tokens: int) -> None:
    assert len(listed(scopes)) / BYTES_PER_TOKEN <= max_tokens


@pytest.mark.parametrize(("scopes", "max_tokens"), MAX_TOKENS)
def test_the_list_of_tools_is_short_with_the_tool_that_asks(
    scopes: frozenset[Scope], max_tokens: int
) -> None:
    tools = tools_of(Settings(mcp_ask=True))
    assert ask.ASK in tools
    assert ask.ASK not in tools_of(Settings())
    assert len(listed(scopes, tools)) / BYTES_PER_TOKEN <= max_tokens


@pytest.mark.parametrize(("scopes", "max_tokens"), MAX_TOKENS)
def test_the_list_of_tools_has_few_tokens(scopes: frozenset[Scope], max_tokens: int) -> None:
    vocabularies = pytest.importorskip("bpe_openai", reason="it carries the vocabulary o200k_base")
    encoding = vocabularies.get_encoding("o200k_base")
    tokens = len(encoding.encode(listed(scopes).decode()))
    assert tokens <= max_tokens
    assert tokens <= len(listed(scopes)) / BYTES_PER_TOKEN


def test_the_instructions_begin_with_what_containers_are() -> None:
    begin = INSTRUCTIONS[:FIRST_CHARS]
    assert begin.startswith("Containers here are collections of the user's own documents")
    assert "containers_search" in begin
    assert len(INSTRUCTIONS) <= 2_000
