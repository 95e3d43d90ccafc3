import pg from 'pg'
import { parseIntoClientConfig } from 'pg-connection-string'
import { describeReadFailure, OperatorError } from './operator-error.ts'

const SHAPE =
  'be an address like postgres://user:password@host:5432/database, without "#" and without "@" after the first slash, and with a ' +
  'port up to 65535: percent-encode the special characters of the password'

const ONE_HOST =
  'name one host: the address of a proxy or a name that leads to the server that takes writes, as the service does not choose ' +
  'among several hosts; see "High availability" in docs/integrations.md'

/**
 * The parameters of an address that have an effect and, of some, the values: pg would read another value as one of these. It would
 * ignore another parameter, or take it for an object of the program. The service sets the time limits and `application_name` itself.
 */
const parameterValues: Readonly<Record<string, readonly string[] | undefined>> = {
  host: undefined,
  port: undefined,
  user: undefined,
  password: undefined,
  options: undefined,
  sslmode: ['disable', 'no-verify', 'verify-full'],
  uselibpqcompat: ['true'],
  sslrootcert: undefined,
  sslcert: undefined,
  sslkey: undefined,
  sslnegotiation: ['postgres', 'direct'],
  ssl: ['true', '1', '0', 'no-verify'],
}

/** The values of `sslmode` with `uselibpqcompat=true`, as libpq means them. */
const LIBPQ_MODES = ['disable', 'prefer', 'require', 'verify-ca', 'verify-full']

/** The address of a database. */
export interface Address {
  /** Host, port and database, without anything secret. */
  readonly name: string
  /** What pg connects with. */
  readonly config: pg.ClientConfig
}

/**
 * Parses the address of a database, and reads the certificates that it names: if a file were missing when a connection is opened,
 * nothing could catch the error.
 *
 * @param variable the setting that contains the address
 * @throws {OperatorError} if the address is invalid, does not lead to one server, or has what pg would ignore or misread. The message has
 * no part of the address but names of parameters
 */
export function parseAddress(text: string, variable = 'The address'): Address {
  const error = (rule: string): OperatorError => new OperatorError(`${variable} must ${rule}`)
  const url = parseUrl(text)
  // An unencoded password must reach nothing that is shown: the host, the path or the parameters.
  if (url === undefined || url.hash !== '' || `${url.pathname}${url.search}`.includes('@')) throw error(SHAPE)
  const parameters = Object.fromEntries(url.searchParams)
  const { host = '', port = url.port } = parameters
  if (/,|%2C/i.test(`${url.host}${host}${port}`)) throw error(ONE_HOST)
  if (!/^\d{0,5}$/.test(port) || Number(port) > 65535) throw error(SHAPE)
  for (const [name, value] of Object.entries(parameters)) {
    const rule = findViolation(name, value, parameters)
    if (rule !== undefined) throw error(rule)
  }
  try {
    const config = parseIntoClientConfig(url.href)
    // pg leaves some characters of the name encoded.
    const database = decodeURIComponent(url.pathname.slice(1))
    if (database !== '') config.database = database
    new pg.Client(config)
    const name = `${config.host || 'localhost'}:${config.port ?? 5432}${database && `/${database}`}`
    return { name, config }
  } catch (reason) {
    throw error(`be one that pg accepts, with files that can be read: ${describeReadFailure(reason)}`)
  }
}

/** Returns the parts of an address; undefined if it is none, or has characters that `URL` would drop or pg would decode wrongly. */
function parseUrl(text: string): URL | undefined {
  if (!/^postgres(ql)?:\/\//.test(text) || /\p{Cc}|%(?![\da-f]{2})/iu.test(text)) return undefined
  // A user without a host is no URL, but usual for a Unix socket, which is in the parameters.
  const complete = text.replace('@/', '@localhost/')
  return URL.canParse(complete) ? new URL(complete) : undefined
}

/** Returns what a parameter must be; undefined if it is understood. */
function findViolation(
  name: string,
  value: string,
  { password, uselibpqcompat }: Readonly<Record<string, string>>,
): string | undefined {
  if (!Object.hasOwn(parameterValues, name)) {
    // It may be the part of a password behind an ampersand.
    const unknown = password === undefined ? `, not ${name}` : ''
    return `have no parameters but ${Object.keys(parameterValues).join(', ')}${unknown}`
  }
  if (name === 'sslrootcert' && value === 'system')
    return 'have the name of a file in sslrootcert: pg would read "system" as one'
  const isLibpqMode = name === 'sslmode' && uselibpqcompat === 'true'
  const values = isLibpqMode ? LIBPQ_MODES : parameterValues[name]
  if (values === undefined) return value === '' ? `have a value of ${name}` : undefined
  if (values.includes(value)) return undefined
  const advice = name === 'sslmode' && !isLibpqMode ? '; for those of libpq, add uselibpqcompat=true' : ''
  return `have a value of ${name} that pg does not misread: ${values.join(', ')}${advice}`
}
