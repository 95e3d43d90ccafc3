import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import type { Test } from 'tap'
import { pathOf } from '../faults/needs.ts'
import { callerOf } from './http.ts'
import { freePort } from './other-program.ts'
import { root } from './root.ts'

export interface BalancerOptions {
  /** The ports of the two processes. With one, HAProxy uses the same twice. */
  readonly servers: readonly number[]
  readonly env?: Readonly<Record<string, string>>
  /** What `/readyz` answers once HAProxy has checked the processes. */
  readonly expectedStatus?: number
}

/** HAProxy with `ops/haproxy.cfg`. */
export interface Balancer {
  readonly port: number
  /** Resolves when HAProxy has written that from now on. */
  says(text: string): Promise<void>
  /** Has HAProxy read its configuration again. */
  reload(): void
}

/** Starts HAProxy in front of two processes, and waits until it answers. It does not outlive the test. */
export async function startBalancer(
  t: Test,
  { servers, env = {}, expectedStatus = 200 }: BalancerOptions,
): Promise<Balancer> {
  const [one = 0, two = one] = servers
  const port = await freePort()
  const program = (await pathOf('haproxy')) ?? 'haproxy'
  const child = spawn(program, ['-W', '-db', '-f', path.join(root, 'ops/haproxy.cfg')], {
    env: {
      LISTEN: `127.0.0.1:${port}`,
      SERVER_1: `127.0.0.1:${one}`,
      SERVER_2: `127.0.0.1:${two}`,
      ...env,
    },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const ended = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGTERM')
    await ended
  })
  let waiting: { text: string; resolve: () => void }[] = []
  let output = ''
  child.stderr.on('data', (chunk) => {
    output += chunk
    const heard = waiting.filter(({ text }) => output.includes(text))
    waiting = waiting.filter((waiter) => !heard.includes(waiter))
    output = output.slice(output.lastIndexOf('\n') + 1)
    for (const { resolve } of heard) resolve()
  })
  const answers = (): Promise<boolean> =>
    callerOf(port)('GET', '/readyz').then(
      ({ status }) => status === expectedStatus,
      () => false,
    )
  while (!(await answers())) {
    if (child.exitCode !== null) throw new Error(`HAProxy has ended with ${child.exitCode}: ${output}`)
    await setTimeout(50)
  }
  return {
    port,
    says: (text) =>
      new Promise((resolve, reject) => {
        waiting.push({ text, resolve })
        ended.then(() => reject(new Error(`HAProxy has ended without "${text}"`)), reject)
      }),
    reload: () => void child.kill('SIGUSR2'),
  }
}

/** Where clients reach a service: its own port, and that of HAProxy in front of it. */
export async function entrancesOf(t: Test, server: number): Promise<[name: string, port: number][]> {
  const { port } = await startBalancer(t, { servers: [server] })
  return [
    ['alone', server],
    ['behind HAProxy', port],
  ]
}
