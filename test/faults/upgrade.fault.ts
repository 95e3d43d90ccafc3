import { execFile } from 'node:child_process'
import { appendFile, readFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { callerOf } from '../support/http.ts'
import { type Exchange, startLoad } from '../support/load.ts'
import { freePort, startOtherProgram } from '../support/other-program.ts'
import { temporaryFolder } from '../support/program.ts'
import { root } from '../support/root.ts'
import { apiKey } from '../support/running-server.ts'
import { FIRST_RELEASE } from './needs.ts'

/** Clients that send requests at the same time. */
const CLIENTS = 12
const DEPLOY = 'ops/deploy.sh'
const ROLL_BACK = 'ops/deploy.sh 1.0.0'

interface Deployment {
  /** Runs a command in the folder of the deployment. Rejects if it fails. */
  sh(command: string): Promise<string>
  /** Adds lines to `.env`. */
  set(...settings: readonly string[]): Promise<void>
  containers(service: 'api' | 'db'): Promise<string[]>
  /** Replaces the files of the first release with those of this root. */
  checkOut(): Promise<void>
}

/** Starts the first release from its own files, with an inventory that `startLoad` can use. */
async function startFirstRelease(t: Test, replicas: number, setting: string): Promise<Deployment> {
  const cwd = await temporaryFolder(t)
  const sh: Deployment['sh'] = async (command) => {
    // Compose prefers variables to `.env`, and passes on NODE_OPTIONS, which tap sets in every process.
    const env = Object.fromEntries(
      Object.entries(process.env).filter(([name]) => /^(PATH|HOME|DOCKER_\w+)$/.test(name)),
    )
    const args = ['-euc', `unset NODE_OPTIONS; ${command}`]
    return (await promisify(execFile)('sh', args, { cwd, env })).stdout.trim()
  }
  const set: Deployment['set'] = (...settings) =>
    appendFile(path.join(cwd, '.env'), `${settings.join('\n')}\n`)
  await set(`COMPOSE_PROJECT_NAME=upgrade-${process.pid}`, `API_KEYS=${apiKey}`, setting)
  await sh(`git -C '${root}' archive ${FIRST_RELEASE} | tar -x`)
  // Without the image, so that the next `docker compose up` on this machine builds its own.
  t.teardown(() => sh('docker compose down --volumes --timeout 1 && docker image rm petstore-inventory'))
  await sh('docker compose build --quiet')
  await sh(`docker compose up --quiet-pull --detach --wait --scale api=${replicas}`)
  await sh(String.raw`printf 'petId,quantity\n1,0\n2,0\n' | docker compose exec -T api inventory import -`)
  return {
    sh,
    set,
    containers: async (service) => (await sh(`docker compose ps --quiet ${service}`)).split('\n').sort(),
    async checkOut() {
      await sh('find . -mindepth 1 -maxdepth 1 ! -name .env -exec rm -r {} +')
      const files = `git -C '${root}' ls-files -z --cached --others --exclude-standard`
      await sh(`${files} | tar -C '${root}' --null --files-from=- -c | tar -x`)
    },
  }
}

interface Outcome {
  readonly isDone: boolean
  readonly failures: readonly Exchange[]
}

/** Runs a command of a deployment while clients list and update on a port. */
async function underLoad(t: Test, { sh }: Deployment, port: number, command: string): Promise<Outcome> {
  const isReady = async (): Promise<boolean> => (await callerOf(port)('GET', '/readyz')).status === 200
  await eventually('the service', async () => await isReady())
  const loads = [true, false].map((keepAlive) =>
    startLoad(t, { ports: [port], clients: CLIENTS / 2, pets: [keepAlive ? 1 : 2], keepAlive }),
  )
  await Promise.all(loads.map((load) => load.served(100)))
  const isDone = await sh(command).then(
    () => true,
    () => false,
  )
  await Promise.all(loads.map((load) => load.served(100)))
  await Promise.all(loads.map((load) => load.stop()))
  const failures = loads.flatMap((load) => load.failures)
  const requests = failures.length + loads.reduce((sum, { successes }) => sum + successes, 0)
  t.comment(`${command}: ${failures.length} of ${requests} requests failed`)
  return { isDone, failures }
}

async function versionAt(port: number): Promise<string> {
  const { version }: { version: string } = JSON.parse((await callerOf(port)('GET', '/livez')).text)
  return version
}

t.test(
  'two containers of the first release are upgraded and rolled back without a failed request',
  async (t) => {
    const [port, first] = [await freePort(), await freePort()]
    const deployment = await startFirstRelease(t, 2, `PORT=127.0.0.1:${first}-${first + 1}`)
    await deployment.checkOut()
    await startOtherProgram(t, 'haproxy', {
      args: ['-W', '-db', '-f'],
      config: await readFile(path.join(root, 'ops/haproxy.cfg'), 'utf8'),
      env: {
        LISTEN: `127.0.0.1:${port}`,
        SERVER_1: `127.0.0.1:${first}`,
        SERVER_2: `127.0.0.1:${first + 1}`,
      },
      ready: /Loading success/,
    })
    const database = await deployment.containers('db')

    t.match(await underLoad(t, deployment, port, DEPLOY), { isDone: true, failures: { length: 0 } })
    t.not(await versionAt(port), '1.0.0')
    t.match(await underLoad(t, deployment, port, ROLL_BACK), { isDone: true, failures: { length: 0 } })
    t.equal(await versionAt(port), '1.0.0')
    t.strictSame(await deployment.containers('db'), database, 'the container of the database is the same')
  },
)

t.test(
  'a single container of the first release is upgraded, then deployed behind the balancer',
  async (t) => {
    const port = await freePort()
    const deployment = await startFirstRelease(t, 1, `PORT=127.0.0.1:${port}`)
    await deployment.checkOut()
    const database = await deployment.containers('db')

    const { isDone, failures } = await underLoad(t, deployment, port, DEPLOY)
    t.ok(isDone)
    t.not(await versionAt(port), '1.0.0')
    t.ok(
      failures.every(({ answer }) => answer === undefined),
      'requests fail only while there is no container',
    )
    const containers = await deployment.containers('api')
    await deployment.set('LOG_LEVEL=verbose')
    t.match(await underLoad(t, deployment, port, DEPLOY), { isDone: false, failures: { length: 0 } })
    t.strictSame(await deployment.containers('api'), containers, 'a wrong setting replaces no container')
    t.strictSame(await deployment.containers('db'), database, 'the container of the database is the same')

    await deployment.set(
      'LOG_LEVEL=',
      'COMPOSE_FILE=docker-compose.yml:ops/compose.replicas.yml',
      'REPLICAS=3',
    )
    await deployment.sh('docker compose up --quiet-pull --detach --wait --no-deps api balancer')
    t.match(await underLoad(t, deployment, port, DEPLOY), { isDone: true, failures: { length: 0 } })
    const [killed] = await deployment.containers('api')
    const crash = await underLoad(
      t,
      deployment,
      port,
      `docker exec ${killed} node -e 'process.kill(-1, "SIGKILL")' || sleep 3`,
    )
    t.equal(await deployment.sh(`docker inspect --format '{{.RestartCount}}' ${killed}`), '1')
    t.ok(crash.failures.length <= CLIENTS, 'a crash fails only the requests in flight')
    t.match(await underLoad(t, deployment, port, ROLL_BACK), { isDone: true, failures: { length: 0 } })
    t.equal(await versionAt(port), '1.0.0')
    const logs = await deployment.sh('docker compose logs --no-log-prefix --tail 5 api')
    const balancer = await deployment.sh(
      "docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' $(docker compose ps -q balancer)",
    )
    t.match(logs, '"client":"')
    t.notMatch(logs, `"client":"${balancer}"`, 'the log has the address of the client, not of the balancer')
  },
)
