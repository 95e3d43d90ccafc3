import t from 'tap'
import { startProgram } from '../support/program.ts'

const commands = [
  [],
  ['keys'],
  ['keys', 'create'],
  ['keys', 'list'],
  ['keys', 'revoke'],
  ['keys', 'rotate'],
  ['import'],
  ['export'],
  ['status'],
  ['migrate'],
  ['migrate', 'up'],
  ['migrate', 'down'],
  ['migrate', 'create'],
]

t.test('--help at every level goes to standard output, with an example', async (t) => {
  for (const command of commands) {
    await t.test(command.join(' '), async (t) => {
      const { code, stdout, stderr } = await (await startProgram(t, 'cli', { args: [...command, '--help'] }))
        .ended
      t.equal(code, 0)
      t.equal(stderr, '')
      t.match(stdout, ['Usage: inventory', ...command].join(' '))
      t.match(stdout, /\nExample:\n {2}inventory /)
    })
  }
})

t.test('what it does not know is refused with the nearest name and exit code 2', async (t) => {
  const faults: [args: string[], message: RegExp][] = [
    [['migrat'], /unknown command 'migrat'\n\(Did you mean migrate\?\)/],
    [['keys', 'creat'], /unknown command 'creat'\n\(Did you mean create\?\)/],
    [['keys', 'list', '--jso'], /unknown option '--jso'\n\(Did you mean --json\?\)/],
    [['keys', 'create', '--nam', 'ops'], /unknown option '--nam'\n\(Did you mean --name\?\)/],
    [['keys', 'create'], /required option '--name <name>' not specified/],
    [['import', 'x.csv', '--dry-rum'], /unknown option '--dry-rum'\n\(Did you mean --dry-run\?\)/],
    [['import', 'x.csv', '--mode', 'merge'], /Allowed choices are upsert, insert, replace/],
    [['import'], /missing required argument 'file'/],
    [['migrate', 'up', '--hel'], /unknown option '--hel'\n\(Did you mean --help\?\)/],
    [['migrate', 'up', '1', '2'], /too many arguments/],
  ]
  for (const [args, message] of faults) {
    const { code, stdout, stderr } = await (await startProgram(t, 'cli', { args })).ended
    t.equal(code, 2, args.join(' '))
    t.equal(stdout, '')
    t.match(stderr, message)
  }
})

t.test('without a command it shows what there is, as a usage fault', async (t) => {
  const { code, stdout, stderr } = await (await startProgram(t, 'cli')).ended
  t.equal(code, 2)
  t.equal(stdout, '')
  t.match(stderr, /Usage: inventory/)
})
