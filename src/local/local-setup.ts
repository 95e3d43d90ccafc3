import { randomBytes } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { makeApiKey } from '../api-keys/key.ts'
import { grantPrivileges } from '../database/admin/grants.ts'
import { migrate } from '../database/admin/migrate.ts'
import { printableText } from '../process/terminal.ts'
import { findRunningServer, startEmbeddedServer } from './embedded.ts'
import { createServerFolder, loadOrCreateSecret, serverFolder } from './folder.ts'
import { toLogFile } from './server-process.ts'

/** The folder of the server, unless root starts it, and the file of the API key. */
const SERVER = '.data/postgres'
const API_KEY = '.data/api-key'

/** The role of the service. The command line connects as the superuser. */
const ROLE = 'inventory_server'

const CREATE_ROLE = `
  DO $$ BEGIN
    CREATE ROLE ${ROLE} LOGIN;
  EXCEPTION WHEN duplicate_object THEN NULL; END $$`

/** Adds entries to an empty table, one of them with a petId that a JavaScript number cannot represent. */
const ADD_SAMPLE_ENTRIES = `
  INSERT INTO inventory (pet_id, quantity, status)
  SELECT * FROM (
    VALUES (1, 12, 'available'), (2, 3, 'available'), (3, 0, 'sold'), (4, 1, 'pending'),
      (9007199254740993, 7, 'available')
  ) AS sample
  WHERE NOT EXISTS (SELECT FROM inventory)`

/**
 * Sets up the service for a first try without a database: starts an embedded PostgreSQL, migrates it, adds sample entries if it has
 * none, and creates an API key. Keeps everything for the next start. The signal stops what has started; the promise rejects with its
 * reason.
 *
 * @throws {OperatorError} if the embedded PostgreSQL cannot run
 */
export async function setUpLocally(signal: AbortSignal) {
  await mkdir(path.dirname(API_KEY), { recursive: true })
  const directory = await createServerFolder(SERVER)
  process.stdout.write(printableText([`Starting PostgreSQL in ${directory}…`]))
  const server = await startEmbeddedServer(directory, {}, signal)
  try {
    const databaseUrl = new URL(server.url)
    databaseUrl.username = ROLE
    databaseUrl.password = randomBytes(24).toString('base64url')
    await server.query(`${CREATE_ROLE}; ALTER ROLE ${ROLE} PASSWORD '${databaseUrl.password}'`)
    await migrate({ url: server.url, direction: 'up', signal })
    await grantPrivileges({ url: server.url, signal }, { server: ROLE })
    await server.query(ADD_SAMPLE_ENTRIES)
    signal.throwIfAborted()
    const key = await loadOrCreateSecret(API_KEY, makeApiKey)
    return {
      databaseUrl: databaseUrl.href,
      key: { name: 'local', key },
      /** Resolves when the database has ended, with a message for the operator. */
      ended: server.ended.then(
        (how) => `The embedded PostgreSQL has exited: ${how}. Its log is ${toLogFile(directory)}`,
      ),
      stop: server.stop,
      /** Returns the lines that welcome the user of a service at an address. */
      welcome: (address: string, apiKey: string) =>
        `
  The Petstore inventory service is ready at ${address}

  List the stock levels:
    curl -H 'Authorization: Bearer ${apiKey}' ${address}/v1/inventory

  Set the quantity of pet 1:
    curl -X PATCH -H 'Authorization: Bearer ${apiKey}' \\
      -H 'Content-Type: application/json' -d '{"quantity": 20}' ${address}/v1/inventory/1

  Read about both, and try them in a browser:
    ${address}/docs

  An embedded PostgreSQL keeps the data in ${directory}
  Ctrl-C stops both.`.split('\n'),
    }
  } catch (error) {
    await server.stop()
    throw error
  }
}

/** Returns the address of the local database that another process runs; undefined if none does. */
export function runningDatabase(): Promise<string | undefined> {
  return findRunningServer(serverFolder(SERVER))
}
