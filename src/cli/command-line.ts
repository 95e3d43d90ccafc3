import { Command } from 'commander'
import { version } from '../config/version.ts'
import { report } from '../process/terminal.ts'
import { addExportCommand } from './export-command.ts'
import { exitCodeHelp } from './failure.ts'
import { addHistoryCommands } from './history-commands.ts'
import { addImportCommand } from './import-command.ts'
import { addKeysCommands } from './keys-commands.ts'
import { addMigrateCommands } from './migrate-commands.ts'
import { addStatusCommand } from './status-command.ts'

/** Returns the command line with all of its commands. Nothing is read before a command runs. */
export function commandLine(databaseUrl: () => Promise<string>): Command {
  const program = new Command('inventory')
    .description('manage the API keys, stock data and database schema of the Petstore inventory service')
    .addHelpText(
      'after',
      '\nUses the database at OPERATOR_DATABASE_URL, or else DATABASE_URL, from the environment or a file .env;\nif neither is set, the one that "npm start" is running in this folder.',
    )
    .addHelpText('after', `\nExample:\n  inventory keys create --name ops\n${exitCodeHelp}`)
    .version(version, '--version', 'print the version')
    .showHelpAfterError('Add --help for usage.')
    .exitOverride()
    .configureOutput({ writeErr: (text) => report(...text.trimEnd().split('\n')) })
  addKeysCommands(program, databaseUrl)
  addImportCommand(program, databaseUrl)
  addExportCommand(program, databaseUrl)
  addStatusCommand(program, databaseUrl)
  addHistoryCommands(program, databaseUrl)
  addMigrateCommands(program, databaseUrl)
  return program
}
