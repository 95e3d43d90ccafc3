import { type Command, InvalidArgumentError, Option } from 'commander'
import { hashApiKey, makeApiKey } from '../api-keys/key.ts'
import {
  type ApiKey,
  type ApiKeyRepository,
  apiKeyRepository,
  NameTakenError,
} from '../api-keys/repository.ts'
import { inTransaction, OutcomeUnknownError, type TransactionOptions } from '../database/transaction.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { untilInterrupted } from '../process/interruption.ts'
import { withDatabase } from './connection.ts'
import { readDuration, readLifetime } from './duration.ts'
import { CommandFailure } from './failure.ts'
import { OutputError, print } from './output.ts'
import { formatTable } from './table.ts'

/** Adds `inventory keys create|list|revoke|rotate`. */
export function addKeysCommands(program: Command, databaseUrl: () => Promise<string>): void {
  const transactionOptions = async (): Promise<TransactionOptions> => ({
    url: await databaseUrl(),
    readOnly: false,
    answerTimeoutMs: ANSWER_TIMEOUT_MS,
    ...untilInterrupted(),
  })

  const keys = program
    .command('keys')
    .description('create and revoke API keys')
    .addHelpText('after', '\nExample:\n  inventory keys create --name billing --expires 90d')

  keys
    .command('create')
    .description('make a key and print it, this once: only its SHA-256 is kept')
    // Not by requiredOption: that would complain of a missing name before it complains of "--nam".
    .option('--name <name>', 'whose key it is; the log of the server shows it (mandatory)', readName)
    .option('--expires <duration>', 'when it ends by itself, such as 90d, 24h or 30m', readLifetime)
    .option('--read-only', 'a key that may list the stock, and change nothing')
    .addHelpText('after', '\nExample:\n  inventory keys create --name billing --expires 90d')
    .action(async ({ name, expires, readOnly }: CreateOptions, command: Command) => {
      if (name === undefined) command.error("error: required option '--name <name>' not specified")
      await issueKey(await transactionOptions(), async (repository, digest) => {
        const made = await repository.create(name, digest, expires, readOnly).catch((error: unknown) => {
          throw error instanceof NameTakenError
            ? new CommandFailure(
                `${error.message} Replace it with "inventory keys rotate ${name}", or revoke it first.`,
              )
            : error
        })
        console.error(`The key ${describe(made)}. It is shown this once:`)
        return made
      })
    })

  keys
    .command('list')
    .description('show all keys, those that have ended too; times are in UTC')
    .option('--expiring <duration>', 'only keys that still work and end within this time', readLifetime)
    .option('--json', 'as a JSON array')
    .addHelpText('after', '\nExample:\n  inventory keys list --expiring 14d')
    .action(async ({ json, expiring }: { json?: true; expiring?: number }) => {
      const all = await withDatabase(await databaseUrl(), (database) => apiKeyRepository(database).list())
      const list = expiring === undefined ? all : all.filter((key) => endsWithin(key, expiring))
      if (json) await print(JSON.stringify(list, null, 2))
      else if (all.length === 0)
        console.error('There are no keys. Make one: inventory keys create --name ops')
      else if (list.length === 0) console.error('No key ends within this time.')
      else await print(tableOf(list))
    })

  keys
    .command('revoke')
    .description('end every key of a name; a running server refuses them within 5 seconds')
    .argument('<name>', 'whose keys', readName)
    .option('--id <id>', 'end only this one of them, as "inventory keys list" shows it', readId)
    .addHelpText('after', '\nExample:\n  inventory keys revoke billing')
    .action(async (name: string, { id }: { id?: string }) => {
      const ended = await inTransaction(await transactionOptions(), (transaction) =>
        apiKeyRepository(transaction).revoke(name, id),
      )
      if (ended.length === 0) throw noLiveKey(name, id)
      for (const key of ended) console.error(`The key ${key.name} (${key.id}) is revoked.`)
    })

  keys
    .command('rotate')
    .description('make a new key for a name and print it; the old one ends by itself')
    .argument('<name>', 'whose key', readName)
    .addOption(
      new Option('--overlap <duration>', 'for how long the old one still lets its holder in')
        .argParser(readDuration)
        .default(86_400, '24h'),
    )
    .option(
      '--expires <duration>',
      'when the new one ends; by default it lives as long as the old',
      readLifetime,
    )
    .addHelpText('after', '\nExample:\n  inventory keys rotate billing --overlap 24h')
    .action(async (name: string, { overlap, expires }: { overlap: number; expires?: number }) => {
      await issueKey(await transactionOptions(), async (repository, digest) => {
        const made = await repository.rotate(name, digest, overlap, expires)
        if (made === undefined) throw noLiveKey(name)
        for (const { id, state, revokedAt } of await repository.list(name)) {
          if (state === 'ending') console.error(`The old key (${id}) ends ${timeOf(revokedAt)}.`)
        }
        console.error(`The new key ${describe(made)}. It is shown this once:`)
        return made
      })
    })
}

