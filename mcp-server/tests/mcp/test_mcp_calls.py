"""One call of a tool: its deadline, its errors, and who may make it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest
from mcp_types import CallToolResult, TextContent

from latent_core.domain.errors import (
    Invalid,
    LatentError,
    Misconfigured,
    RateLimited,
    TimedOut,
    Unavailable,
)
from latent_core.settings import Settings
from latent_gateway.auth.principal import Principal
from latent_gateway.mcp.calls import Scope, ToolCall, may
from latent_gateway.mcp.results import ToolResult, failed
from latent_gateway.mcp.tools.port import Arguments, Tool
from latent_gateway.mcp.tools.registry import TOOLS, tools_of
from latent_gateway.mcp.toolset import run_tool


class Number(Arguments):
    number: int


class DoubledArguments(ToolResult):
    doubled: int


async def progress(progress: float, total: float | None = None, message: str | None = None) -> None:
    """Nobody is told."""


CALL = ToolCall(cast(Any, None), Principal.owner(), cast(Any, None), "request-1", progress)


def tool(run: Any, seconds: float = 30.0) -> Tool:
    return Tool("a.tool", "A tool", "Doubles.", Scope.READ, Number, DoubledArguments, run, seconds)


async def double(_: ToolCall, arguments: Number) -> DoubledArguments:
    return DoubledArguments(doubled=2 * arguments.number)


async def for_ever(_: ToolCall, arguments: Number) -> DoubledArguments:
    await asyncio.Event().wait()
    raise AssertionError


async def broken(_: ToolCall, arguments: Number) -> DoubledArguments:
    raise RuntimeError("the words of a document")


async def busy(_: ToolCall, arguments: Number) -> DoubledArguments:
    raise RateLimited("too many; see /v1/containers/list")


async def test_an_answer_is_the_same_as_structure_and_as_text() -> None:
    result = await run_tool(tool(double), CALL, {"number": 4})
    assert not result.is_error
    assert result.structured_content == {"doubled": 8}
    assert orjson.loads(cast(Any, result.content[0]).text) == {"doubled": 8}


@pytest.mark.parametrize(
    ("called_tool", "arguments", "code", "summary"),
    [
        (tool(for_ever, seconds=0.01), {"number": 4}, "TIMEOUT", "a_tool took longer than 0.01 s"),
        (tool(broken), {"number": 4}, "UNAVAILABLE", "request-1"),
        (tool(busy), {"number": 4}, "RATE_LIMIT", "too many; see containers_list"),
        (tool(double), {"number": "the words"}, "INVALID", "number: "),
        (tool(double), {"number": 4, "more": 1}, "INVALID", "'more' is not an argument"),
        (tool(double), {}, "INVALID", "'number' is required"),
    ],
)
async def test_every_error_says_what_to_do(
    called_tool: Tool, arguments: dict[str, Any], code: str, summary: str
) -> None:
    with pytest.raises(LatentError) as caught:
        await run_tool(called_tool, CALL, arguments)
    text = text_of(failed(caught.value))
    assert text.startswith(f"{code}: ")
    assert summary in text
    assert "the words" not in text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Invalid("not so: do it so"), "INVALID: not so: do it so"),
        (RateLimited("too many", retry_after=7), "RATE_LIMIT: too many. Retry in 7 s."),
        (Unavailable("a store is down."), "UNAVAILABLE: a store is down. Retry in 2 s."),
        (RateLimited("No slot. Retry in 3 s."), "RATE_LIMIT: No slot. Retry in 3 s."),
        (TimedOut("request less"), "TIMEOUT: request less. The same call may succeed later."),
        (Misconfigured("set the key"), "UNAVAILABLE: set the key"),
    ],
)
def test_an_error_is_text_alone_with_the_time_to_wait(error: LatentError, text: str) -> None:
    result = failed(error)
    assert result.is_error
    assert text_of(result) == text
    assert result.structured_content is None


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_a_late_write_may_have_been_carried_out_and_says_how_to_check() -> None:
    late = replace(tool(for_ever, seconds=0.01), scope=Scope.WRITE, check_with="a_list")
    with pytest.raises(TimedOut) as caught:
        await run_tool(late, CALL, {"number": 4}, "another_name")
    assert text_of(failed(caught.value)) == (
        "TIMEOUT: another_name took longer than 0.01 s and may have been carried out: "
        "check with a_list before you repeat it"
    )


def test_tools_that_write_name_a_tool_that_shows_what_they_did() -> None:
    reading = {one.wire_name for one in TOOLS if one.scope is Scope.READ}
    assert {one.check_with for one in TOOLS if one.scope is not Scope.READ} <= reading


async def test_a_call_that_is_cancelled_is_not_answered() -> None:
    task = asyncio.create_task(run_tool(tool(for_ever), CALL, {"number": 4}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_owner_may_call_every_tool_and_a_stranger_none() -> None:
    assert all(may(Principal.owner(), one) for one in TOOLS)
    assert not any(may(Principal("agent:stranger"), one) for one in TOOLS)


@pytest.mark.parametrize("scope", Scope)
def test_a_token_sees_the_tools_of_its_scopes_and_no_others(scope: Scope) -> None:
    one = Principal("agent:one", frozenset({scope}))
    allowed = {tool.name for tool in TOOLS if may(one, tool)}
    assert allowed == {tool.name for tool in TOOLS if scope in (tool.scope, tool.also)}
    assert ("jobs.get" in allowed) is (scope in (Scope.READ, Scope.WRITE))


def test_names_are_those_that_every_client_takes() -> None:
    for one in TOOLS:
        assert one.wire_name == one.name.replace(".", "_")
        assert one.wire_name.replace("_", "").isalpha()
        assert len(one.wire_name) <= 50


def test_the_connector_tools_are_hidden_unless_a_setting_shows_them() -> None:
    without = tools_of(Settings(_env_file=None))
    with_pair = tools_of(Settings(_env_file=None, mcp_search_fetch=True))
    assert {t.name for t in with_pair} - {t.name for t in without} == {"search", "fetch"}
