import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import { type Deployment, startDeployment, underLoad } from '../support/deployment.ts'
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
  for (const [wrong, message] of [
    ['CERTIFICATE=/nowhere', '/nowhere'],
    ['LOG_LEVEL=verbose', 'LOG_LEVEL'],
    ['RATE_LIMIT=0', 'RATE_LIMIT'],
    ['RATE_LIMIT=1.5', 'RATE_LIMIT'],
    ['RATE_LIMIT=many', 'RATE_LIMIT'],
    ['PROXIES=somebody', 'somebody'],
    [`PUBLISH=127.0.0.1:${taken}`, `127.0.0.1:${taken}`],
  ] as const) {
    await set(wrong)
    t.match(await whileServing(wrong, () => sh(DEPLOY)), message, `${wrong} is refused`)
    t.strictSame(await servers(), before, `${wrong} changes nothing`)
    await sh("sed -i '$d' .env")
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

  for (const other of [DEPLOY, 'docker compose up --detach --wait']) {
    await set('LOG_LEVEL=info')
    await Promise.allSettled([sh(DEPLOY), sh(other)])
    t.equal(await whileServing(`the deployment after one beside ${other}`, () => sh(DEPLOY)), undefined)
    for (const half of ['api', 'api-2']) t.equal((await containers(half)).length, 1, 'none is gone')
  }
})
