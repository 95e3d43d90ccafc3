import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Test } from 'tap'
import { dockerVariables } from './containers.ts'
import { freePort } from './ports.ts'
import { run } from './program.ts'

/** Becomes HAProxy, which reads its files again at each line on standard input, and ends with it: in a container, too. */
const SCRIPT = `exec 3<&0
  { while read -r line; do kill -USR2 $$; done; kill $$; } <&3 >/dev/null 2>&1 &
  exec haproxy -W -db -f "$0" 3<&-`

/** Starts HAProxy with `ops/haproxy.cfg` in front of two processes, or of one that it uses twice, and waits until it listens. */
export async function startBalancer(
  t: Test,
  [one = 0, two = one]: readonly number[],
  settings: Readonly<Record<string, string>> = {},
  config = path.resolve('ops/haproxy.cfg'),
) {
  const port = await freePort()
  const at = (port: number): string => `127.0.0.1:${port}`
  const variables = { LISTEN: at(port), SERVER_1: at(one), SERVER_2: at(two), ...settings }
  const command = [...inContainer(Object.keys(variables)), 'sh', '-c', SCRIPT, config]
  const env = { ...dockerVariables, ...variables }
  const { output, process: haproxy } = run(t, command.shift() ?? '', command, { env, input: null })
  await output(/Loading success/)
  return {
    port,
    output,
    /** Has it read its configuration and certificate again. */
    reload: () => haproxy.stdin.write('\n'),
  }
}

/** The words before a command by which it runs in a container, if the image of `chooseBalancer` is to be used. */
function inContainer(variables: readonly string[]): string[] {
  const image = process.env['TEST_HAPROXY_IMAGE']
  if (image === undefined) return []
  const folders = [path.resolve('ops'), tmpdir()].flatMap((folder) => ['--volume', `${folder}:${folder}:ro`])
  const names = variables.flatMap((name) => ['--env', name])
  // The tests' certificates are for nobody but root.
  const options = ['--rm', '--interactive', '--network=host', '--user=root', ...folders, ...names]
  return ['docker', 'run', ...options, image]
}