/** How long PostgreSQL may take for a statement about keys, in milliseconds. */
const ANSWER_TIMEOUT_MS = 30_000

/**
 * Has `create` add a key, and prints it. The key is committed after it was written, so that no key stays that nobody has
 * seen; and an old one that it replaces does not end.
 */
async function issueKey(
  options: TransactionOptions,
  create: (repository: ApiKeyRepository, digest: Buffer) => Promise<ApiKey>,
): Promise<void> {
  const key = makeApiKey()
  let printed: ApiKey | undefined
  try {
    await inTransaction(options, async (transaction) => {
      const made = await create(apiKeyRepository(transaction), hashApiKey(key))
      await print(key)
      printed = made
    })
  } catch (error) {
    if (error instanceof OutputError) {
      const exitCode = error.isClosed ? exitCodes.outputClosed : exitCodes.failed
      throw new CommandFailure(`${error.message}. No key was made, and none has ended.`, exitCode)
    }
    if (printed !== undefined) console.error(warnOfPrinted(printed, error))
    throw error
  }
}

/** What became of a key that was printed, and then could not be committed. */
function warnOfPrinted({ name, id }: ApiKey, error: unknown): string {
  return error instanceof OutcomeUnknownError
    ? `Whether the key printed above works is unknown: see whether "inventory keys list" shows ${id}, and if so use it, or end it with "inventory keys revoke ${name} --id ${id}".`
    : 'The key printed above was not made, and lets nobody in; no other key has ended.'
}

interface CreateOptions {
  readonly name?: string
  readonly expires?: number
  readonly readOnly?: true
}

/** True for a key that works now and stops within so many seconds, for either reason. */
function endsWithin({ state, expiresAt, revokedAt }: ApiKey, seconds: number): boolean {
  if (state !== 'active' && state !== 'ending') return false
  const limit = Date.now() + seconds * 1000
  return [expiresAt, revokedAt].some((end) => end !== null && end.getTime() <= limit)
}

function describe({ name, id, expiresAt, readOnly }: ApiKey): string {
  return `${name} (${id})${readOnly ? ' may only read and' : ''} ${expiresAt === null ? 'does not expire' : `expires ${timeOf(expiresAt)}`}`
}

function noLiveKey(name: string, id?: string): CommandFailure {
  const which = id === undefined ? '' : ` with the id ${id}`
  return new CommandFailure(
    `There is no live key named "${name}"${which}. "inventory keys list" shows which there are.`,
  )
}

function tableOf(keys: readonly ApiKey[]): string {
  return formatTable(
    ['NAME', 'ID', 'STATE', 'CREATED', 'EXPIRES', 'REVOKED', 'LAST USED', 'ACCESS'],
    keys.map((key) => [
      key.name,
      key.id,
      key.state,
      timeOf(key.createdAt),
      timeOf(key.expiresAt),
      timeOf(key.revokedAt),
      timeOf(key.lastUsedAt),
      key.readOnly ? 'read-only' : 'read-write',
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
