import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Test } from 'tap'
import { eventually } from './eventually.ts'
import { freePort } from './ports.ts'
import { run } from './program.ts'

/** HAProxy with `ops/haproxy.cfg`. */
export type Balancer = Awaited<ReturnType<typeof startBalancer>>

type Environment = Readonly<Record<string, string>>

const COMMAND = ['haproxy', '-W', '-db', '-f']
const READY = /Loading success/

/** Starts HAProxy in front of two processes, or of one that it uses twice, and waits until it listens. */
export async function startBalancer(
  t: Test,
  [one = 0, two = one]: readonly number[],
  env: Environment = {},
  config = path.resolve('ops/haproxy.cfg'),
) {
  const port = await freePort()
  const image = process.env['TEST_HAPROXY_IMAGE']
  const start = image === undefined ? startProgram : startContainer
  const at = (port: number): string => `127.0.0.1:${port}`
  const addresses = { LISTEN: at(port), SERVER_1: at(one), SERVER_2: at(two) }
  return { port, ...(await start(t, config, { ...addresses, ...env }, image)) }
}

async function startProgram(t: Test, config: string, env: Environment) {
  const [name = '', ...args] = [...COMMAND, config]
  const { output, process: haproxy } = run(t, name, args, { env: { PATH: process.env['PATH'], ...env } })
  await output(READY)
  /** Has it read its configuration and certificate again. */
  const reload = async (): Promise<unknown> => haproxy.kill('SIGUSR2')
  return { output, reload }
}

async function startContainer(t: Test, config: string, env: Environment, image = '') {
  const { GenericContainer, Wait } = await import('testcontainers')
  const haproxy = await new GenericContainer(image)
    .withNetworkMode('host')
    // The tests' certificates are for nobody else.
    .withUser('root')
    .withBindMounts([path.resolve('ops'), tmpdir()].map((source) => ({ source, target: source, mode: 'ro' })))
    .withEnvironment(env)
    .withCommand([...COMMAND, config])
    .withWaitStrategy(Wait.forLogMessage(READY))
    .withStartupTimeout(120_000)
    .start()
  t.teardown(() => haproxy.stop())
  let text = ''
  const log = await haproxy.logs()
  log.on('data', (chunk) => (text += chunk))
  return {
    output: (pattern: RegExp) =>
      eventually(`${pattern} in the output`, async () => pattern.exec(text) ?? false),
    reload: () => haproxy.exec(['sh', '-c', 'kill -USR2 1']),
  }
}

/** Where clients reach a service: its own port, and that of HAProxy in front of it. */
export type Entrance = 'alone' | 'behind HAProxy'

/** Starts HAProxy in front of a service. Returns both ports. */
export async function startEntrances(t: Test, server: number): Promise<[name: Entrance, port: number][]> {
  const { port } = await startBalancer(t, [server])
  return [
    ['alone', server],
    ['behind HAProxy', port],
  ]
}
