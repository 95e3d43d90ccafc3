import path from 'node:path'
import type { FixedKey } from '../api-keys/fixed-keys.ts'
import { makeApiKey } from '../api-keys/key.ts'
import { migrate } from '../database/migrations.ts'
import { openDatabase, requestLimits } from '../database/pool.ts'
import { inventoryRepository } from '../inventory/repository.ts'
import { findRunningServer, startEmbeddedServer } from './embedded.ts'
import { keptSecret } from './kept-secret.ts'
import { sampleInventory } from './sample-inventory.ts'

/** Where the local setup keeps its data, below the working directory. */
export const LOCAL_DIRECTORY = '.data'

/** As whom the server connects; the command line works as the superuser. */
const SERVER_ROLE = 'inventory_server'

/** What stands in for the setup that nobody has made: a database with entries, and a key. */
export interface LocalSetup {
  readonly databaseUrl: string
  readonly key: FixedKey
  /** Where the data is. */
  readonly directory: string
  stop(): Promise<void>
}

/**
 * Makes the service ready to try on one machine: an embedded PostgreSQL with the newest schema, a few entries where
 * there are none, and a key. All of it is kept in `directory` for the next start.
 *
 * @throws {EmbeddedServerError} where the embedded PostgreSQL cannot run
 */
export async function setUpLocally(directory: string): Promise<LocalSetup> {
  const server = await startEmbeddedServer({ directory: serverDirectory(directory) })
  try {
    const databaseUrl = await server.addRole(SERVER_ROLE)
    await migrate({ url: server.url, direction: 'up', roles: { server: SERVER_ROLE }, log: () => {} })
    const database = openDatabase({
      url: server.url,
      size: 1,
      limits: requestLimits,
      onConnectionLost: () => {},
    })
    await inventoryRepository(database, database).addIfEmpty(sampleInventory)
    await database.close()
    const key = { name: 'local', key: await keptSecret(path.join(directory, 'api-key'), makeApiKey) }
    return { databaseUrl, key, directory: server.directory, stop: () => server.stop() }
  } catch (error) {
    await server.stop()
    throw error
  }
}

/** The address of the database that another process has set up in `directory` and runs now; undefined where none does. */
export function runningDatabase(directory: string): Promise<string | undefined> {
  return findRunningServer(serverDirectory(directory))
}

function serverDirectory(directory: string): string {
  return path.join(directory, 'postgres')
}

/** What a newcomer reads once the service listens at `address`: two commands to paste and where to read on. */
export function welcome(address: string, { directory }: LocalSetup, key: string): string {
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
