import pg from 'pg'
import { parseAddress } from './address.ts'
import { DatabaseUnavailableError, isRefusal, ReadOnlyServerError } from './failures.ts'
import { askServer, fits } from './session-server.ts'

/** How long one host may take to answer a command, in milliseconds. */
const HOST_LIMIT_MS = 5000

/** Why no host of an address can be used: the one error, or all of them in one. */
export function noUsableHost(failed: readonly { readonly host: string; readonly error: unknown }[]): unknown {
  if (failed.length === 1) return failed[0]?.error
  const reasons = failed.map(
    ({ host, error }) => `${host}: ${error instanceof Error ? error.message : error}`,
  )
  return new AggregateError(
    failed.map(({ error }) => error),
    `no host can be used: ${reasons.join('; ')}`,
  )
}

/**
 * The address of one host, for a program that works on a single connection: the first that can be reached and is what
 * `target_session_attrs` asks for. Where several hosts are named without it, that is the one that takes writes.
 *
 * @throws {DatabaseUnavailableError} where there is none, or one refuses the login
 */
export async function chooseHost(url: string): Promise<string> {
  const { hosts, target = hosts.length > 1 ? 'read-write' : 'any' } = parseAddress(url)
  if (hosts.length === 1 && target === 'any') return hosts[0].url
  const failed: { host: string; error: unknown }[] = []
  for (const wanted of target === 'prefer-standby' ? (['standby', 'any'] as const) : [target]) {
    for (const host of hosts) {
      const client = new pg.Client({
        connectionString: host.url,
        application_name: 'petstore-inventory cli',
        connectionTimeoutMillis: HOST_LIMIT_MS,
      })
      client.on('error', () => {})
      try {
        await client.connect()
        const server = await askServer(client, HOST_LIMIT_MS)
        if (fits(server, wanted)) return host.url
        failed.push({
          host: host.name,
          error: server.isReadOnly
            ? new ReadOnlyServerError(server.isStandby)
            : new Error(`the server takes writes, and the address asks for one that is ${wanted}`),
        })
      } catch (error) {
        // As libpq: what one host says about the login, the others would say as well.
        if (isRefusal(error)) throw new DatabaseUnavailableError(error)
        failed.push({ host: host.name, error })
      } finally {
        await client.end()
      }
    }
  }
  throw new DatabaseUnavailableError(noUsableHost(failed))
}
