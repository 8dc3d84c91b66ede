"""An agent of openai-agents on a model over OpenAI's responses."""

import asyncio

from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI
from plain import MODEL, SERVER, TOKEN


async def main() -> None:
    set_tracing_disabled(True)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    params = {"url": SERVER, "headers": headers, "timeout": 60}
    async with MCPServerStreamableHttp(params, client_session_timeout_seconds=60) as server:
        models = AsyncOpenAI(base_url=f"{MODEL}/v1", api_key="none")
        model = OpenAIResponsesModel(model="scripted", openai_client=models)
        agent = Agent(name="scripted", mcp_servers=[server], model=model)
        await Runner.run(agent, "Follow the script.")


asyncio.run(main())
