import { type Command, InvalidArgumentError } from 'commander'
import { hashApiKey, makeApiKey } from '../api-keys/key.ts'
import { type ApiKey, apiKeyRepository, NameTakenError } from '../api-keys/repository.ts'
import { withDatabase } from './connection.ts'
import { readDuration, readLifetime } from './duration.ts'
import { CommandFailure } from './failure.ts'
import { formatTable } from './table.ts'

/** Adds `inventory keys create|list|revoke|rotate`. */
export function addKeysCommands(program: Command, databaseUrl: () => Promise<string>): void {
  const keys = program
    .command('keys')
    .description('make and end the API keys that let callers in')
    .addHelpText('after', '\nExample:\n  inventory keys create --name billing --expires 90d')

  keys
    .command('create')
    .description('make a key and print it, this once: only its SHA-256 is kept')
    // Not by requiredOption: that would complain of a missing name before it complains of "--nam".
    .option('--name <name>', 'whose key it is; the log of the server shows it (mandatory)', readName)
    .option('--expires <duration>', 'when it ends by itself, such as 90d, 24h or 30m', readLifetime)
    .addHelpText('after', '\nExample:\n  inventory keys create --name billing --expires 90d')
    .action(async ({ name, expires }: { name?: string; expires?: number }, command: Command) => {
      if (name === undefined) command.error("error: required option '--name <name>' not specified")
      const key = makeApiKey()
      const made = await withDatabase(await databaseUrl(), (database) =>
        apiKeyRepository(database)
          .create(name, hashApiKey(key), expires)
          .catch((error: unknown) => {
            throw error instanceof NameTakenError
              ? new CommandFailure(
                  `${error.message} Replace it with "inventory keys rotate ${name}", or revoke it first.`,
                )
              : error
          }),
      )
      console.error(`The key ${describe(made)}. It is shown this once:`)
      console.log(key)
    })

  keys
    .command('list')
    .description('show all keys, those that have ended too; times are in UTC')
    .option('--json', 'as a JSON array')
    .addHelpText('after', '\nExample:\n  inventory keys list')
    .action(async ({ json }: { json?: true }) => {
      const list = await withDatabase(await databaseUrl(), (database) => apiKeyRepository(database).list())
      if (json) console.log(JSON.stringify(list, null, 2))
      else if (list.length === 0)
        console.error('There are no keys. Make one: inventory keys create --name ops')
      else console.log(tableOf(list))
    })

  keys
    .command('revoke')
    .description('end every key of a name; a running server refuses them within 5 seconds')
    .argument('<name>', 'whose keys', readName)
    .option('--id <id>', 'end only this one of them, as "inventory keys list" shows it', readId)
    .addHelpText('after', '\nExample:\n  inventory keys revoke billing')
    .action(async (name: string, { id }: { id?: string }) => {
      const ended = await withDatabase(await databaseUrl(), (database) =>
        apiKeyRepository(database).revoke(name, id),
      )
      if (ended.length === 0) throw noLiveKey(name, id)
      for (const key of ended) console.error(`The key ${key.name} (${key.id}) is revoked.`)
    })

  keys
    .command('rotate')
    .description('make a new key for a name and print it; the old one ends by itself')
    .argument('<name>', 'whose key', readName)
    .option('--overlap <duration>', 'for how long the old one still lets its holder in', readDuration, 86_400)
    .option(
      '--expires <duration>',
      'when the new one ends; by default it lives as long as the old',
      readLifetime,
    )
    .addHelpText('after', '\nExample:\n  inventory keys rotate billing --overlap 24h')
    .action(async (name: string, { overlap, expires }: { overlap: number; expires?: number }) => {
      const key = makeApiKey()
      const { made, old } = await withDatabase(await databaseUrl(), async (database) => {
        const repository = apiKeyRepository(database)
        const made = await repository.rotate(name, hashApiKey(key), overlap, expires)
        return { made, old: (await repository.list()).filter((other) => other.name === name) }
      })
      if (made === undefined) throw noLiveKey(name)
      for (const { id, state, revokedAt } of old) {
        if (state === 'ending') console.error(`The old key (${id}) ends ${timeOf(revokedAt)}.`)
      }
      console.error(`The new key ${describe(made)}. It is shown this once:`)
      console.log(key)
    })
}

function describe({ name, id, expiresAt }: ApiKey): string {
  return `${name} (${id}) ${expiresAt === null ? 'does not expire' : `expires ${timeOf(expiresAt)}`}`
}

function noLiveKey(name: string, id?: string): CommandFailure {
  const which = id === undefined ? '' : ` with the id ${id}`
  return new CommandFailure(
    `There is no live key named "${name}"${which}. "inventory keys list" shows which there are.`,
  )
}

function tableOf(keys: readonly ApiKey[]): string {
  return formatTable(
    ['NAME', 'ID', 'STATE', 'CREATED', 'EXPIRES', 'REVOKED', 'LAST USED'],
    keys.map((key) => [
      key.name,
      key.id,
      key.state,
      timeOf(key.createdAt),
      timeOf(key.expiresAt),
      timeOf(key.revokedAt),
      timeOf(key.lastUsedAt),
    ]),
  )
}

/** A time to the second, as ISO 8601 writes it. */
function timeOf(time: Date | null): string {
  return time === null ? '-' : `${time.toISOString().slice(0, -'.000Z'.length)}Z`
}

function readName(text: string): string {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(text))
    throw new InvalidArgumentError('It must be 1 to 64 letters, digits, hyphens and underscores.')
  return text
}

function readId(text: string): string {
  if (!/^[0-9a-f]{12}$/.test(text)) throw new InvalidArgumentError('It must be 12 hexadecimal digits.')
  return text
}
