import { type Command, Option } from 'commander'
import { hashApiKey, makeApiKey } from '../api-keys/key.ts'
import {
  type ApiKey,
  createKey,
  listKeys,
  lockHolders,
  revokeKeys,
  rotateKey,
} from '../api-keys/stored-keys.ts'
import { inTransaction, type Transaction } from '../database/admin/transaction.ts'
import { hasCause } from '../database/causes.ts'
import { printable } from '../process/printable.ts'
import { abortOnSignals } from '../process/signals.ts'
import { matching, readDuration, readLifetime } from './arguments.ts'
import { withDatabase } from './database.ts'
import { CommandFailure, report } from './failure.ts'
import { formatTable } from './format.ts'
import { print } from './output.ts'

const readName = matching(/^[A-Za-z0-9_-]{1,64}$/, '1 to 64 letters, digits, hyphens and underscores')

/** Adds `inventory keys create|list|revoke|rotate`. */
export function addKeysCommands(program: Command, databaseUrl: () => Promise<string>): void {
  const keys = program
    .command('keys')
    .description('create and revoke API keys')
    .addHelpText('after', '\nExample:\n  inventory keys create --name billing')

  keys
    .command('create')
    .description('create a key and print it, once: only its SHA-256 is stored')
    .requiredOption('--name <name>', 'set the name of the key, which the server log shows', readName)
    .option('--expires <duration>', 'let the key expire after this time, such as 90d or 24h', readLifetime)
    .option('--read-only', 'let the key list the stock, but not change it')
    .addHelpText('after', '\nExample:\n  inventory keys create --name billing --expires 90d')
    .action(async (options: { name: string; expires?: number; readOnly?: true }) => {
      const { name, expires, readOnly } = options
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
    .description('list the keys that are neither expired nor revoked; times are in UTC')
    .option('--all', 'list expired and revoked keys, too')
    .option('--json', 'print a JSON array')
    .addHelpText('after', '\nExample:\n  inventory keys list')
    .action(async ({ all, json }: { all?: true; json?: true }) => {
      const found = await withDatabase(await databaseUrl(), listKeys)
      const shown = found.filter(({ state }) => all || !['expired', 'revoked'].includes(state))
      const rows = shown.map(({ name, id, state, createdAt, expiresAt, revokedAt, readOnly }) => {
        const access = readOnly ? 'read-only' : 'read-write'
        return [name, id, state, createdAt ?? '-', expiresAt ?? '-', revokedAt ?? '-', access]
      })
      const headings = ['NAME', 'ID', 'STATE', 'CREATED', 'EXPIRES', 'REVOKED', 'ACCESS']
      await print(json ? JSON.stringify(shown, null, 2) : formatTable(headings, rows))
    })

  keys
    .command('revoke')
    .description('revoke all keys of a name; a running server rejects them within 5 seconds')
    .argument('<name>', 'name of the keys')
    .option('--id <id>', 'revoke only the key with this id, which "inventory keys list" shows')
    .addHelpText('after', '\nExample:\n  inventory keys revoke billing')
    .action(async (name: string, { id }: { id?: string }) => {
      const revoked = await changeKeys(await databaseUrl(), (transaction) =>
        revokeKeys(transaction, name, id),
      )
      if (revoked.length === 0) throw noActiveKey(id === undefined ? name : `${name}" with the id "${id}`)
      for (const key of revoked) report(`The key ${key.name} (${key.id}) is revoked.`)
    })

  keys
    .command('rotate')
    .description('create a new key for a name and print it; the old one is revoked after an overlap')
    .argument('<name>', 'name of the key')
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
        if (made !== undefined) return made
        throw noActiveKey(name)
      })
    })
}

/** Runs `work` in a transaction that waits for locks on keys for a few seconds, and then names the sessions that hold them. */
async function changeKeys<Result>(
  url: string,
  work: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  try {
    return await inTransaction({ url, readOnly: false, ...abortOnSignals() }, async (transaction) => {
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
  create: (transaction: Transaction, digest: string) => Promise<ApiKey>,
): Promise<void> {
  const key = makeApiKey()
  await changeKeys(url, async (transaction) => {
    const { name, id, expiresAt, readOnly } = await create(transaction, hashApiKey(key))
    const expiry = expiresAt === null ? 'does not expire' : `expires ${expiresAt}`
    report(`The key ${name} (${id})${readOnly ? ' is read-only and' : ''} ${expiry}. It is shown only once:`)
    await print(key)
  })
}

function noActiveKey(name: string): CommandFailure {
  return new CommandFailure(
    `There is no active key named "${printable(name)}". "inventory keys list --all" lists all keys.`,
  )
}
