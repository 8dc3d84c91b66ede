// For drivers of clients without a model: the scripted model of the tests says what to call next.
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

export const server = new URL(process.env.TARGET_URL)
export const headers = { Authorization: `Bearer ${process.env.TARGET_TOKEN}` }
export const model = process.env.MODEL_URL

// A file of an installed package; PACKAGES is the folder that npm filled.
export const load = (...parts) =>
  import(pathToFileURL(join(process.env.PACKAGES, 'node_modules', ...parts)).href)

export const run = async (tools, call) => {
  const answers = []
  for (let count = 0; count < 50; count += 1) {
    const response = await fetch(`${model}/plain`, { method: 'POST', body: JSON.stringify({ tools, answers }) })
    const { name, arguments: given } = await response.json()
    if (!name) return
    const { content, isError } = await call(name, given)
    answers.push({ content, isError: isError === true })
  }
  throw new Error('the script does not end')
}
