import { readFileSync } from 'node:fs'
import { AddressError, parseAddress, type SessionTarget } from '../database/address.ts'
import { messageOf } from './errors.ts'

/** The values of `target_session_attrs` that are valid for each server, and the reason. */
const purposes = {
  primary: {
    targets: ['any', 'read-write', 'primary'],
    reason: 'the service needs a server that takes writes',
  },
  standby: {
    targets: ['any', 'read-only', 'standby', 'prefer-standby'],
    reason: 'lists are read from a standby there',
  },
} as const satisfies Record<string, { targets: readonly SessionTarget[]; reason: string }>

/** Returns the errors in the database address in the variable `name`, and in the files that the address refers to. */
export function addressErrors(
  name: string,
  values: Readonly<Record<string, unknown>>,
  purpose?: keyof typeof purposes,
): string[] {
  const { [name]: url } = values
  if (typeof url !== 'string') return []
  const errors = targetErrors(name, url, purpose)
  // The parameters of an address that cannot be parsed may be a part of its password.
  return errors.length > 0 ? errors : [...parameterErrors(name, url), ...certificateErrors(name, url)]
}

/** Returns a warning for each parameter without effect of the address in the variable `name`, if that is a valid address. */
export function addressWarnings(name: string, values: Readonly<Record<string, unknown>>): string[] {
  const { [name]: url } = values
  if (typeof url !== 'string' || addressErrors(name, values).length > 0) return []
  return [...new Set(parametersOf(url).keys())]
    .filter((parameter) => !effectiveParameters.has(parameter))
    .map((parameter) => `${shownName(parameter, url)} in ${name} has no effect`)
}

function targetErrors(name: string, url: string, purpose: keyof typeof purposes | undefined): string[] {
  try {
    const { target = 'any' } = parseAddress(url)
    if (purpose === undefined) return []
    const { targets, reason } = purposes[purpose]
    if (targets.some((accepted) => accepted === target)) return []
    return [`${name} must not have target_session_attrs=${target}: ${reason}`]
  } catch (error) {
    if (!(error instanceof AddressError)) throw error
    return [`${name} must ${error.message}`]
  }
}

/** The parameters of an address that pg or `parseAddress` supports, without those that the service overrides. */
const effectiveParameters = new Set([
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

/** The valid values of parameters whose other values pg ignores, misunderstands or rejects only when it connects. */
const parameterValues: ReadonlyMap<string, readonly string[]> = new Map([
  ['ssl', ['true', '1', '0', 'no-verify']],
  ['sslmode', ['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full']],
  ['sslnegotiation', ['postgres', 'direct']],
])

/** Parameters of libpq without effect here, with the values that demand more security than the service checks. */
const unmetDemands: ReadonlyMap<string, RegExp> = new Map([
  ['channel_binding', /^require$/],
  ['gssencmode', /^require$/],
  ['require_auth', /./],
  ['requirepeer', /./],
  ['ssl_min_protocol_version', /^TLSv1\.3$/],
  ['sslcrl', /./],
  ['sslcrldir', /./],
])

/** Other parameters of libpq about TLS. They have no effect here, and demand no security. */
const harmlessParameters =
  /^(ssl_max_protocol_version|sslcertmode|sslcompression|sslkeylogfile|sslpassword|sslsni)$/

/** Returns an error for each parameter with an invalid value, and for each that promises security but has no effect. */
function parameterErrors(name: string, url: string): string[] {
  const parameters = parametersOf(url)
  const errors = new Set<string>()
  for (const [parameter, value] of parameters) {
    const valid = parameterValues.get(parameter)
    if (valid !== undefined && !valid.includes(value))
      errors.add(`${parameter} in ${name} must be one of ${valid.join(', ')}`)
    else if (isUnmetDemand(parameter, value, parameters))
      errors.add(`${parameter} in ${name} must be removed: the service does not support it`)
    else if (isMisspeltTls(parameter))
      errors.add(
        `${shownName(parameter, url)} in ${name} must be removed: it has no effect; for TLS, set sslmode=verify-full`,
      )
  }
  const mode = parameters.get('sslmode')
  if (parameters.get('sslnegotiation') === 'direct' && (mode === 'disable' || parameters.get('ssl') === '0'))
    errors.add(`sslnegotiation=direct in ${name} needs TLS, for example sslmode=verify-full`)
  if (isLibpqCompatible(parameters) && mode === 'verify-ca' && !parameters.get('sslrootcert'))
    errors.add(`sslmode=verify-ca in ${name} needs sslrootcert with uselibpqcompat=true`)
  return [...errors]
}

function isUnmetDemand(parameter: string, value: string, parameters: URLSearchParams): boolean {
  if (!unmetDemands.get(parameter)?.test(value)) return false
  // Providers put channel_binding=require into their addresses. pg verifies the server's certificate in these modes.
  const isVerified = /^(prefer|require|verify-ca|verify-full)$/.test(parameters.get('sslmode') ?? '')
  return parameter !== 'channel_binding' || !isVerified || isLibpqCompatible(parameters)
}

/** Whether the name, such as `ssl_mode`, looks like a parameter for TLS, but is none of pg or libpq. */
function isMisspeltTls(parameter: string): boolean {
  return (
    /ssl|tls/i.test(parameter) &&
    !effectiveParameters.has(parameter) &&
    !unmetDemands.has(parameter) &&
    !harmlessParameters.test(parameter)
  )
}

/** Whether `sslmode` has the weaker meaning that it has in libpq. */
function isLibpqCompatible(parameters: URLSearchParams): boolean {
  return parameters.get('uselibpqcompat') === 'true'
}

function parametersOf(url: string): URLSearchParams {
  return new URLSearchParams(/\?([^#]*)/.exec(url)?.[1])
}

/** Returns the name of an unknown parameter, unless it may be a part of a password with a question mark. */
function shownName(parameter: string, url: string): string {
  return /\?.*@/.test(url) ? 'a parameter' : parameter
}

/** Returns an error for each certificate or key file of an address that cannot be read. */
function certificateErrors(name: string, url: string): string[] {
  const parameters = parametersOf(url)
  return ['sslrootcert', 'sslcert', 'sslkey'].flatMap((parameter) => {
    const file = parameters.get(parameter)
    if (!file) return []
    try {
      readFileSync(file)
      return []
    } catch (error) {
      return [`${parameter} in ${name} must be a file that can be read: ${messageOf(error)}`]
    }
  })
}

/** Parameters of an address that contain no secret. */
const shownParameters =
  /^(sslmode|sslrootcert|sslcert|sslkey|application_name|target_session_attrs|connect_timeout)$/

/** Returns an address with `***` for the password, and `***` for the whole address if the password cannot be located. */
export function withoutPassword(url: string): string {
  const [, scheme, role, hosts, query] =
    /^([a-z]+:\/\/)(?:([^:@/?#]*)(?::[^?]*)?@)?([^@?]*)(?:\?([^@]*))?$/.exec(url) ?? []
  if (scheme === undefined || hosts === undefined || /:(?!\d{1,5}([,/]|$))[^\]]*$/.test(hosts)) return '***'
  const parameters = [...new URLSearchParams(query)].map(([name, text]) =>
    shownParameters.test(name) ? `${name}=${text}` : `${name}=***`,
  )
  const login = role === undefined ? '' : `${role}:***@`
  return `${scheme}${login}${hosts}${parameters.length > 0 ? `?${parameters.join('&')}` : ''}`
}
