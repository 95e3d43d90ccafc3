import { existsSync } from 'node:fs'
import pg from 'pg'
import { AddressError, effectiveParameters, parseAddress } from '../database/address.ts'
import { readFailureOf } from './errors.ts'
import type { Variables } from './variables.ts'

/** An address whose password cannot reach the host, the path or the parameters, which are shown: no `#`, no `@` after a slash. */
const SHAPE = /^[a-z]+:\/\/[^/?#]*([/?][^@#]*)?$/

/** pg's parameters for TLS, with their values; none for the name of a file. */
const tlsParameters: ReadonlyMap<string, readonly string[]> = new Map([
  ['ssl', ['true', '1', '0', 'no-verify']],
  ['sslmode', ['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full']],
  ['sslnegotiation', ['postgres', 'direct']],
  ['sslrootcert', []],
  ['sslcert', []],
  ['sslkey', []],
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
 * in SSL_CERT_FILE, as OpenSSL and libpq read it. If the system has none, with the authorities that Node trusts. The name of the
 * server is checked whatever else is set, because those authorities have certified servers of everyone.
 */
export function addressForPg(url: string, env: Variables): string {
  if (!/[?&]sslrootcert=system(&|$)/.test(url)) return url
  const others = url.replace(/(?<=[?&])(ssl|sslmode|uselibpqcompat|sslrootcert)=[^&]*&?/g, '')
  const file = env['SSL_CERT_FILE'] || systemAuthorities.find(existsSync)
  return `${others}&sslmode=verify-full${file === undefined ? '' : `&sslrootcert=${encodeURIComponent(file)}`}`
}

/** Returns the errors of the address in a variable, and of the files that it refers to, without any part that may be secret. */
export function addressErrors(name: string, url: string, env: Variables): string[] {
  try {
    const { url: address } = parseAddress(addressForPg(url, env))
    const errors = tlsErrors(name, parametersOf(url))
    if (errors.length === 0) new pg.Client({ connectionString: address })
    return errors
  } catch (error) {
    if (error instanceof AddressError) return [`${name} must ${error.message}`]
    const isFile = error instanceof Error && 'syscall' in error
    const rule = isFile ? 'name files that can be read' : 'be one that pg accepts'
    return [`${name} must ${rule}: ${readFailureOf(error)}`]
  }
}

/** Returns an error for each parameter that seems to ask for more security than it would give. */
function tlsErrors(variable: string, parameters: URLSearchParams): string[] {
  const asked = [...parameters].filter(([name]) => /ssl|tls/i.test(name))
  return asked.flatMap(([name, value]) => {
    const place = `${shownName(name, parameters)} in ${variable} must be`
    const values = tlsParameters.get(name)
    if (values === undefined) return `${place} removed: it has no effect; for TLS, set sslmode=verify-full`
    return values.length === 0 || values.includes(value) ? [] : `${place} one of ${values.join(', ')}`
  })
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
