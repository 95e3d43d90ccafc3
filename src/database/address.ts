import { parse } from 'pg-connection-string'
import { OperatorError } from './operator-error.ts'

const SHAPE =
  'be an address like postgres://user:password@host:5432/database, without "#" and without "@" after the first slash, and with a ' +
  'port up to 65535: percent-encode the special characters of the password'

const SEVERAL_HOSTS =
  'name one host: the address of a proxy or a name that leads to the server that takes writes, as the service does not choose ' +
  'among several hosts; see "High availability" in docs/integrations.md'

/**
 * Returns the name of an address: host, port and database, without anything secret.
 *
 * @param variable the setting that contains the address
 * @throws {OperatorError} if the address is invalid, or does not lead to one server; no part of the address is in the message
 */
export function nameOfAddress(url: string, variable = 'The address'): string {
  // No unencoded password may reach what is shown: the host, the path or the parameters.
  const parts = /^(postgres(?:ql)?:\/\/(?:[^/?#]*@)?([^/?#]*)[^?#@]*)(?:\?([^#@]*))?$/.exec(url)
  if (parts === null) throw new OperatorError(`${variable} must ${SHAPE}`)
  const [, base = '', authority = '', query = ''] = parts
  const isPlace = ([name]: readonly [string, string]): boolean => name === 'host' || name === 'port'
  const place = new URLSearchParams([...new URLSearchParams(query)].filter(isPlace))
  if (/,|%2C/i.test(`${authority}${place}`)) throw new OperatorError(`${variable} must ${SEVERAL_HOSTS}`)
  try {
    const { host, port, database } = parse(`${base}?${place}`)
    const number = port || '5432'
    if (/^\d{1,5}$/.test(number) && Number(number) <= 65535)
      return `${host || 'localhost'}:${number}${database ? `/${database}` : ''}`
  } catch {}
  throw new OperatorError(`${variable} must ${SHAPE}`)
}
