import { type Command, Option } from 'commander'
import { hashApiKey, makeApiKey } from '../api-keys/key.ts'
import {
  type ApiKey,
  createKey,
  endOf,
  listKeys,
  lockHolders,
  revokeKeys,
  rotateKey,
} from '../api-keys/stored-keys.ts'
import { hasCause } from '../database/error-meaning.ts'
import { OutcomeUnknownError } from '../database/errors.ts'
import { inTransaction, type Transaction } from '../database/transaction.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { abortOnSignals } from '../process/signals.ts'
import { withDatabase } from './connection.ts'
import { readDuration, readLifetime } from './duration.ts'
import { CommandFailure } from './failure.ts'
import { formatTable } from './format.ts'
import { matching } from './matching.ts'
import { OutputError, print, report } from './output.ts'

/** How long PostgreSQL may take to respond to a statement on keys. */
const ANSWER_TIMEOUT_MS = 30_000

const readName = matching(/^[A-Za-z0-9_-]{1,64}$/, '1 to 64 letters, digits, hyphens and underscores')
const readId = matching(/^[0-9a-f]{12}$/, '12 hexadecimal digits')

/** Adds `inventory keys create|list|revoke|rotate`. */
export function addKeysCommands(program: Command, databaseUrl: () => Promise<string>): void {
  const keys = program
    .command('keys')
    .description('create and revoke API keys')
    .addHelpText('after', '\nExample:\n  inventory keys create --name billing --expires 90d')

  keys
    .command('create')
    .description('create a key and print it, once: only its SHA-256 is stored')
    .requiredOption('--name <name>', 'set the name of the key, which the server log shows', readName)
    .option('--expires <duration>', 'let the key expire after this time, such as 90d or 24h', readLifetime)
    .option('--read-only', 'let the key list the stock, but not change it')
    .addHelpText('after', '\nExample:\n  inventory keys create --name billing --expires 90d')
    .action(async ({ name, expires, readOnly }: CreateOptions) => {
      await issueKey(await databaseUrl(), async (transaction, digest) => {
        const made = await createKey(transaction, name, digest, expires, readOnly)
        if (made !== undefined) return made
        throw new CommandFailure(
          `A key named "${name}" exists already. Replace it with "inventory keys rotate ${name}", or revoke it first.`,
        )
      })
    })

  keys
    .command('list')
    .description('list the valid keys; times are in UTC')
    .option('--all', 'list expired and revoked keys, too')
    .option('--json', 'print a JSON array')
    .addHelpText('after', '\nExample:\n  inventory keys list')
    .action(async ({ all, json }: { all?: true; json?: true }) => {
      const found = await withDatabase(await databaseUrl(), listKeys)
      const shown = all ? found : found.filter(({ state }) => state === 'active' || state === 'ending')
      if (json) await print(JSON.stringify(shown, null, 2))
      else if (shown.length > 0) await print(tableOf(shown))
      else if (found.length === 0)
        report('There are no keys. To create one: inventory keys create --name ops')
      const hidden = found.length - shown.length
      if (hidden > 0) report(`Expired and revoked keys, not shown without --all: ${hidden}`)
    })

  keys
    .command('revoke')
    .description('revoke all keys of a name; a running server rejects them within 5 seconds')
    .argument('<name>', 'name of the keys', readName)
    .option('--id <id>', 'revoke only the key with this id, which "inventory keys list" shows', readId)
    .addHelpText('after', '\nExample:\n  inventory keys revoke billing')
    .action(async (name: string, { id }: { id?: string }) => {
      const revoked = await changeKeys(await databaseUrl(), (transaction) =>
        revokeKeys(transaction, name, id),
      )
      if (revoked.length === 0) throw noActiveKey(name, id)
      for (const key of revoked) report(`The key ${key.name} (${key.id}) is revoked.`)
    })

  keys
    .command('rotate')
    .description('create a new key for a name and print it; the old one is revoked after an overlap')
    .argument('<name>', 'name of the key', readName)
    .addOption(
      new Option('--overlap <duration>', 'keep the old key valid for this time')
        .argParser(readDuration)
        .default(86_400, '24h'),
    )
    .option('--expires <duration>', 'by default, the new key has the lifetime of the old one', readLifetime)
    .addHelpText('after', '\nExample:\n  inventory keys rotate billing --overlap 24h')
    .action(async (name: string, { overlap, expires }: { overlap: number; expires?: number }) => {
      await issueKey(await databaseUrl(), async (transaction, digest) => {
        const made = await rotateKey(transaction, name, digest, overlap, expires)
        if (made === undefined) throw noActiveKey(name)
        for (const key of await listKeys(transaction, name)) {
          if (key.state === 'ending') report(`The old key (${key.id}) is valid until ${timeOf(endOf(key))}.`)
          // Both are the time of this transaction.
          else if (key.revokedAt === made.createdAt) report(`The old key (${key.id}) is revoked.`)
        }
        return made
      })
    })
}

