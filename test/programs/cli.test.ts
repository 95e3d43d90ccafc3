import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'
import t from 'tap'
import { runCommand } from '../support/command.ts'
import { temporaryFolder } from '../support/program.ts'

t.test('a build can be run as a program, as npx and a link to it do', async (t) => {
  const { stdout } = await promisify(execFile)('dist/cli.js', ['--version'])
  const { version } = JSON.parse(await readFile('package.json', 'utf8'))
  t.equal(stdout, `${version}\n`)
})

t.test('a help text is printed with exit code 0, a usage error or no command with 2', async (t) => {
  for (const [args, expected] of [
    [['keys', 'create', '--help'], { code: 0, stdout: 'Usage: inventory keys create', stderr: '' }],
    [['keys', 'creat'], { code: 2, stdout: '', stderr: /unknown command 'creat'/ }],
    [[], { code: 2, stdout: '', stderr: /Usage: inventory/ }],
  ] as const) {
    const outcome = await runCommand(t, args)
    t.match(outcome, expected)
    t.equal(outcome.code === 0 ? outcome.stderr : outcome.stdout, '')
  }
})

t.test('config shows what takes effect, without secrets, and what is wrong', async (t) => {
  const env = { DATABASE_URL: 'postgres://u:secret@host/db?schema=x', LOG_LEVEL: 'warn' }
  const right = await runCommand(t, ['config'], { env })
  t.match(right, { code: 0, stderr: 'inventory: schema in DATABASE_URL has no effect\n' })
  t.match(right.stdout, /^SETTING +VALUE +SOURCE\n/)
  t.match(right.stdout, /^DATABASE_URL +postgres:\/\/u:\*\*\*@host\/db\?schema=\*\*\* +set$/m)
  t.match(right.stdout, /^PORT +3000 +default$/m)
  const wrong = await runCommand(t, ['config', '--json'], { env: { ...env, PORT: 'x', NODE_ENV: 'prod' } })
  t.match(wrong, { code: 1, stderr: /inventory: PORT must be an integer from 0 to 65535, not "x"\n$/ })
  t.match(JSON.parse(wrong.stdout), { errors: [/^NODE_ENV must be/, /^PORT must be/] })
})

t.test('a message names the variable that was used', async (t) => {
  const cwd = await temporaryFolder(t)
  const address = 'postgres://u:secret@127.0.0.1:1/x'
  for (const [env, message] of [
    [{ DATABASE_URL: address }, /Check .*, and DATABASE_URL\./],
    [{ DATABASE_URL: 'x', OPERATOR_DATABASE_URL: address }, /Check .*, and OPERATOR_DATABASE_URL\./],
    [{ DATABASE_URL: address, PORT: '127.0.0.1:3000' }, /Check .*, and DATABASE_URL\./],
    [
      { DATABASE_URL: `${address}?sslmode=verify-full&sslrootcert=/nope` },
      /DATABASE_URL must name files that can be read: ENOENT/,
    ],
  ] as const) {
    const { code, stderr } = await runCommand(t, ['status'], { env, cwd })
    t.equal(code, 1)
    t.match(stderr, message)
  }
})
