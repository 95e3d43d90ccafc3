import { existsSync, readFileSync } from 'node:fs'
import pg from 'pg'
import { AddressError, effectiveParameters, parseAddress } from '../database/address.ts'
import { messageOf, readFailureOf } from './errors.ts'
import type { Variables } from './variables.ts'

/** An address whose password cannot reach the host, the path or the parameters, which are shown: no `#`, no `@` after a slash. */
const SHAPE = /^[a-z]+:\/\/[^/?#]*([/?][^@#]*)?$/

const ENCODED =
  'be an address like postgres://user:password@host:5432/database, without "#" and without "@" after the first slash: ' +
  'percent-encode the special characters of the password'

/** pg's parameters for TLS, with their values; undefined for the name of a file. */
const tlsParameters: ReadonlyMap<string, readonly string[] | undefined> = new Map([
  ['ssl', ['true', '1', '0', 'no-verify']],
  ['sslmode', ['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full']],
  ['sslnegotiation', ['postgres', 'direct']],
  ['sslrootcert', undefined],
  ['sslcert', undefined],
  ['sslkey', undefined],
])

/** Parameters that contain no secret. An operator may have set the key itself as `sslkey`, instead of its file. */
const shownParameters = /^(sslmode|sslrootcert|sslcert|application_name|connect_timeout)$/

/** Where Debian and Alpine, Red Hat, SUSE, and macOS keep the certificates of the authorities that the system trusts. */
const systemAuthorities = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
]

/**
 * Returns the address for pg, which would take `sslrootcert=system` for the name of a file: with the system's file instead, or that
 * in SSL_CERT_FILE, as OpenSSL and libpq read it. If the system has none, with the authorities that Node trusts.
 */
export function addressForPg(url: string, env: Variables): string {
  const file = env['SSL_CERT_FILE'] || systemAuthorities.find(existsSync)
  const parameter = file === undefined ? 'sslmode=verify-full' : `sslrootcert=${encodeURIComponent(file)}`
  return url.replace(/(?<=[?&])sslrootcert=system(?=&|$)/, parameter)
}

/** Returns the errors of the address in a variable, and of the files that it refers to, without any part that may be secret. */
export function addressErrors(name: string, url: string, env: Variables): string[] {
  if (/^\w+:\/\//.test(url) && !SHAPE.test(url)) return [`${name} must ${ENCODED}`]
  try {
    const { url: address } = parseAddress(addressForPg(url, env))
    const errors = tlsErrors(name, parametersOf(addressForPg(url, env)))
    if (isWeak(parametersOf(url))) errors.push(`sslrootcert=system in ${name} needs sslmode=verify-full`)
    if (errors.length === 0) new pg.Client({ connectionString: address })
    return errors
  } catch (error) {
    return [
      `${name} must ${error instanceof AddressError ? '' : 'be one that pg accepts: '}${messageOf(error)}`,
    ]
  }
}

/** Returns an error for each parameter that seems to ask for more security than it would give. */
function tlsErrors(variable: string, parameters: URLSearchParams): string[] {
  return [...new Set(parameters.keys())].flatMap((name) => {
    if (!/ssl|tls/i.test(name)) return []
    const place = `${shownName(name, parameters)} in ${variable} must be`
    if (!tlsParameters.has(name))
      return `${place} removed: it has no effect; for TLS, set sslmode=verify-full`
    const [value = '', ...more] = parameters.getAll(name)
    if (more.length > 0) return `${place} set only once`
    const values = tlsParameters.get(name)
    if (values !== undefined) return values.includes(value) ? [] : `${place} one of ${values.join(', ')}`
    try {
      if (value !== '') readFileSync(value)
      return []
    } catch (error) {
      return `${place} a file that can be read: ${readFailureOf(error)}`
    }
  })
}

/** Whether an address trusts every authority of the system, but does not check the name of the server. libpq refuses it, too. */
function isWeak(parameters: URLSearchParams): boolean {
  const mode = parameters.get('sslmode') ?? 'verify-full'
  const isUnverified = parameters.get('uselibpqcompat') === 'true' || /^(disable|no-verify)$/.test(mode)
  return parameters.get('sslrootcert') === 'system' && isUnverified && mode !== 'verify-full'
}

/** Returns a warning for each parameter without effect. */
export function addressWarnings(variable: string, url: string): string[] {
  const parameters = parametersOf(url)
  const ineffective = [...new Set(parameters.keys())].filter((name) => !effectiveParameters.has(name))
  return ineffective.map((name) => `${shownName(name, parameters)} in ${variable} has no effect`)
}

/** Returns an address with `***` for its password and for each parameter that may be secret, or for all of an invalid one. */
export function withoutPassword(url: string): string {
  if (!SHAPE.test(url) || !URL.canParse(url)) return '***'
  const { protocol, username, host, pathname, searchParams } = new URL(url)
  const login = username === '' ? '' : `${username}:***@`
  const parameters = [...searchParams].map(
    ([name, text]) => `${name}=${shownParameters.test(name) ? text : '***'}`,
  )
  return `${protocol}//${login}${host}${pathname}${parameters.length > 0 ? `?${parameters.join('&')}` : ''}`
}

function parametersOf(url: string): URLSearchParams {
  return new URLSearchParams(/\?(.*)/s.exec(url)?.[1])
}

/** Returns the name of an unknown parameter, unless it may be a part of a password with an ampersand. */
function shownName(name: string, parameters: URLSearchParams): string {
  return parameters.has('password') && !tlsParameters.has(name) ? 'a parameter' : name
}
