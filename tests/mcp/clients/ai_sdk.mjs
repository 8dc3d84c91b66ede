// The AI SDK with its MCP client, on a model over OpenAI's responses.
import { headers, load, model, server } from './plain.mjs'

const { createMCPClient } = await load('@ai-sdk', 'mcp', 'dist', 'index.js')
const { generateText, isStepCount } = await load('ai', 'dist', 'index.js')
const { createOpenAI } = await load('@ai-sdk', 'openai', 'dist', 'index.js')

const client = await createMCPClient({ transport: { type: 'http', url: server.href, headers } })
const openai = createOpenAI({ baseURL: `${model}/v1`, apiKey: 'none' })
await generateText({
  model: openai.responses('scripted'),
  tools: await client.tools(),
  stopWhen: isStepCount(50),
  prompt: 'Follow the script.',
})
await client.close()
