import { type Command, CommanderError } from 'commander'
import t from 'tap'
import { commandLine } from '../../src/cli/commands.ts'

interface Printed {
  /** Commander's own: 0 after a help text that was asked for. */
  readonly exitCode: number | undefined
  readonly stdout: string
  readonly stderr: string
}

const withChildren = (command: Command): Command[] => [command, ...command.commands.flatMap(withChildren)]

const build = (): Command =>
  commandLine(
    () => Promise.reject(new Error('no command must run')),
    () => ({}),
  )

/** Parses arguments that no command can run with. */
async function parse(...args: string[]): Promise<Printed> {
  const program = build()
  let stdout = ''
  let stderr = ''
  for (const command of withChildren(program)) {
    command.configureOutput({
      writeOut: (text) => (stdout += text),
      writeErr: (text) => (stderr += text),
    })
  }
  const failure: unknown = await program.parseAsync(args, { from: 'user' }).catch((error: unknown) => error)
  return { exitCode: failure instanceof CommanderError ? failure.exitCode : undefined, stdout, stderr }
}

/** The words of each command, none for the command line itself. */
function paths(command: Command, parents: readonly string[] = []): string[][] {
  return [[...parents], ...command.commands.flatMap((child) => paths(child, [...parents, child.name()]))]
}

t.test('--help at every level goes to standard output, with an example', async (t) => {
  const commands = paths(build())
  t.ok(commands.length >= 16, `${commands.length} commands`)
  for (const command of commands) {
    const { exitCode, stdout, stderr } = await parse(...command, '--help')
    t.strictSame([exitCode, stderr], [0, ''], command.join(' '))
    t.match(stdout, ['Usage: inventory', ...command].join(' '))
    t.match(stdout, /\nExample:\n {2}inventory /)
  }
})

t.test('an unknown command or option is refused with the nearest name', async (t) => {
  const faults: [args: string[], message: RegExp][] = [
    [['migrat'], /unknown command 'migrat'\n\(Did you mean migrate\?\)/],
    [['keys', 'creat'], /unknown command 'creat'\n\(Did you mean create\?\)/],
    [['keys', 'list', '--jso'], /unknown option '--jso'\n\(Did you mean --json\?\)/],
    [['import', 'x.csv', '--dry-rum'], /unknown option '--dry-rum'\n\(Did you mean --dry-run\?\)/],
    [['import', 'x.csv', '--mode', 'merge'], /Allowed choices are upsert, replace/],
    [['import'], /missing required argument 'file'/],
    [['migrate', 'up', '--hel'], /unknown option '--hel'\n\(Did you mean --help\?\)/],
    [['migrate', 'up', '1', '2'], /too many arguments/],
  ]
  for (const [args, message] of faults) {
    const { exitCode, stdout, stderr } = await parse(...args)
    t.strictSame([exitCode, stdout], [1, ''], args.join(' '))
    t.match(stderr, message)
    t.match(stderr, /\nAdd --help for usage\.\n$/)
  }
})
