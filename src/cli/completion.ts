import { Argument, type Command } from 'commander'
import { print } from './output.ts'

const shells = ['bash', 'zsh'] as const

/** Adds `inventory completion`. */
export function addCompletionCommand(program: Command): void {
  program
    .command('completion')
    .description('print a completion script for a shell')
    .addArgument(new Argument('<shell>', 'bash or zsh').choices(shells))
    .addHelpText('after', '\nExample:\n  inventory completion bash >/etc/bash_completion.d/inventory')
    .action(async (shell: (typeof shells)[number]) => {
      const words = wordsOf(program, [])
      await print(shell === 'bash' ? bashScript(words) : zshScript(words))
    })
}

/** The words that complete a command: its subcommands and options. */
interface Words {
  readonly path: string
  readonly words: readonly string[]
}

function wordsOf(command: Command, parents: readonly string[]): Words[] {
  const visible = command.createHelp().visibleCommands(command)
  const options = command.createHelp().visibleOptions(command)
  return [
    {
      path: parents.join(' '),
      words: [...visible.map((child) => child.name()), ...options.flatMap(({ long }) => long ?? [])],
    },
    ...command.commands.flatMap((child) => wordsOf(child, [...parents, child.name()])),
  ]
}

/** The branches of a shell's `case` over the command before the cursor, each setting the words that complete it. */
function caseOf(all: readonly Words[], indent: string): string {
  return all
    .map(({ path, words }) => `${indent}${path === '' ? "''" : `'${path}'`}) words='${words.join(' ')}' ;;`)
    .join('\n')
}

/** A pattern of a shell's `case` that matches every command. */
function commandsOf(all: readonly Words[]): string {
  return all.flatMap(({ path }) => (path === '' ? [] : `'${path}'`)).join('|')
}

function bashScript(all: readonly Words[]): string {
  return `# bash completion of inventory
_inventory() {
  local path='' words='' word
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "\${path:+$path }$word" in ${commandsOf(all)}) path="\${path:+$path }$word" ;; esac
  done
  case "$path" in
${caseOf(all, '    ')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o bashdefault -o default -F _inventory inventory`
}

function zshScript(all: readonly Words[]): string {
  return `#compdef inventory
_inventory() {
  local place='' list='' word
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "\${place:+$place }$word" in ${commandsOf(all)}) place="\${place:+$place }$word" ;; esac
  done
  case "$place" in
${caseOf(all, '    ').replaceAll("words='", "list='")}
  esac
  compadd -- \${=list} || true
  _files
}
if [ "\${funcstack[1]}" = _inventory ]; then _inventory "$@"; else compdef _inventory inventory; fi`
}
