"""A LlamaIndex agent with the tools of llama-index-tools-mcp, on a model over OpenAI's chat completions."""

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from plain import MODEL, SERVER, TOKEN


async def main() -> None:
    client = BasicMCPClient(SERVER, headers={"Authorization": f"Bearer {TOKEN}"})
    tools = await McpToolSpec(client=client).to_tool_list_async()
    model = OpenAILike(
        model="scripted",
        api_base=f"{MODEL}/v1",
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
    )
    await FunctionAgent(tools=tools, llm=model).run("Follow the script.", max_iterations=60)


asyncio.run(main())