/** Runs `work` in a transaction that waits for locks on keys for a few seconds, and then names the sessions that hold them. */
async function changeKeys<Result>(
  url: string,
  work: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  const options = { url, readOnly: false, answerTimeoutMs: ANSWER_TIMEOUT_MS, ...abortOnSignals() }
  try {
    return await inTransaction(options, async (transaction) => {
      await transaction.query("SET LOCAL lock_timeout = '3s'")
      return work(transaction)
    })
  } catch (error) {
    if (!hasCause(error, 'locked')) throw error
    const holders = await withDatabase(url, lockHolders)
    throw new CommandFailure(
      `Another session has locked the key; nothing was changed. ${holders.join(' ')} ` +
        'Run the command again when it has ended, or end it with SELECT pg_terminate_backend(<process>).',
    )
  }
}

/**
 * Creates a key with `create` and prints it. Commits only after printing: if the output fails, no unknown key remains and
 * the key that it was to replace stays valid.
 */
async function issueKey(
  url: string,
  create: (transaction: Transaction, digest: Buffer) => Promise<ApiKey>,
): Promise<void> {
  const key = makeApiKey()
  let printed: ApiKey | undefined
  try {
    await changeKeys(url, async (transaction) => {
      const made = await create(transaction, hashApiKey(key))
      const { name, id, expiresAt, readOnly } = made
      const expiry = expiresAt === null ? 'does not expire' : `expires ${timeOf(expiresAt)}`
      report(
        `The key ${name} (${id})${readOnly ? ' is read-only and' : ''} ${expiry}. It is shown only once:`,
      )
      await print(key)
      printed = made
    })
  } catch (error) {
    if (error instanceof OutputError) {
      const exitCode = error.isClosed ? exitCodes.outputClosed : exitCodes.failed
      throw new CommandFailure(`${error.message}. No key was created, and none was revoked.`, exitCode)
    }
    if (printed !== undefined) report(warnOfPrinted(printed, error))
    throw error
  }
}

/** Says what happened to a key that was printed and then could not be committed. */
function warnOfPrinted({ name, id }: ApiKey, error: unknown): string {
  return error instanceof OutcomeUnknownError
    ? `It is unknown whether the key printed above works. If "inventory keys list" shows ${id}, use the key, or revoke it with "inventory keys revoke ${name} --id ${id}".`
    : 'The key printed above was not created and does not work; no other key was revoked.'
}

interface CreateOptions {
  readonly name: string
  readonly expires?: number
  readonly readOnly?: true
}

function noActiveKey(name: string, id?: string): CommandFailure {
  const which = id === undefined ? '' : ` with the id ${id}`
  return new CommandFailure(
    `There is no active key named "${name}"${which}. "inventory keys list --all" lists all keys.`,
  )
}

function tableOf(keys: readonly ApiKey[]): string {
  return formatTable(
    ['NAME', 'ID', 'STATE', 'CREATED', 'EXPIRES', 'REVOKED', 'ACCESS'],
    keys.map((key) => [
      key.name,
      key.id,
      key.state,
      timeOf(key.createdAt),
      timeOf(key.expiresAt),
      timeOf(key.revokedAt),
      key.readOnly ? 'read-only' : 'read-write',
    ]),
  )
}

/** A time to the second. */
function timeOf(time: string | null): string {
  return time?.replace(/\.\d+/, '') ?? '-'
}
