/**
 * Runs the tests against one PostgreSQL server, found or started here: tap runs each file as a process of its own, so
 * the server must belong to a parent of them all. Arguments go to tap: `npm test -- test/http/errors.test.ts`.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { startTestServer } from './support/server.ts'
import { makeTemplate } from './support/template.ts'

const server = await startTestServer()
console.log(`PostgreSQL for the tests: ${server.source}`)
try {
  const template = await makeTemplate(server.url)
  try {
    const tap = spawn('tap', ['run', ...process.argv.slice(2)], {
      stdio: 'inherit',
      shell: process.platform === 'win32',
      env: { ...process.env, TEST_SERVER_URL: server.url, TEST_TEMPLATE: template.name },
    })
    const [code] = await once(tap, 'exit')
    process.exitCode = code ?? 1
  } finally {
    await template.drop()
  }
} finally {
  await server.stop()
}
