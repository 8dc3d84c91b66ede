"""The served schema and the tools have what the contract's tables name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from latent_gateway.app import ROUTERS
from latent_gateway.mcp.tools.registry import CONTRACT_NAMES, TOOLS
from latent_gateway.mcp.tools.schema import schema_of
from latent_gateway.openapi import GatewayApi
from tests.support.contracts.http_v1 import MCP_TOP_K, schema_differences, tool_differences

Json = dict[str, Any]


@pytest.fixture(scope="module")
def served() -> Json:
    app = GatewayApi(title="Latent Containers", version="1")
    for module in ROUTERS:
        app.include_router(module.router)
    return app.openapi()


@pytest.fixture(scope="module")
def tools() -> list[Json]:
    by_name = {tool.name: tool for tool in TOOLS} | CONTRACT_NAMES
    return [
        {"name": name, "inputSchema": schema_of(tool.arguments)} for name, tool in by_name.items()
    ]


def test_the_served_schema_has_what_the_contract_names(served: Json) -> None:
    assert schema_differences(served) == []


def test_the_tools_take_the_requests_of_the_contract(tools: list[Json]) -> None:
    assert tool_differences(tools) == []
    (search,) = [tool for tool in tools if tool["name"] == "containers.search"]
    assert f"default {MCP_TOP_K}" in search["inputSchema"]["properties"]["top_k"]["description"]


def of(schema: Json, model: str) -> Json:
    found: Json = schema["components"]["schemas"][model]
    return found


SLIPS: list[Callable[[Json], Any]] = [
    lambda schema: schema["paths"].pop("/v1/containers/export"),
    lambda schema: schema["paths"]["/v1/containers/add"]["post"]["responses"].pop("202"),
    lambda schema: of(schema, "SearchRequest")["properties"].pop("rerank_k"),
    lambda schema: of(schema, "SearchRequest")["properties"]["rerank_k"].update(default=10),
    lambda schema: of(schema, "SearchRequest")["properties"]["mode"].update(default="semantic"),
    lambda schema: of(schema, "SearchRequest")["properties"]["top_k"].update(maximum=50),
    lambda schema: of(schema, "SearchRequest")["required"].append("query"),
    lambda schema: of(schema, "SearchMode")["enum"].remove("crossmodal"),
    lambda schema: of(schema, "RefreshBody")["required"].append("strategy"),
    lambda schema: of(schema, "RefreshAnswer")["properties"]["job_id"].update(type="integer"),
    lambda schema: of(schema, "SearchResponse")["required"].remove("partial"),
    lambda schema: of(schema, "Hit")["properties"].pop("base_score"),
    lambda schema: of(schema, "Hit")["properties"]["timestamps"].update(items={"type": "string"}),
    lambda schema: of(schema, "Provenance")["required"].remove("embedder_version"),
    lambda schema: of(schema, "Diagnostics")["properties"].pop("freshness_factor"),
    lambda schema: of(schema, "IssueCode")["enum"].append("SURPRISE"),
]


@pytest.mark.parametrize("slip", range(len(SLIPS)))
def test_a_schema_that_differs_from_the_contract_is_noticed(served: Json, slip: int) -> None:
    changed = copy.deepcopy(served)
    SLIPS[slip](changed)
    assert schema_differences(changed)


@pytest.mark.parametrize(
    "slip",
    [
        lambda tools: tools.pop(0),
        lambda tools: tools[2]["inputSchema"]["properties"].pop("rerank_k"),
        lambda tools: tools[2]["inputSchema"].update(required=["query"]),
        lambda tools: tools[1]["inputSchema"]["properties"]["container_id"].update(type="integer"),
    ],
)
def test_a_tool_that_differs_from_the_contract_is_noticed(
    tools: list[Json], slip: Callable[[list[Json]], Any]
) -> None:
    changed = copy.deepcopy(tools)
    slip(changed)
    assert tool_differences(changed)
