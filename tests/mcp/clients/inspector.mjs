// The Inspector's command line: one process for the list of tools and one for each call.
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { headers, run, server } from './plain.mjs'

const program = join(process.env.PACKAGES, 'node_modules', '.bin', 'mcp-inspector')
const given = ['--cli', server.href, '--transport', 'http', '--header', `Authorization: ${headers.Authorization}`]

// It exits with an error if a tool answers with one: the answer is on its output all the same.
const ask = async (...options) => {
  const { stdout } = await promisify(execFile)(process.execPath, [program, ...given, ...options], {
    maxBuffer: 2 ** 26,
  }).catch((error) => error)
  return JSON.parse(stdout.slice(stdout.indexOf('{')))
}

const { tools } = await ask('--method', 'tools/list')
await run(tools.map((tool) => tool.name), (name, call) =>
  ask('--method', 'tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(call)),
)
