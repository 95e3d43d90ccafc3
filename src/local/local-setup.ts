import { randomBytes } from 'node:crypto'
import { readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { FixedKey } from '../api-keys/fixed-keys.ts'
import { makeApiKey } from '../api-keys/key.ts'
import { migrate } from '../database/migrate.ts'
import { findRunningServer, startEmbeddedServer } from './embedded.ts'
import { logOf } from './server-process.ts'

/** The folder of the local setup, below the working directory. */
export const LOCAL_DIRECTORY = '.data'

/** The role of the server. The command line connects as the superuser. */
const SERVER_ROLE = 'inventory_server'

const CREATE_ROLE = `
  DO $$ BEGIN
    CREATE ROLE ${SERVER_ROLE} LOGIN;
  EXCEPTION WHEN duplicate_object THEN NULL;
  END $$`

/** Adds entries to an empty table, one of them with a petId that a JavaScript number cannot represent. */
const ADD_SAMPLE_ENTRIES = `
  INSERT INTO inventory (pet_id, quantity, status)
  SELECT * FROM (
    VALUES (1, 12, 'available'), (2, 3, 'available'), (3, 0, 'sold'), (4, 1, 'pending'),
      (9007199254740993, 7, 'available')
  ) AS sample
  WHERE NOT EXISTS (SELECT FROM inventory)`

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
    const databaseUrl = new URL(server.url)
    databaseUrl.username = SERVER_ROLE
    databaseUrl.password = randomBytes(24).toString('base64url')
    await server.query(`${CREATE_ROLE}; ALTER ROLE ${SERVER_ROLE} PASSWORD '${databaseUrl.password}'`)
    await migrate({ url: server.url, direction: 'up', roles: { server: SERVER_ROLE }, signal })
    await server.query(ADD_SAMPLE_ENTRIES)
    signal.throwIfAborted()
    const key = { name: 'local', key: await loadOrCreateKey(path.join(directory, 'api-key')) }
    return {
      databaseUrl: databaseUrl.href,
      key,
      ended: server.ended.then(
        (how) => `The embedded PostgreSQL has ended: ${how}. Its log is ${logOf(server.directory)}`,
      ),
      welcome: (address, apiKey) => welcomeText(address, server.directory, apiKey),
      stop: () => server.stop(),
    }
  } catch (error) {
    await server.stop()
    throw error
  }
}

/** Reads the API key, or creates one. An empty file, which a full disk can leave, counts as none. */
async function loadOrCreateKey(file: string): Promise<string> {
  const existing = (await readFile(file, 'utf8').catch(() => '')).trim()
  if (existing !== '') return existing
  const key = makeApiKey()
  await rm(file, { force: true })
  await writeFile(file, `${key}\n`, { mode: 0o600, flag: 'wx' })
  return key
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
