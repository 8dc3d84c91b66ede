"""The Python SDK of the 2.x series: a client that chooses the protocol's era itself."""

import asyncio

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from plain import SERVER, TOKEN, PlainScript


async def main() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(SERVER, http_client=http)) as client,
    ):
        script = PlainScript([tool.name for tool in (await client.list_tools()).tools])
        while (call := script.next()) is not None:
            result = await client.call_tool(*call)
            content = [part.model_dump(mode="json") for part in result.content]
            script.record(content, error=bool(result.is_error))


asyncio.run(main())
