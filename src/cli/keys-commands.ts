import type { Command } from 'commander'
import { hashApiKey, makeApiKey } from '../api-keys/key.ts'
import { type ApiKey, createKey, listKeys, revokeKeys, rotateKey } from '../api-keys/stored-keys.ts'
import type { Transaction } from '../database/admin/transaction.ts'
import { report } from '../process/terminal.ts'
import { matching, readDuration, readLifetime } from './arguments.ts'
import { change, read } from './database.ts'
import { CommandFailure } from './failure.ts'
import { print, printJson, printTable } from './output.ts'

const readName = matching(/^[A-Za-z0-9_-]{1,64}$/, '1 to 64 letters, digits, hyphens and underscores')

/** Adds `inventory keys create|list|revoke|rotate`. */
export function addKeysCommands(program: Command, databaseUrl: () => Promise<string>): void {
  const keys = program
    .command('keys')
    .description('create and revoke API keys')
    .addHelpText('after', '\nExample:\n  inventory keys create --name billing')

  keys
    .command('create')
    .description('create a key and print it once; only its SHA-256 is stored')
    .requiredOption('--name <name>', 'set the name of the key, which the server log shows', readName)
    .option('--expires <duration>', 'let the key expire after this time, such as 90d or 24h', readLifetime)
    .option('--read-only', 'let the key list the stock, but not change it')
    .addHelpText('after', '\nExample:\n  inventory keys create --name billing --expires 90d')
    .action(async (options: { name: string; expires?: string; readOnly?: true }) => {
      const { name, expires, readOnly } = options
      const exists = `A key named "${name}" already exists. Replace it with "inventory keys rotate ${name}", or revoke it first.`
      await issueKey(await databaseUrl(), exists, (transaction, digest) =>
        createKey(transaction, name, digest, expires, readOnly),
      )
    })

  keys
    .command('list')
    .description('list the keys that are neither expired nor revoked; times are in UTC')
    .option('--all', 'list expired and revoked keys, too')
    .option('--json', 'print a JSON array')
    .addHelpText('after', '\nExample:\n  inventory keys list')
    .action(async ({ all, json }: { all?: true; json?: true }) => {
      const found = await read(await databaseUrl(), listKeys)
      const listed = found.filter(({ state }) => all || !['expired', 'revoked'].includes(state))
      const rows = listed.map(({ name, id, state, createdAt, expiresAt, revokedAt, readOnly }) => {
        const access = readOnly ? 'read-only' : 'read-write'
        return [name, id, state, createdAt, expiresAt ?? '-', revokedAt ?? '-', access]
      })
      const headings = ['NAME', 'ID', 'STATE', 'CREATED', 'EXPIRES', 'REVOKED', 'ACCESS']
      await (json ? printJson(listed) : printTable(headings, rows))
    })

  keys
    .command('revoke')
    .description('revoke all keys of a name; a running server rejects them within 5 seconds')
    .argument('<name>', 'name of the keys')
    .option('--id <id>', 'revoke only the key with this id, which "inventory keys list" shows')
    .addHelpText('after', '\nExample:\n  inventory keys revoke billing')
    .action(async (name: string, { id }: { id?: string }) => {
      const revoked = await change(await databaseUrl(), (transaction) => revokeKeys(transaction, name, id))
      if (revoked.length === 0) throw new CommandFailure(noActiveKey(name, id))
      for (const key of revoked) report(`The key ${key.name} (${key.id}) is revoked.`)
    })

  keys
    .command('rotate')
    .description('create a new key for a name and print it; the old one is revoked after an overlap')
    .argument('<name>', 'name of the key')
    .option('--overlap <duration>', 'keep the old key valid for this time', readDuration, '24h')
    .option(
      '--expires <duration>',
      'let the new key expire after this time; the default is the lifetime of the old one',
      readLifetime,
    )
    .addHelpText('after', '\nExample:\n  inventory keys rotate billing --overlap 24h')
    .action(async (name: string, { overlap, expires }: { overlap: string; expires?: string }) => {
      await issueKey(await databaseUrl(), noActiveKey(name), (transaction, digest) =>
        rotateKey(transaction, name, digest, overlap, expires),
      )
    })
}

/**
 * Creates a key with `create` and prints it, or fails with the message. Commits only after printing: if the output fails, no unknown key
 * remains, and the one that it was to replace stays valid.
 */
async function issueKey(
  url: string,
  failure: string,
  create: (transaction: Transaction, digest: string) => Promise<ApiKey | undefined>,
): Promise<void> {
  const key = makeApiKey()
  await change(url, async (transaction) => {
    const created = await create(transaction, hashApiKey(key))
    if (created === undefined) throw new CommandFailure(failure)
    const { name, id, expiresAt, readOnly } = created
    const expiry = expiresAt === null ? 'does not expire' : `expires ${expiresAt}`
    report(`The key ${name} (${id})${readOnly ? ' is read-only and' : ''} ${expiry}. It is shown only once:`)
    await print(key)
  })
}

function noActiveKey(name: string, id?: string): string {
  return `There is no active key named "${name}"${id ? ' with that id' : ''}. "inventory keys list --all" lists all keys.`
}
