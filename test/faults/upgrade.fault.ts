import t, { type Test } from 'tap'
import { type Deployment, startDeployment, underLoad } from '../support/deployment.ts'
import { isError } from '../support/http.ts'
import { parseResponse, sendRaw } from '../support/raw.ts'

const DEPLOY = 'ops/deploy.sh'

/** The commits of the releases from which an upgrade starts. A shallow clone lacks them. */
const releases = { '3.0.0': 'b6c898e', '3.1.0': 'abb24dd', '4.0.0': '8cd5a9d' } as const

// It builds three images, and replaces some thirty containers.
t.setTimeout(3_600_000)

/** Asserts that a command succeeds, and that meanwhile no request fails, or only as expected. */
async function failsNothing(t: Test, deployment: Deployment, command: string, expected = /^$/) {
  const outcome = await underLoad(t, deployment, command, () => deployment.sh(command))
  t.equal(outcome.error, undefined, `${command} succeeds`)
  const unexpected = outcome.failures.filter((failure) => !expected.test(failure))
  t.strictSame(unexpected, [], `${command} fails no request`)
  return outcome
}

/** Upgrades a release, goes back to it and forward again, with the history on. */
async function upgradeAndBack(t: Test, release: keyof typeof releases, expected?: RegExp) {
  const deployment = await startDeployment(t, { commit: releases[release] })
  const { sh, containers, versions } = deployment
  t.strictSame(await versions(), [release, release])
  await deployment.checkOut()
  // Until the next release, this checkout has the version of the last one.
  await sh(`sed -i 's/image.version="[^"]*"/image.version="next"/' Dockerfile`)
  const database = await containers('db')

  await failsNothing(t, deployment, DEPLOY, expected)
  t.strictSame(await versions(), ['next', 'next'])
  t.equal((await containers('api-2')).length, 1)
  const balancer = await containers('balancer')
  await sh('docker compose run --rm --no-deps migrate inventory history on')
  await failsNothing(t, deployment, `${DEPLOY} ${release}`)
  t.strictSame(await versions(), [release, release])
  await sh('docker compose exec -T db psql -U inventory -c "TRUNCATE inventory_history"')
  const { loads } = await failsNothing(t, deployment, `${DEPLOY} next`)
  t.strictSame(await versions(), ['next', 'next'])
  t.strictSame(await containers('balancer'), balancer, 'the container of the balancer is the same')
  t.strictSame(await containers('db'), database, 'the container of the database is the same')

  const rows = await sh(
    'docker compose exec -T db psql -U inventory -Atc "SELECT pet_id, new_quantity FROM inventory_history"',
  )
  const recorded = rows.split('\n').sort()
  const acknowledged = loads.flatMap((load, index) =>
    load
      .readHistory(index + 1)
      .filter(({ kind, ended }) => kind === 'update' && ended < Number.POSITIVE_INFINITY)
      .map(({ quantity }) => `${index + 1}|${quantity}`),
  )
  t.equal(new Set(recorded).size, recorded.length, 'the history has no change twice')
  t.strictSame(recorded, acknowledged.sort(), 'the history has every update')
  return deployment
}

// They have another balancer: the new one takes over the port.
const NEW_BALANCER = /: no answer$|: 503 /

t.test('two containers of 3.0.0 are upgraded and rolled back', (t) =>
  upgradeAndBack(t, '3.0.0', NEW_BALANCER),
)

t.test('two containers of 3.1.0 are upgraded and rolled back', (t) =>
  upgradeAndBack(t, '3.1.0', NEW_BALANCER),
)

t.test('two halves of 4.0.0 are upgraded and rolled back', async (t) => {
  const { port } = await upgradeAndBack(t, '4.0.0')

  // HAProxy in the container is newer than that of most distributions.
  isError(t, parseResponse(await sendRaw(port, 'no HTTP\r\n\r\n')), 400, 'invalid_request')
  const long = `GET / HTTP/1.1\r\nHost: x\r\nLong: ${'x'.repeat(20_000)}\r\n\r\n`
  isError(t, parseResponse(await sendRaw(port, long)), 431, 'headers_too_large')
})
