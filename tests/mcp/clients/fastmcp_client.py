"""fastmcp's client."""

import asyncio

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from plain import SERVER, TOKEN, PlainScript


async def main() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with Client(StreamableHttpTransport(SERVER, headers=headers)) as client:
        script = PlainScript([tool.name for tool in await client.list_tools()])
        while (call := script.next()) is not None:
            result = await client.call_tool(*call, raise_on_error=False)
            content = [part.model_dump(mode="json") for part in result.content]
            script.record(content, error=result.is_error)


asyncio.run(main())
