import { appendFile, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import path from 'node:path'
import t, { type Test } from 'tap'
import { copyProject, type Shell, shellIn } from '../support/compose.ts'
import { isError } from '../support/error-shape.ts'
import { eventually } from '../support/eventually.ts'
import { callerOf } from '../support/http.ts'
import { listen } from '../support/listen.ts'
import { type Exchange, startLoad } from '../support/load.ts'
import { freePort } from '../support/other-program.ts'
import { apiKey, temporaryFolder } from '../support/program.ts'
import { parseResponse, sendRaw } from '../support/raw.ts'

/** Clients that send requests at the same time. */
const CLIENTS = 12
const DEPLOY = 'ops/deploy.sh'

/** The commits of the releases from which an upgrade starts. A shallow clone lacks them. */
const releases = { '1.0.0': '197b744', '2.0.0': '93d0fb6', '3.0.0': 'b6c898e' } as const

// It builds three images, and replaces some thirty containers.
t.setTimeout(1_800_000)

type Deployment = Awaited<ReturnType<typeof startRelease>>

/** Starts a former release from its own files, with an inventory that `startLoad` can use. */
async function startRelease(t: Test, commit: string, ...settings: string[]) {
  const cwd = await temporaryFolder(t)
  const port = await freePort()
  const shell = shellIn(cwd)
  const sh: Shell = async (command) => (await shell(command)).trim()
  /** Adds lines to `.env`. */
  const set = (...lines: string[]): Promise<void> =>
    appendFile(path.join(cwd, '.env'), `${lines.join('\n')}\n`)
  const project = `upgrade-${process.pid}-${port}`
  await set(`COMPOSE_PROJECT_NAME=${project}`, `API_KEYS=${apiKey}`, `PORT=127.0.0.1:${port}`, ...settings)
  await sh(`git -C '${process.cwd()}' archive ${commit} | tar -x`)
  t.teardown(() =>
    sh(`docker compose down --volumes --timeout 1
      docker image rm petstore-inventory $(docker image ls --quiet ${project}-inventory | sort -u) || true`),
  )
  await sh('docker compose build --quiet')
  await sh('docker compose up --quiet-pull --detach --wait')
  await sh(String.raw`chmod 755 . && umask 022 && printf 'petId,quantity\n1,0\n2,0\n' >stock.csv`)
  await sh(
    'docker compose run --rm --no-deps --volume "$PWD:/files:ro" api inventory import /files/stock.csv',
  )
  return {
    port,
    sh,
    set,
    containers: async (service: 'api' | 'db' | 'balancer'): Promise<string[]> =>
      (await sh(`docker compose ps --quiet ${service}`)).split('\n').sort(),
    /** Replaces the files of the former release with those of this checkout. */
    async checkOut() {
      await sh('find . -mindepth 1 -maxdepth 1 ! -name .env -exec rm -r {} +')
      await sh(copyProject)
      // The balancer was in a file of its own.
      const env = await readFile(path.join(cwd, '.env'), 'utf8')
      await writeFile(path.join(cwd, '.env'), env.replace(/^COMPOSE_FILE=.*\n/m, ''))
    },
  }
}

/** Runs a command of a deployment while clients list and update. Returns what it prints if it fails, and what requests failed. */
async function underLoad(t: Test, { sh, port }: Deployment, command: string) {
  const isReady = async (): Promise<boolean> => (await callerOf(port)('GET', '/readyz')).status === 200
  await eventually('the service', async () => await isReady())
  const loads = [true, false].map((keepAlive) =>
    startLoad(t, { ports: [port], clients: CLIENTS / 2, pets: [keepAlive ? 1 : 2], keepAlive }),
  )
  await Promise.all(loads.map((load) => load.served(100)))
  const error = await sh(command).then(
    () => undefined,
    (error: unknown) => `${error}`,
  )
  await Promise.all(loads.map((load) => load.served(100)))
  await Promise.all(loads.map((load) => load.stop()))
  const failures = loads.flatMap((load) => load.failures)
  const requests = failures.length + loads.reduce((sum, { successes }) => sum + successes, 0)
  t.comment(`${command}: ${failures.length} of ${requests} requests failed`)
  return { error, failures: failures.map(describe), loads }
}

function describe({ kind, answer }: Exchange): string {
  return answer === undefined ? `${kind}: no answer` : `${kind}: ${answer.status} ${answer.text}`
}

/** Asserts that a command succeeds, and that meanwhile no request fails, or only as expected. */
async function failsNothing(t: Test, deployment: Deployment, command: string, expected = /^$/) {
  const outcome = await underLoad(t, deployment, command)
  t.equal(outcome.error, undefined, `${command} succeeds`)
  const unexpected = outcome.failures.filter((failure) => !expected.test(failure))
  t.strictSame(unexpected, [], `${command} fails no request`)
  return outcome
}

async function versionAt(port: number): Promise<string> {
  const { version }: { version: string } = JSON.parse((await callerOf(port)('GET', '/livez')).text)
  return version
}

/** Upgrades a release, goes back to it and forward again, with the history on. */
async function upgradeAndBack(t: Test, release: keyof typeof releases, ...settings: string[]) {
  const deployment = await startRelease(t, releases[release], ...settings)
  const { port, sh, containers } = deployment
  t.equal(await versionAt(port), release)
  await deployment.checkOut()
  const database = await containers('db')
  const { version } = JSON.parse(await readFile('package.json', 'utf8'))

  // Former releases have another balancer, or none: it takes over the port.
  await failsNothing(t, deployment, DEPLOY, release === '3.0.0' ? undefined : /: no answer$|: 503 /)
  t.equal(await versionAt(port), version)
  t.equal((await containers('api')).length, 2)
  await sh('docker compose run --rm --no-deps migrate inventory history on')
  await failsNothing(t, deployment, `${DEPLOY} ${release}`)
  t.equal(await versionAt(port), release)
  await sh('docker compose exec -T db psql -U inventory -c "TRUNCATE inventory_history"')
  // 1.0.0 closes connections on which an update may just have arrived.
  const lost = release === '1.0.0' ? /^update: 502 / : undefined
  const { loads } = await failsNothing(t, deployment, `${DEPLOY} ${version}`, lost)
  t.equal(await versionAt(port), version)
  t.strictSame(await containers('db'), database, 'the container of the database is the same')

  const rows = await sh(
    'docker compose exec -T db psql -U inventory -Atc "SELECT pet_id, new_quantity FROM inventory_history"',
  )
  const recorded = rows.split('\n').sort()
  const acknowledged = loads.flatMap((load, index) =>
    load
      .historyOf(index + 1)
      .filter(({ kind, ended }) => kind === 'update' && ended < Number.POSITIVE_INFINITY)
      .map(({ quantity }) => `${index + 1}|${quantity}`),
  )
  t.equal(new Set(recorded).size, recorded.length, 'the history has no change twice')
  if (release !== '1.0.0') t.strictSame(recorded, acknowledged.sort(), 'the history has every update')
  return deployment
}

t.test('a single container of 1.0.0 is upgraded and rolled back', async (t) => {
  const deployment = await upgradeAndBack(t, '1.0.0')
  const { port, sh, containers } = deployment

  // HAProxy in the container is newer than that of most distributions.
  isError(t, parseResponse(await sendRaw(port, 'no HTTP\r\n\r\n')), 400, 'invalid_request')
  const long = `GET / HTTP/1.1\r\nHost: x\r\nLong: ${'x'.repeat(20_000)}\r\n\r\n`
  isError(t, parseResponse(await sendRaw(port, long)), 431, 'headers_too_large')

  const before = [await containers('api'), await containers('balancer')]
  const taken = `PUBLISH=127.0.0.1:${await listen(t, createServer())}`
  for (const wrong of ['LOG_LEVEL=verbose', 'HOST=0.0.0.0', 'RATE_LIMIT=abc', 'REPLICAS=17', taken]) {
    await deployment.set(wrong)
    const { error, failures } = await underLoad(t, deployment, DEPLOY)
    t.match(error, wrong.split('=')[0], `${wrong} is refused by name`)
    t.strictSame(failures, [], `${wrong} fails no request`)
    t.strictSame([await containers('api'), await containers('balancer')], before, `${wrong} changes nothing`)
    await sh("sed -i '$d' .env")
  }

  await deployment.set('REPLICAS=3', 'RATE_LIMIT=')
  await failsNothing(t, deployment, DEPLOY)
  const [killed] = await containers('api')
  const crash = await underLoad(
    t,
    deployment,
    `docker exec ${killed} node -e 'process.kill(-1, "SIGKILL")' || sleep 3`,
  )
  t.equal(await sh(`docker inspect --format '{{.RestartCount}}' ${killed}`), '1')
  t.ok(crash.failures.length <= CLIENTS, 'a crash fails only the requests in flight')
  const logs = await sh('docker compose logs --no-log-prefix --tail 5 api')
  const balancer = await sh(
    "docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' $(docker compose ps -q balancer)",
  )
  t.match(logs, '"client":"')
  t.notMatch(logs, `"client":"${balancer}"`, 'the log has the address of the client, not of the balancer')

  await sh('docker compose down')
  await sh(DEPLOY)
  t.equal((await containers('api')).length, 3, 'a deployment starts what is not there')
  t.equal((await callerOf(port)('GET', '/readyz')).status, 200)
})

t.test('two containers of 2.0.0 behind its balancer are upgraded and rolled back', async (t) => {
  await upgradeAndBack(t, '2.0.0', 'COMPOSE_FILE=docker-compose.yml:ops/compose.replicas.yml', 'REPLICAS=2')
})

t.test('two containers of 3.0.0 are upgraded and rolled back', async (t) => {
  const deployment = await upgradeAndBack(t, '3.0.0')
  const { sh } = deployment

  // As on a machine that is too busy for it.
  const check = '{test: [CMD, "false"], interval: 1s, retries: 1, start_period: 0s}'
  await sh(`echo 'services: {api: {healthcheck: ${check}}}' >docker-compose.override.yml`)
  await sh('docker compose up --detach --no-deps api')
  await eventually('the containers to be unhealthy', async () =>
    /^unhealthy\s+unhealthy$/.test(await sh("docker compose ps --format '{{.Health}}' api")),
  )
  await sh('rm docker-compose.override.yml')
  await failsNothing(t, deployment, DEPLOY)
})
