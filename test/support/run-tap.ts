import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { startTestServer } from './server.ts'
import { makeTemplate } from './template.ts'

/** Test files at a time: two for each processor, as many of them wait for time to pass. */
const JOBS = 2 * availableParallelism()

/**
 * Runs test files against one PostgreSQL server, found or started here: tap runs each file as a process of its own, so
 * the server must belong to a parent of them all. The exit code of this process says how it went.
 */
export async function runTap(args: readonly string[]): Promise<void> {
  const server = await startTestServer()
  console.log(`PostgreSQL for the tests: ${server.source}`)
  try {
    const template = await makeTemplate(server.url)
    try {
      const tap = spawn('tap', ['run', `--jobs=${JOBS}`, ...args], {
        stdio: 'inherit',
        shell: process.platform === 'win32',
        env: {
          ...process.env,
          TEST_SERVER_URL: server.url,
          TEST_TEMPLATE: template.name,
          TEST_TEMPLATE_STRATEGY: template.strategy,
        },
      })
      const [code] = await once(tap, 'exit')
      process.exitCode = code ?? 1
      if (code && !process.stdout.isTTY) await repeatFailures(args)
    } finally {
      await template.drop()
    }
  } finally {
    await server.stop()
  }
}

/**
 * Prints again, on stderr, what failed in the run that has just ended. Without a terminal, tap prints every one of
 * thousands of assertions, and a failure is hard to find in a log of CI; in a terminal, tap itself ends with the failures.
 */
async function repeatFailures(args: readonly string[]): Promise<void> {
  const replay = spawn('tap', ['replay', ...args, '--reporter=terse'], {
    stdio: ['ignore', process.stderr, 'inherit'],
    shell: process.platform === 'win32',
    // Without CI, the reporter would print every intermediate state, with control characters.
    env: { ...process.env, CI: 'true' },
  })
  await once(replay, 'exit')
}
