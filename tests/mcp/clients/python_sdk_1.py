"""The Python SDK of the 1.x series: a session over streamable HTTP."""

import asyncio

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from plain import SERVER, TOKEN, PlainScript


async def main() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        streamablehttp_client(SERVER, headers=headers) as (reading, writing, _),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        script = PlainScript([tool.name for tool in (await session.list_tools()).tools])
        while (call := script.next()) is not None:
            result = await session.call_tool(*call)
            content = [part.model_dump(mode="json") for part in result.content]
            script.record(content, error=result.isError)


asyncio.run(main())
