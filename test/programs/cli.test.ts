import type { Command } from 'commander'
import t from 'tap'
import { commandLine } from '../../src/cli/command-line.ts'
import { runCommand } from '../support/command.ts'
import { temporaryFolder } from '../support/program.ts'

/** The words of each command, a space before each; none for the command line itself. */
function paths(command: Command, parents = ''): string[] {
  return [parents, ...command.commands.flatMap((child) => paths(child, `${parents} ${child.name()}`))]
}

t.test('--help at every level goes to standard output, with an example', async (t) => {
  const program = commandLine(async () => '')
  for (const command of paths(program)) {
    const { code, stdout, stderr } = await runCommand(t, `${command} --help`)
    t.strictSame([code, stderr], [0, ''], command)
    t.match(stdout, `Usage: inventory${command}`)
    t.match(stdout, /\nExample:\n {2}inventory /, command)
  }
})

t.test('wrong usage has exit code 2, and an unknown name gets the nearest one', async (t) => {
  for (const [words, message] of [
    ['', /^Usage: inventory/],
    ['migrat', /unknown command 'migrat'\n\(Did you mean migrate\?\)/],
    ['keys creat', /unknown command 'creat'\n\(Did you mean create\?\)/],
    ['keys list --jso', /unknown option '--jso'\n\(Did you mean --json\?\)/],
    ['import x.csv --mode merge', /Allowed choices are upsert, replace/],
    ['import', /missing required argument 'file'/],
    ['migrate up 1', /too many arguments/],
  ] as const) {
    const outcome = await runCommand(t, words)
    t.match(outcome, { code: 2, stdout: '', stderr: message }, words)
    if (words !== '') t.match(outcome.stderr, /\nAdd --help for usage\.\n$/, words)
  }
})

t.test('blanks at the beginning of a line of .env mean nothing', async (t) => {
  const url = 'postgres://nobody@127.0.0.1:1/'
  for (const before of [
    ' ',
    '\t',
    '  # a comment, "quoted',
    ' \r',
    '\t\r',
    ' \n \t\n',
    '\uFEFF',
    'A=1\r\n  \r',
    'A="1\n 2"\n ',
  ]) {
    for (const text of ['DATABASE_URL=', ' DATABASE_URL=', '\texport\tDATABASE_URL = ']) {
      const cwd = await temporaryFolder(t, { '.env': `${before}\n${text}${url}x\n` })
      const { stderr } = await runCommand(t, 'keys list', { cwd })
      t.match(stderr, /ECONNREFUSED.*DATABASE_URL/, JSON.stringify(before + text))
    }
  }
  const cwd = await temporaryFolder(t, { '.env': ' NODE_ENV="a\n\n  # b\n\tc=d "\n' })
  const { stderr } = await runCommand(t, 'keys list', { cwd })
  t.match(stderr, /, not "a\\n\\n {2}# b\\n\\tc=d"\n$/, 'a value in quotes stays as it is written')
})

t.test('a line of .env that is no setting is an error that names it, and not its text', async (t) => {
  for (const [text, wrong] of [
    ['# PORT: 1\n\nexport PORT=3001\r\n  LOG_LEVEL = "info"\nAPI_KEYS="one,\ntwo"\nHOST=\n', ''],
    ['PORT=3001\nLOG_LEVEL: secret\n', '2'],
    ['API_KEYS="one,\nPORT: 1"\nsecret\n=secret\nset PORT=3001', '3, 4, 5'],
  ] as const) {
    const cwd = await temporaryFolder(t, { '.env': text })
    const { stderr } = await runCommand(t, 'keys list', { cwd })
    const error = /^inventory: \.env must have NAME=value on each line, .*; see line (.*)\n$/.exec(stderr)
    t.equal(error?.[1] ?? '', wrong, text)
  }
})
