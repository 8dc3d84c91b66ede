// The TypeScript SDK of the 1.x series, which validates each answer against the tool's output schema.
import { headers, load, run, server } from './plain.mjs'

const home = ['@modelcontextprotocol', 'sdk', 'dist', 'esm', 'client']
const { Client } = await load(...home, 'index.js')
const { StreamableHTTPClientTransport } = await load(...home, 'streamableHttp.js')

const client = new Client({ name: 'test', version: '1' })
await client.connect(new StreamableHTTPClientTransport(server, { requestInit: { headers } }))
const { tools } = await client.listTools()
await run(tools.map((tool) => tool.name), (name, given) => client.callTool({ name, arguments: given }))
await client.close()
