const TARGETS = ['any', 'read-write'] as const

/**
 * Which servers a session accepts: `target_session_attrs` of libpq (PostgreSQL manual, section 32.1.2). The other values of libpq
 * are of no use here, because the service writes.
 */
export type SessionTarget = (typeof TARGETS)[number]

/** One of the servers in an address. */
export interface Host {
  /** A `postgres://` address with only this host. */
  readonly url: string
  /** Host and port, for messages. */
  readonly name: string
}

/** A parsed `postgres://` address. */
export interface DatabaseAddress {
  /** In the order in which they are tried. */
  readonly hosts: readonly [Host, ...Host[]]
  /** Undefined if the address has no `target_session_attrs`. */
  readonly target: SessionTarget | undefined
}

/** An address is invalid. The message completes the sentence "the address must …" and contains no part of the address. */
export class AddressError extends Error {
  override readonly name = 'AddressError'
}

const SHAPE =
  'be an address like postgres://user:password@host:5432/database, with special characters of the password percent-encoded'

/** Parameters that are parsed here. If there are several hosts, they are removed from the addresses for pg. */
const HOST_PARAMETERS = ['host', 'port', 'target_session_attrs', 'load_balance_hosts']

/** The parameters with an effect. Those that the service overrides, such as `connect_timeout`, are not among them. */
export const effectiveParameters: ReadonlySet<string> = new Set([
  ...HOST_PARAMETERS,
  'application_name',
  'idle_in_transaction_session_timeout',
  'lock_timeout',
  'options',
  'password',
  'query_timeout',
  'ssl',
  'sslcert',
  'sslkey',
  'sslmode',
  'sslnegotiation',
  'sslrootcert',
  'statement_timeout',
  'uselibpqcompat',
  'user',
])

/**
 * Parses a connection URI as libpq does, including several hosts (PostgreSQL manual, sections 32.1.1.2 and 32.1.1.3). The URLs
 * of the hosts have no other parameters than the effective ones, because pg takes a parameter such as `connection` for an
 * object of the program.
 *
 * @throws {AddressError} if the address is invalid
 */
export function parseAddress(url: string): DatabaseAddress {
  const parts = /^(postgres(?:ql)?:\/\/)([^/?#]*@)?([^/?#]*)([^?#]*)(?:\?([^#]*))?/.exec(url)
  if (parts === null) throw new AddressError(SHAPE)
  const [, scheme = '', login = '', authority = '', encodedPath = '', query = ''] = parts
  // pg's parser decodes the database name with decodeURI, which leaves these characters encoded.
  const path = encodedPath.replace(/%(?:2[4BCF]|3[ABD]|40|26)/gi, decodeURIComponent)
  const parameters = new URLSearchParams(query)
  const hostList = parameters.get('host') ?? authority
  const portList = parameters.get('port') ?? ''
  const target = targetOf(parameters)
  if (!portList.split(',').every((port) => /^\d{0,5}$/.test(port) && Number(port) <= 65535))
    throw new AddressError('have a port from 1 to 65535')
  const used = query.split('&').filter((pair) => effectiveParameters.has(parameterName(pair)))
  if (!`${hostList}${portList}`.includes(',')) {
    const { host, port } = splitPort(authority)
    const end = used.length > 0 ? `?${used.join('&')}` : ''
    // A URL cannot have a login without a host, although the parameter `host` replaces it.
    const place = authority === '' && login !== '' ? 'localhost' : authority
    const one = `${scheme}${login}${place}${path}${end}`
    if (!URL.canParse(one)) throw new AddressError(SHAPE)
    return { hosts: [{ url: one, name: nameOf(parameters.get('host') ?? host, portList || port) }], target }
  }

  const given = parameters.has('host') ? hostList.split(',').map(encodeHost) : hostList.split(',')
  const ports = portList.split(',')
  if (ports.length > 1 && ports.length !== given.length)
    throw new AddressError('name one port for all of its hosts, or one for each')
  const others = used.filter((pair) => !HOST_PARAMETERS.includes(parameterName(pair)))
  const hosts = given.map((entry, index): Host => {
    const { host, port } = splitPort(entry)
    if (host === '') throw new AddressError('name a host before and after each comma')
    const portOfHost = (ports.length > 1 ? ports[index] : ports[0]) || port
    const end = others.join('&')
    const one = `${scheme}${login}${host}${portOfHost ? `:${portOfHost}` : ''}${path}${end ? `?${end}` : ''}`
    if (!URL.canParse(one)) throw new AddressError(`${SHAPE}; several hosts are separated by commas`)
    return { url: one, name: nameOf(host, portOfHost) }
  })
  const [first, ...rest] = hosts
  if (first === undefined) throw new AddressError(SHAPE)
  return { hosts: [first, ...rest], target }
}

/** Returns the hosts and the database name of an address for logs, without the user and the password. */
export function hostAndDatabaseOf(url: string): { host: string; database: string } {
  const parts = /^\w+:\/\/(?:[^/?#]*@)?([^/?#]*)\/?([^?#]*)\??([^#]*)/.exec(url)
  const [, authority = '', database = '', parameters] = parts ?? []
  return { host: new URLSearchParams(parameters).get('host') ?? authority, database }
}

function targetOf(parameters: URLSearchParams): SessionTarget | undefined {
  if ((parameters.get('load_balance_hosts') ?? 'disable') !== 'disable')
    throw new AddressError('not set load_balance_hosts: its hosts are tried in their order')
  const given = parameters.get('target_session_attrs')
  if (given === null) return undefined
  const target = TARGETS.find((name) => name === given)
  if (target === undefined) throw new AddressError(`have ${TARGETS.join(' or ')} as target_session_attrs`)
  return target
}

/** The decoded name of a `name=value` pair; empty if there is none. */
function parameterName(pair: string): string {
  const [name = ''] = new URLSearchParams(pair).keys()
  return name
}

/** Splits `host:port`, `[::1]:port` or `%2Fpath:port`. The port is empty if it is missing. */
function splitPort(entry: string): { host: string; port: string } {
  const [, host = '', port = ''] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(entry) ?? []
  return { host, port }
}

/** Encodes a host from the parameter `host`, where socket directories and IPv6 addresses are written without encoding. */
function encodeHost(host: string): string {
  return host.includes(':') ? `[${host}]` : encodeURIComponent(host)
}

function nameOf(host: string, port: string): string {
  // Unlike decodeURIComponent, URLSearchParams accepts a percent sign that encodes nothing.
  const decoded = new URLSearchParams(`host=${host}`).get('host')
  return `${decoded || 'localhost'}:${port || 5432}`
}
