import { cp, mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { run, temporaryFolder } from '../support/program.ts'

/** Creates a checkout with a `.env` whose `docker` is a shell command. Returns a function that starts `deploy.sh` in it. */
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

const EXTERNAL = 'COMPOSE_FILE=docker-compose.yml:ops/compose.external-database.yml\n'

t.test('a name in .env without an effect is refused', async (t) => {
  const names = [
    'HOST',
    'NODE_ENV',
    'DATABASE_POOLER',
    'OWNER_DATABASE_URL',
    'COMPOSE_PROFILE',
    'OTEL_LOG_LEVL',
    'replicas',
  ]
  for (const line of [...names.map((name) => `${name}=secret`), 'REPLICAS secret', '\uFEFFHOST=secret']) {
    const { stderr, code } = await (await checkout(t, `${line}\nREPLICAS=3\n`, 'exit 9'))().ended
    t.match(stderr, `\n  line 1: ${/\w+/.exec(line)}\n`)
    t.notMatch(stderr, 'secret')
    t.equal(code, 1)
  }
})

t.test(
  'names that compose, its files or their users know are accepted, after a byte order mark, too',
  async (t) => {
    const names = [
      'REPLICAS',
      'PORT',
      'CERTIFICATE',
      'PUBLISH_HTTPS',
      'OTEL_LOG_LEVEL',
      'NODE_OPTIONS',
      'COMPOSE_PROFILES',
    ]
    const env = names.map((name) => `${name}=x`).join('\n')
    for (const accepted of [
      `\uFEFF${env}\n`,
      `# HOST=\n\n  export PORT = 3\r\n${env}`,
      `${EXTERNAL}DATABASE_POOLER=transaction\nOWNER_DATABASE_URL=x\n`,
    ]) {
      const { stderr } = await (await checkout(t, accepted, 'exit 9'))().ended
      t.equal(stderr, 'deploy.sh: compose refuses the settings\n')
    }
  },
)

t.test('while a deployment runs, another one is told which', async (t) => {
  const deploy = await checkout(t, '', 'echo at work >&2; exec sleep 60')
  const first = deploy()
  await first.output(/at work/)
  const { stderr, code } = await deploy().ended
  t.match(stderr, `deploy.sh: another deployment is running: process ${first.process.pid} of `)
  t.equal(code, 1)
})
