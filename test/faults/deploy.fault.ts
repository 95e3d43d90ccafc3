import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import { type Deployment, startDeployment, underLoad } from '../support/deployment.ts'
import { eventually } from '../support/eventually.ts'
import { createSender } from '../support/http.ts'
import { listen } from '../support/ports.ts'
import { run } from '../support/program.ts'

const DEPLOY = 'ops/deploy.sh'

// It replaces some thirty containers.
t.setTimeout(3_600_000)

/** Deploys in a process group of its own, as a terminal does, and presses Ctrl-C at some output. */
async function interrupt(t: Test, { cwd }: Deployment, moment: RegExp): Promise<void> {
  const deploy = run(t, DEPLOY, [], { cwd, detached: true, env: process.env })
  await deploy.output(moment)
  process.kill(-(deploy.process.pid ?? 0), 'SIGINT')
  t.not((await deploy.ended).code, 0)
}

t.test('deployments that fail, are interrupted or meet keep one half serving', async (t) => {
  const deployment = await startDeployment(t)
  const { sh, set, containers } = deployment
  const servers = (): Promise<string[]> => containers('api', 'api-2', 'balancer')
  /** Does something, which fails no request. Returns its error. */
  const whileServing = async (name: string, action: () => Promise<unknown>): Promise<string | undefined> => {
    const { error, failures } = await underLoad(t, deployment, name, action)
    t.strictSame(failures, [], `${name} fails no request`)
    return error
  }

  const before = await servers()
  const taken = await listen(t, createServer())
  await sh('cp .env valid.env')
  for (const [wrong, message] of [
    ['CERTIFICATE=/nowhere', '/nowhere'],
    ['LOG_LEVEL=verbose', 'LOG_LEVEL'],
    ['RATE_LIMIT=0', 'RATE_LIMIT'],
    ['RATE_LIMIT=1.5', 'RATE_LIMIT'],
    ['RATE_LIMIT=many', 'RATE_LIMIT'],
    ['PROXIES=somebody', 'somebody'],
    [`PUBLISH=127.0.0.1:${taken}`, `127.0.0.1:${taken}`],
    [
      `CERTIFICATE=. PUBLISH_HTTPS=${deployment.port}`,
      `the port "${deployment.port}" cannot be published twice`,
    ],
    ['REPLICAS=0', 'REPLICAS must be a whole number from 1 to 16'],
    ['MEMORY_LIMIT=30m', 'exit code 137; if it is 137, raise MEMORY_LIMIT'],
    ['METRICS_PORT=3000', 'the service does not start with these settings'],
  ] as const) {
    await set(...wrong.split(' '))
    t.match(await whileServing(wrong, () => sh(DEPLOY)), message, `${wrong} is refused`)
    t.strictSame(await servers(), before, `${wrong} changes nothing`)
    await sh('cp valid.env .env')
  }

  const api = await containers('api')
  await sh(`cp Dockerfile former.txt && echo 'HEALTHCHECK --interval=1s --retries=1 CMD false' >>Dockerfile`)
  t.match(await whileServing('an image that never is ready', () => sh(DEPLOY)), 'api-2-1 is unhealthy')
  t.strictSame(await containers('api'), api, 'the half that serves is the same')
  await sh('mv former.txt Dockerfile')

  for (const [index, moment] of [
    / Built/,
    /api-2-1 {2}Recreate\n/,
    /api-2-1 {2}Started\n/,
    /api-1 {2}Recreate\n/,
    /api-1 {2}Started\n/,
  ].entries()) {
    await set(`LOG_LEVEL=${index % 2 ? 'info' : 'warn'}`)
    await whileServing(`Ctrl-C at ${moment}`, () => interrupt(t, deployment, moment))
  }
  t.equal(await whileServing('the next deployment', () => sh(DEPLOY)), undefined)

  await set('LOG_LEVEL=info')
  const both = async (): Promise<void> => {
    const first = run(t, DEPLOY, [], { cwd: deployment.cwd, env: process.env })
    await first.output(/api-2-1 {2}Recreate\n/)
    await set('LOG_LEVEL=warn')
    t.match(await sh(DEPLOY), 'waiting for another deployment from this folder')
  }
  t.equal(await whileServing('two deployments at once', both), undefined)
  const levels = await sh('for half in api api-2; do docker compose exec -T $half printenv LOG_LEVEL; done')
  t.equal(levels, 'warn\nwarn', 'the second deploys what it was started with')

  await set('LOG_LEVEL=info')
  await Promise.allSettled([sh(DEPLOY), sh('docker compose up --detach --wait')])
  t.equal(await whileServing('the deployment after one beside `up`', () => sh(DEPLOY)), undefined)
  for (const half of ['api', 'api-2']) t.equal((await containers(half)).length, 1, 'none is gone')
})

t.test('an image of the same version can be rolled back to', async (t) => {
  const { port, sh, set, versions } = await startDeployment(t)
  const images = (): Promise<string> =>
    sh("docker compose ps --quiet api api-2 | xargs docker inspect --format '{{.Image}}' | uniq")
  const first = await images()
  await sh('echo LABEL changed=yes >>Dockerfile')
  const output = await sh(DEPLOY)
  t.match(output.split('\n').at(-1), `serves at http://127.0.0.1:${port};`)
  t.not(await images(), first)
  await set('LOG_LEVEL=warn')
  await sh(DEPLOY)
  const [version = ''] = await versions()
  for (const _ of ['the way back', 'nothing']) {
    await sh(`${DEPLOY} ${version}`)
    t.equal(await images(), first)
  }
})

t.test('after a deployment and a renewal, HAProxy comes back when it or the engine ends', async (t) => {
  const { port, sh } = await startDeployment(t)
  const page = await readFile('docs/operating.md', 'utf8')
  const [hook = ''] = /^docker compose run .*kill -USR2.*$/m.exec(page) ?? []
  await sh(`docker compose kill --signal USR2 balancer && ${DEPLOY} && ${hook}`)
  const balancer = async (field: string): Promise<string> =>
    sh(`docker compose ps --all --quiet balancer | xargs docker inspect --format '{{.${field}}}'`)
  const isServed = (): Promise<boolean> =>
    createSender(port)('GET', '/readyz').then(
      ({ status }) => status === 200,
      () => false,
    )
  const restarted = async (): Promise<boolean> => {
    if ((await balancer('RestartCount')) !== '0') return await isServed()
    // HAProxy ignores the signal while it still reloads.
    await sh("docker compose exec -T balancer sh -c 'kill -TERM 1' || true")
    return false
  }
  await eventually('HAProxy', restarted, 120_000, 1000)

  const restart = process.env['RESTART_DOCKER']
  if (restart === undefined)
    return t.comment('RESTART_DOCKER, a command that restarts the engine, is not set: nothing restarts it')
  const started = await balancer('State.StartedAt')
  await sh(restart)
  await eventually(
    'the service',
    async () => (await balancer('State.StartedAt')) !== started && (await isServed()),
  )
})
