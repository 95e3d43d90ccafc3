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
    ['history 2x', /a petId, such as 17/],
    ['history prune', /required option '--keep <duration>' not specified/],
    ['keys create', /required option '--name <name>' not specified/],
    ['keys create --name a.b', /1 to 64 letters, digits, hyphens and underscores/],
    ['keys create --name x --expires 0d', /a whole number from 1 to 9999/],
    ['keys create --name x --expires 20160m', /a whole number from 1 to 9999/],
    ['keys create --name x --expires -1d', /such as 90d or 24h/],
    ['keys rotate x --overlap 24', /a whole number from 0 to 9999/],
  ] as const) {
    const outcome = await runCommand(t, words)
    t.match(outcome, { code: 2, stdout: '', stderr: message }, words)
    if (words !== '') t.match(outcome.stderr, /\nAdd --help for usage\.\n$/, words)
  }
})

t.test('blanks at the beginning of a line of .env mean nothing, but in a value in quotes', async (t) => {
  const address = 'DATABASE_URL=postgres://nobody@127.0.0.1:1/x\n'
  const run = async (text: string | Buffer): Promise<string> =>
    (await runCommand(t, 'keys list', { cwd: await temporaryFolder(t, { '.env': text }) })).stderr
  for (const before of [' ', '\t', '  # a comment, "quoted', ' \r', ' \n \t\n', '\uFEFF', 'A="1\n 2"\n ']) {
    for (const blanks of ['', ' ', '\texport\t']) {
      const text = `${before}\n${blanks}${address}`
      t.match(await run(text), /ECONNREFUSED.*DATABASE_URL/, JSON.stringify(text))
    }
  }
  const utf16 = Buffer.from('\uFEFFPORT=http\r\n', 'utf16le')
  t.match(await run(utf16), /^inventory: \.env cannot be read: The encoded data was not valid[^\n]*\n$/)
  t.match(await run(' NODE_ENV="a\n\n  # b\n\tc=d "\n'), /, not "a\\n\\n {2}# b\\n\\tc=d"\n$/)
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
