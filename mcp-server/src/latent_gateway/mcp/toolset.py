"""The tools of one MCP address: their list for a token, and their calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
)
from pydantic import ValidationError
from starlette.requests import Request

from latent_core.domain.errors import (
    Invalid,
    IssueCode,
    LatentError,
    StoreFull,
    TimedOut,
    Unavailable,
    WriteTimedOut,
)
from latent_core.domain.token import Api, Scope
from latent_core.telemetry.tracing import span
from latent_gateway import context
from latent_gateway.auth.principal import Principal
from latent_gateway.context import Gateway
from latent_gateway.mcp.calls import ToolCall, may
from latent_gateway.mcp.hints import hinted
from latent_gateway.mcp.results import ToolResult, answered, failed, problems
from latent_gateway.mcp.tools.port import Tool

logger = logging.getLogger(__name__)

CONTAINER: Final = "container_id"
Context = ServerRequestContext[Any, Request]


class Toolset:
    def __init__(
        self, shared: Gateway, tools: Sequence[Tool], other_names: Mapping[str, Tool] | None = None
    ) -> None:
        """``other_names`` can be called and are not listed."""
        self._shared = shared
        self._tools = tools
        self._named = {t.wire_name: t for t in tools} | {t.name: t for t in tools}
        for name, tool in (other_names or {}).items():
            self._named |= {name: tool, name.replace(".", "_"): tool}
        self._listed = {t.wire_name: t.listed() for t in tools}
        self._listed_for_one = {t.wire_name: t.listed(optional=[CONTAINER]) for t in tools}

    def input_schema(self, name: str) -> dict[str, Any] | None:
        tool = self._named.get(name)
        return None if tool is None else self._listed[tool.wire_name].input_schema

    async def list_(self, ctx: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        caller = (await called(self._shared, ctx)).caller
        listed = self._listed_for_one if defaults_of(caller) else self._listed
        return ListToolsResult(tools=[listed[t.wire_name] for t in self._tools if may(caller, t)])

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        call = await called(self._shared, ctx)
        tool = self._named.get(params.name)
        if tool is None or not may(call.caller, tool):
            call.shared.stack.metrics.failed("mcp", IssueCode.NOT_FOUND)
            raise _unknown(params.name)
        begun = perf_counter()
        with span(f"tool {tool.wire_name}", request_id=call.request_id) as traced:
            try:
                result = await run_tool(tool, call, params.arguments or {}, params.name)
            except LatentError as exc:
                error = await hinted(call, exc)
                traced.failed(error.code.value)
                call.shared.stack.metrics.failed("mcp", error.code)
                result = failed(error)
        call.shared.calls.count(call.caller, Api.MCP, tool.wire_name, failed=bool(result.is_error))
        logger.info(
            "tool_called",
            extra={
                "request_id": call.request_id,
                "tool": tool.wire_name,
                "failed": result.is_error,
                "latency_ms": round((perf_counter() - begun) * 1000, 2),
            },
        )
        return result


async def called(shared: Gateway, ctx: Context) -> ToolCall:
    """The request as a call, with its authenticated caller."""
    request = ctx.request
    if request is None:
        raise MCPError(INVALID_PARAMS, "this server is reached by HTTP")
    return ToolCall(
        shared=shared,
        caller=await context.principal(request),
        links=await context.links(request, shared),
        request_id=await context.request_id(request),
        progress=ctx.session.report_progress,
    )


def _late(tool: Tool, called_as: str) -> TimedOut:
    """A call that writes may have been carried out: a repetition could do it twice."""
    late = f"{called_as} took longer than {tool.seconds:g} s"
    if tool.scope is Scope.READ:
        return TimedOut(f"{late}: request less")
    return WriteTimedOut(
        f"{late} and may have been carried out: check with {tool.check_with} before you repeat it"
    )


def _unknown(name: str) -> MCPError:
    """The same error for a tool that does not exist and for one that the token may not call."""
    shown = name[:80].encode("ascii", "replace").decode()
    return MCPError(INVALID_PARAMS, f"unknown tool '{shown}': tools/list lists those you may call")


def defaults_of(caller: Principal) -> dict[str, str]:
    """Arguments that a call need not name: a token for one container means that one."""
    names = list(caller.containers or ())
    return {CONTAINER: names[0]} if len(names) == 1 else {}


async def run_tool(
    tool: Tool, call: ToolCall, given: dict[str, Any], called_as: str = ""
) -> CallToolResult:
    """The answer of the tool within its deadline; every error is a ``LatentError`` with its remedy. ``called_as``: the
    name that was called, if it is not the tool's own."""
    try:
        arguments = tool.arguments.model_validate(given, context=defaults_of(call.caller))
        async with asyncio.timeout(tool.seconds):
            answer = await tool.run(call, arguments)
    except ValidationError as exc:
        raise Invalid(problems(exc, list(tool.arguments.model_fields))) from exc
    except StoreFull as exc:
        call.shared.stack.capacity.heard(exc)
        raise
    except LatentError:
        raise
    except TimeoutError as exc:
        raise _late(tool, called_as or tool.wire_name) from exc
    except Exception as exc:  # the outermost frame of a tool: it logs and answers
        logger.exception("tool_failed", extra={"request_id": call.request_id, "tool": tool.name})
        message = f"internal error: the gateway's log has the cause under request {call.request_id}"
        raise Unavailable(message) from exc
    return answered(answer, arguments.notes) if isinstance(answer, ToolResult) else answer
