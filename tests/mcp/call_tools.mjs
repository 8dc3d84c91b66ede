// Calls tools with a TypeScript SDK, which validates each answer against the tool's output schema.
// Arguments: folder of the SDK's package, address, token, calls as JSON [[name, arguments], ...].
// Prints a list: {"text", "isError"} of each answer, or {"thrown", "code"}.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const [home, url, token, calls] = process.argv.slice(2)
const load = (...parts) => import(pathToFileURL(join(home, ...parts)).href)
const older = home.endsWith('sdk')
const { Client } = await (older ? load('dist', 'esm', 'client', 'index.js') : load('dist', 'index.mjs'))
const { StreamableHTTPClientTransport } = await (older
  ? load('dist', 'esm', 'client', 'streamableHttp.js')
  : load('dist', 'index.mjs'))

const client = new Client({ name: 'test', version: '1' })
const headers = { Authorization: `Bearer ${token}` }
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }))
await client.listTools()
const answers = []
for (const [name, given] of JSON.parse(calls)) {
  try {
    const { content, isError } = await client.callTool({ name, arguments: given })
    answers.push({ text: content[0].text, isError: isError === true })
  } catch (error) {
    answers.push({ thrown: String(error), code: error.code })
  }
}
await client.close()
console.log(JSON.stringify(answers))
