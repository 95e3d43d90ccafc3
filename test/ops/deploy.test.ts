import { cp, mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { run, temporaryFolder } from '../support/program.ts'

/** Creates a checkout with a `.env` and a stand-in for `docker`. Returns a function that starts `deploy.sh` in it. */
async function checkout(t: Test, env: string, docker: string) {
  const folder = await temporaryFolder(t)
  const file = (name: string): string => path.join(folder, name)
  await cp('ops', file('ops'), { recursive: true })
  await cp('docker-compose.yml', file('docker-compose.yml'))
  await writeFile(file('.env'), env)
  await mkdir(file('bin'))
  await writeFile(file('bin/docker'), `#!/bin/sh\n${docker}\n`, { mode: 0o755 })
  return () => run(t, file('ops/deploy.sh'), [], { env: { PATH: `${file('bin')}:${process.env['PATH']}` } })
}

const errorOf = async (t: Test, env: string): Promise<string> =>
  (await (await checkout(t, env, 'exit 9'))().ended).stderr

t.test('a name in .env without an effect is refused', async (t) => {
  const names = 'HOST NODE_ENV DATABASE_POOLER OWNER_DATABASE_URL COMPOSE_PROFILE replicas'.split(' ')
  for (const line of [...names.map((name) => `${name}=secret`), 'REPLICAS secret', '\uFEFFHOST=secret']) {
    const error = await errorOf(t, `${line}\nREPLICAS=3\n`)
    t.match(error, `\n  line 1: ${/\w+/.exec(line)}\n`)
    t.notMatch(error, 'secret')
  }
})

t.test('a name in .env with an effect is accepted', async (t) => {
  for (const env of [
    '\uFEFFREPLICAS=3\nPUBLISH_HTTPS=1\nOTEL_LOG_LEVEL=x\nNODE_OPTIONS=x\nCOMPOSE_PROFILES=backup\n',
    '# HOST=\n\n  export PORT = 3\r\nCERTIFICATE=x',
    'COMPOSE_FILE=docker-compose.yml:ops/compose.external-database.yml\nDATABASE_POOLER=transaction\n',
  ])
    t.equal(await errorOf(t, env), 'deploy.sh: compose refuses the settings\n')
})

t.test('while a deployment runs, another one is told which', async (t) => {
  const deploy = await checkout(t, '', 'echo at work >&2; exec sleep 60')
  const first = deploy()
  await first.output(/at work/)
  const { stderr, code } = await deploy().ended
  t.match(stderr, `deploy.sh: another deployment is running: process ${first.process.pid} of `)
  t.equal(code, 1)
})
