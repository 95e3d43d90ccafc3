import type { Command } from 'commander'
import { describeSettings } from '../config/load-config.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { printable } from '../process/printable.ts'
import { report } from './failure.ts'
import { formatTable } from './format.ts'
import { print } from './output.ts'

/** Adds `inventory config`. */
export function addConfigCommand(
  program: Command,
  readEnvironment: () => Readonly<Record<string, string | undefined>>,
): void {
  program
    .command('config')
    .description('show the settings in effect, without secrets, and report errors in them')
    .option('--json', 'print a JSON object')
    .addHelpText('after', '\nExample:\n  inventory config')
    .action(async ({ json }: { json?: true }) => {
      const found = describeSettings(readEnvironment())
      const rows = found.settings.map(({ name, value = '-' }) => [name, value])
      await print(json ? JSON.stringify(found, null, 2) : formatTable(['SETTING', 'VALUE'], rows))
      for (const line of [...found.warnings, ...found.errors]) report(`inventory: ${printable(line)}`)
      if (found.errors.length > 0) process.exitCode = exitCodes.failed
    })
}
