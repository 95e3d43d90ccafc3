import type { Command } from 'commander'

/** Has every usage error end with the help that tells more. */
export function pointToHelp(command: Command, parents: readonly string[] = []): void {
  const names = [...parents, command.name()]
  command.showHelpAfterError(`Run "${names.join(' ')} --help" to see what there is.`)
  for (const child of command.commands) pointToHelp(child, names)
}
