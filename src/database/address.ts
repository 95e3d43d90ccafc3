import { parse } from 'pg-connection-string'
import { OperatorError } from './operator-error.ts'

const SHAPE =
  'be an address like postgres://user:password@host:5432/database, without "#" and without "@" after the first slash, and with a ' +
  'port up to 65535: percent-encode the special characters of the password'

const SEVERAL_HOSTS =
  'name one host: the address of a proxy or a name that leads to the server that takes writes, as the service does not choose ' +
  'among several hosts; see "High availability" in docs/integrations.md'

/**
 * The parameters with an effect. Those that the service overrides are not among them, such as the time limits, and
 * `application_name`: `migrations/grants.sql` tells the versions by it.
 */
export const effectiveParameters = /^(host|port|user|password|options|ssl\w*|uselibpqcompat)$/

/**
 * Parses an address. Returns its URL, and its name: host, port and database, without anything secret. The URL has no other parameters
 * than the effective ones, because pg takes a parameter such as `connection` for an object of the program.
 *
 * @param variable the setting that contains the address
 * @throws {OperatorError} if the address is invalid, or does not lead to one server; no part of the address is in the message
 */
export function parseAddress(url: string, variable = 'The address'): { url: string; name: string } {
  // No unencoded password may reach what is shown: the host, the path or the parameters.
  const parts = /^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?([^/?#]*)[^?#@]*)(?:\?([^#@]*))?$/.exec(url)
  if (parts === null) throw new OperatorError(`${variable} must ${SHAPE}`)
  const [, base = '', authority = '', query = ''] = parts
  const parameters = new URLSearchParams(query)
  for (const name of [...parameters.keys()]) if (!effectiveParameters.test(name)) parameters.delete(name)
  const place = new URLSearchParams([...parameters].filter(([name]) => name === 'host' || name === 'port'))
  if (/,|%2C/i.test(`${authority}${place}`)) throw new OperatorError(`${variable} must ${SEVERAL_HOSTS}`)
  try {
    const { host, port, database } = parse(`${base}?${place}`)
    const number = port || '5432'
    const name = `${host || 'localhost'}:${number}${database ? `/${database}` : ''}`
    if (/^\d{1,5}$/.test(number) && Number(number) <= 65535) return { url: `${base}?${parameters}`, name }
  } catch {}
  throw new OperatorError(`${variable} must ${SHAPE}`)
}
