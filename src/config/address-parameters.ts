import { effectiveParameters } from '../database/address.ts'

/** The valid values of parameters whose other values pg ignores, misunderstands or rejects only when it connects. */
const parameterValues: ReadonlyMap<string, readonly string[]> = new Map([
  ['ssl', ['true', '1', '0', 'no-verify']],
  ['sslmode', ['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full']],
  ['sslnegotiation', ['postgres', 'direct']],
])

/** Parameters that are a time in milliseconds. pg would read `5s` as 5 milliseconds, and PostgreSQL has the same maximum. */
const timeParameter = /_timeout$/
const MAX_MILLISECONDS = 2 ** 31 - 1

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

/** Returns the names of the parameters without effect, as far as they may be shown. */
export function ineffectiveParameters(url: string): string[] {
  return [...new Set(parametersOf(url).keys())]
    .filter((parameter) => !effectiveParameters.has(parameter))
    .map((parameter) => shownName(parameter, url))
}

/** Returns an error for each parameter with an invalid value, and for each that promises security but has no effect. */
export function parameterErrors(name: string, url: string): string[] {
  const parameters = parametersOf(url)
  const errors = new Set<string>()
  for (const [parameter, value] of parameters) {
    const valid = parameterValues.get(parameter)
    if (valid !== undefined && !valid.includes(value))
      errors.add(`${parameter} in ${name} must be one of ${valid.join(', ')}`)
    else if (effectiveParameters.has(parameter) && parameters.getAll(parameter).length > 1)
      errors.add(`${parameter} in ${name} must be set only once`)
    else if (effectiveParameters.has(parameter) && timeParameter.test(parameter) && !isMilliseconds(value))
      errors.add(`${parameter} in ${name} must be a number of milliseconds, without a unit`)
    else if (isUnmetDemand(parameter, value, parameters))
      errors.add(`${parameter} in ${name} must be removed: the service does not support it`)
    else if (isMisspelledTls(parameter))
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

function isMilliseconds(value: string): boolean {
  return /^\d{1,10}$/.test(value) && Number(value) <= MAX_MILLISECONDS
}

function isUnmetDemand(parameter: string, value: string, parameters: URLSearchParams): boolean {
  if (!unmetDemands.get(parameter)?.test(value)) return false
  // Providers put channel_binding=require into their addresses. pg verifies the server's certificate in these modes.
  const isVerified = /^(prefer|require|verify-ca|verify-full)$/.test(parameters.get('sslmode') ?? '')
  return parameter !== 'channel_binding' || !isVerified || isLibpqCompatible(parameters)
}

/** Whether the name, such as `ssl_mode`, looks like a parameter for TLS, but is none of pg or libpq. */
function isMisspelledTls(parameter: string): boolean {
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

/** Returns the parameters of a `postgres://` address. */
export function parametersOf(url: string): URLSearchParams {
  return new URLSearchParams(/\?([^#]*)/.exec(url)?.[1])
}

/** Returns the name of an unknown parameter, unless it may be a part of a password with a question mark or an ampersand. */
function shownName(parameter: string, url: string): string {
  return /\?.*@/.test(url) || parametersOf(url).has('password') ? 'a parameter' : parameter
}
