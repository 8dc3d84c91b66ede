"""A LangChain agent with the tools of langchain-mcp-adapters, on a model over OpenAI's chat completions."""

import asyncio

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from plain import MODEL, SERVER, TOKEN


async def main() -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    server = {"transport": "streamable_http", "url": SERVER, "headers": headers}
    tools = await MultiServerMCPClient({"latent": server}).get_tools()
    model = ChatOpenAI(model="scripted", base_url=f"{MODEL}/v1", api_key="none")
    agent = create_agent(model, tools)
    message = {"role": "user", "content": "Follow the script."}
    await agent.ainvoke({"messages": [message]}, {"recursion_limit": 60})


asyncio.run(main())
