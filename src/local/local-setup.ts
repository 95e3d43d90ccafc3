import path from 'node:path'
import pg from 'pg'
import type { FixedKey } from '../api-keys/fixed-keys.ts'
import { makeApiKey } from '../api-keys/key.ts'
import { migrate } from '../database/migrate.ts'
import { inTransaction } from '../database/transaction.ts'
import { COLUMN_NAMES, columns } from '../inventory/entry/columns.ts'
import { countEntries } from '../inventory/transfer/export.ts'
import { loadOrCreateSecret } from './create-once.ts'
import { findRunningServer, startEmbeddedServer } from './embedded.ts'
import { sampleInventory } from './sample-inventory.ts'

/** The folder of the local setup, below the working directory. */
export const LOCAL_DIRECTORY = '.data'

/** The role of the server. The command line connects as the superuser. */
const SERVER_ROLE = 'inventory_server'

/** A database with sample entries, and an API key. */
export interface LocalSetup {
  readonly databaseUrl: string
  readonly key: FixedKey
  /** Resolves when the database has ended, also on its own, with a message for the operator. */
  readonly ended: Promise<string>
  /** Returns the welcome text for a service at an address: two commands to paste, and where to continue. */
  welcome(address: string, key: string): string
  stop(): Promise<void>
}

/**
 * Sets up the service for a first try without a database: starts an embedded PostgreSQL, migrates it, adds sample entries
 * if it has none, and creates an API key. Keeps everything in `directory` for the next start. When the signal is aborted, it
 * stops what it has started and rejects with the signal's reason.
 *
 * @param onStart called with the folder of the data, which is another one if root may not use `directory`
 * @throws {StartUpError} if the embedded PostgreSQL cannot run
 */
export async function setUpLocally(
  directory: string,
  signal: AbortSignal,
  onStart?: (place: string) => void,
): Promise<LocalSetup> {
  const server = await startEmbeddedServer({ directory: serverDirectory(directory), signal, onStart })
  try {
    const databaseUrl = await server.addRole(SERVER_ROLE)
    signal.throwIfAborted()
    await migrate({
      url: server.url,
      direction: 'up',
      roles: { server: SERVER_ROLE },
      signal,
    })
    await addSampleEntries(server.url, signal)
    const key = { name: 'local', key: await loadOrCreateSecret(path.join(directory, 'api-key'), makeApiKey) }
    return {
      databaseUrl,
      key,
      ended: server.ended.then(
        (how) => `The embedded PostgreSQL has ended: ${how}. Its log is ${server.directory}/postgres.log`,
      ),
      welcome: (address, apiKey) => welcomeText(address, server.directory, apiKey),
      stop: () => server.stop(),
    }
  } catch (error) {
    await server.stop()
    throw error
  }
}

/** Adds the sample entries to a table without entries. */
async function addSampleEntries(url: string, signal: AbortSignal): Promise<void> {
  await inTransaction({ url, readOnly: false, signal }, async (transaction) => {
    if ((await countEntries(transaction)) > 0) return
    const rows = sampleInventory.map((item) => {
      const values = columns.map(({ field }) => pg.escapeLiteral(`${item[field]}`))
      return `(${values.join()})`
    })
    await transaction.query(`INSERT INTO inventory (${COLUMN_NAMES}) VALUES ${rows.join()}`)
  })
}

/** Returns the address of the local database that another process is running in `directory`; undefined if none is. */
export function runningDatabase(directory: string): Promise<string | undefined> {
  return findRunningServer(serverDirectory(directory))
}

function serverDirectory(directory: string): string {
  return path.join(directory, 'postgres')
}

function welcomeText(address: string, directory: string, key: string): string {
  return `
  The Petstore inventory service is ready at ${address}

  List the stock levels:
    curl -H 'Authorization: Bearer ${key}' ${address}/v1/inventory

  Set the quantity of pet 1:
    curl -X PATCH -H 'Authorization: Bearer ${key}' \\
      -H 'Content-Type: application/json' -d '{"quantity": 20}' ${address}/v1/inventory/1

  Read about both, and try them in a browser:
    ${address}/docs

  An embedded PostgreSQL keeps the data in ${directory}
  Ctrl-C stops both.
`
}
