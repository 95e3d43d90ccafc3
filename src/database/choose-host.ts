import { parseAddress } from './address.ts'
import { DatabaseUnavailableError, ReadOnlyServerError } from './errors.ts'
import { isRefusal } from './failures.ts'
import { noUsableHost } from './no-usable-host.ts'
import { operatorClient } from './operator-client.ts'
import { askServer } from './session-server.ts'

/** How long one host may take to accept a connection, and to respond to a statement. */
const HOST_TIMEOUT_MS = 5000

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
  for (const host of hosts) {
    const client = operatorClient(host.url, { connectionTimeoutMillis: HOST_TIMEOUT_MS })
    try {
      await client.connect()
      const { isReadOnly, isStandby } = await askServer(client, HOST_TIMEOUT_MS)
      if (target === 'any' || !isReadOnly) return host.url
      failed.push({ host: host.name, error: new ReadOnlyServerError(isStandby) })
    } catch (error) {
      // As in libpq: if one host refuses the login, the others would refuse it, too.
      if (isRefusal(error)) throw new DatabaseUnavailableError(error)
      failed.push({ host: host.name, error })
    } finally {
      await client.end()
    }
  }
  throw new DatabaseUnavailableError(noUsableHost(failed))
}
