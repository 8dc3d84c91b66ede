// The TypeScript SDK of the 2.x series, which validates each answer against the tool's output schema.
import { headers, load, run, server } from './plain.mjs'

const { Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol', 'client', 'dist', 'index.mjs')

const client = new Client({ name: 'test', version: '1' })
await client.connect(new StreamableHTTPClientTransport(server, { requestInit: { headers } }))
const { tools } = await client.listTools()
await run(tools.map((tool) => tool.name), (name, given) => client.callTool({ name, arguments: given }))
await client.close()
