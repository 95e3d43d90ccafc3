import { parseAddress, type SessionTarget } from './address.ts'
import { DatabaseUnavailableError, ReadOnlyServerError } from './errors.ts'
import { isRefusal } from './failures.ts'
import { operatorClient } from './operator-client.ts'
import { askServer, matchesTarget, type SessionServer } from './session-server.ts'

/** How long one host may take to accept a connection, and to respond to a statement. */
const HOST_TIMEOUT_MS = 5000

/** Returns the error if no host of an address can be used: the only error, or an AggregateError of all. */
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
 * Returns the address of the first host that can be reached and matches `target_session_attrs`, for a program that uses a
 * single connection. The default for several hosts is `read-write`.
 *
 * @throws {DatabaseUnavailableError} if no host can be used, or one of them refuses the login
 */
export async function chooseHost(url: string): Promise<string> {
  const { hosts, target = hosts.length > 1 ? 'read-write' : 'any' } = parseAddress(url)
  if (hosts.length === 1 && target === 'any') return hosts[0].url
  const failed: { host: string; error: unknown }[] = []
  let fallback: string | undefined
  for (const host of hosts) {
    const client = operatorClient(host.url, { connectionTimeoutMillis: HOST_TIMEOUT_MS })
    try {
      await client.connect()
      const server = await askServer(client, HOST_TIMEOUT_MS)
      if (matchesTarget(server, target)) return host.url
      if (target === 'prefer-standby') fallback ??= host.url
      failed.push({ host: host.name, error: mismatch(server, target) })
    } catch (error) {
      // As in libpq: if one host refuses the login, the others would refuse it, too.
      if (isRefusal(error)) throw new DatabaseUnavailableError(error)
      failed.push({ host: host.name, error })
    } finally {
      await client.end()
    }
  }
  if (fallback !== undefined) return fallback
  throw new DatabaseUnavailableError(noUsableHost(failed))
}

/** Returns the error for a server that does not match `target_session_attrs`. */
function mismatch({ isReadOnly, isStandby }: SessionServer, target: SessionTarget): Error {
  if (isReadOnly && target !== 'standby') return new ReadOnlyServerError(isStandby)
  const kind = isReadOnly ? 'not a standby' : 'writable'
  return new Error(`the server is ${kind}, but target_session_attrs in the address is ${target}`)
}
