import path from 'node:path'
import type { Test } from 'tap'
import { freePort } from './other-program.ts'
import { type Program, run } from './program.ts'
import { root } from './root.ts'

/** HAProxy with `ops/haproxy.cfg`. */
export interface Balancer extends Program {
  readonly port: number
}

/** Starts HAProxy in front of two processes, or of one that it uses twice, and waits until it listens. */
export async function startBalancer(
  t: Test,
  [one = 0, two = one]: readonly number[],
  env: Readonly<Record<string, string>> = {},
): Promise<Balancer> {
  const port = await freePort()
  const balancer = run(t, 'haproxy', ['-W', '-db', '-f', path.join(root, 'ops/haproxy.cfg')], {
    env: {
      PATH: process.env['PATH'],
      LISTEN: `127.0.0.1:${port}`,
      SERVER_1: `127.0.0.1:${one}`,
      SERVER_2: `127.0.0.1:${two}`,
      ...env,
    },
  })
  await balancer.output(/Loading success/)
  return { ...balancer, port }
}

/** Where clients reach a service: its own port, and that of HAProxy in front of it. */
export async function entrancesOf(t: Test, server: number): Promise<[name: string, port: number][]> {
  const { port } = await startBalancer(t, [server])
  return [
    ['alone', server],
    ['behind HAProxy', port],
  ]
}
