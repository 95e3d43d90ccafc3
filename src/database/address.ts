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

/** The parameters with an effect. Those that the service overrides, such as `connect_timeout`, are not among them. */
export const effectiveParameters: ReadonlySet<string> = new Set([
  'application_name',
  'host',
  'idle_in_transaction_session_timeout',
  'load_balance_hosts',
  'lock_timeout',
  'options',
  'password',
  'port',
  'query_timeout',
  'ssl',
  'sslcert',
  'sslkey',
  'sslmode',
  'sslnegotiation',
  'sslrootcert',
  'statement_timeout',
  'target_session_attrs',
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
  const target = targetOf(parameters)
  const places = placesIn(authority, parameters)
  for (const name of [...parameters.keys()]) if (!effectiveParameters.has(name)) parameters.delete(name)
  const [first, ...rest] = places.map(({ host, port }): Host => {
    parameters.set('host', host)
    parameters.set('port', port)
    // A URL cannot have a login without a host, although the parameter `host` replaces it.
    const one = `${scheme}${login}${login && 'localhost'}${path}?${parameters}`
    if (!URL.canParse(one)) throw new AddressError(SHAPE)
    return { url: one, name: `${host || 'localhost'}:${port || 5432}` }
  })
  if (first === undefined) throw new AddressError(SHAPE)
  return { hosts: [first, ...rest], target }
}

/** Returns the hosts and the database name of an address for logs, without the user and the password. */
export function hostAndDatabaseOf(url: string): { host: string; database: string } {
  const parts = /^\w+:\/\/(?:[^/?#]*@)?([^/?#]*)\/?([^?#]*)\??([^#]*)/.exec(url)
  const [, authority = '', database = '', parameters] = parts ?? []
  return { host: new URLSearchParams(parameters).get('host') ?? authority, database }
}

interface Place {
  /** A name, an IP address without brackets or a socket directory; empty for the default. */
  readonly host: string
  /** Empty for the default. */
  readonly port: string
}

/** Returns the places that the parameters `host` and `port` name, or else those between the login and the path. */
function placesIn(authority: string, parameters: URLSearchParams): Place[] {
  const inAuthority = authority.split(',').map(placeOf)
  const given = parameters.get('host')?.split(',')
  const places = given?.map((host) => ({ host, port: inAuthority[0]?.port ?? '' })) ?? inAuthority
  if (places.length > 1 && places.some(({ host }) => host === ''))
    throw new AddressError('name a host before and after each comma')
  const ports = parameters.get('port')?.split(',') ?? []
  if (!ports.every((port) => /^\d{0,5}$/.test(port) && Number(port) <= 65535))
    throw new AddressError('have a port from 1 to 65535')
  if (ports.length > 1 && ports.length !== places.length)
    throw new AddressError('name one port for all of its hosts, or one for each')
  return places.map(({ host, port }, index) => ({
    host,
    port: (ports.length > 1 ? ports[index] : ports[0]) || port,
  }))
}

/** Parses `host:port`, `[::1]:port` or `%2Fpath:port`. */
function placeOf(entry: string): Place {
  try {
    const { hostname, port } = new URL(`postgres://${entry}`)
    return { host: decodeURIComponent(hostname.replace(/^\[(.*)\]$/, '$1')), port }
  } catch {
    throw new AddressError(`${SHAPE}; several hosts are separated by commas`)
  }
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
