import { existsSync } from 'node:fs'
import pg from 'pg'
import { AddressError, effectiveParameters, parseAddress } from '../database/address.ts'
import { readFailureOf } from './errors.ts'
import type { Variables } from './variables.ts'

/** An address whose password cannot reach the host, the path or the parameters, which are shown: no `#`, no `@` after a slash. */
const SHAPE = /^[a-z]+:\/\/[^/?#]*([/?][^@#]*)?$/

const sslModes = ['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full']

/** The parameters for TLS that pg has, and those of their values that it knows. It ignores others. */
const TLS_PARAMETER = new RegExp(
  `^(sslmode=(${sslModes.join('|')})|ssl=(true|1|0|no-verify)|ssl(negotiation|rootcert|cert|key)=.*)$`,
  's',
)

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

/** Returns what is wrong with the address in a variable and the files that it names, or what has no effect in it, without secrets. */
export function checkAddress(variable: string, url: string, env: Variables) {
  const parameters = new URLSearchParams(/\?(.*)/s.exec(url)?.[1])
  // With a password among the parameters, the name of another one may be the part behind its ampersand.
  const shown = (name: string): string =>
    `${parameters.has('password') ? 'a parameter' : name} in ${variable}`
  const errors: string[] = []
  const warnings: string[] = []
  try {
    const { url: address } = parseAddress(addressForPg(url, env))
    new pg.Client({ connectionString: address })
    for (const [name, value] of parameters) {
      // It would be less security than the address seems to ask for.
      if (/ssl|tls/i.test(name) && !TLS_PARAMETER.test(`${name}=${value}`))
        errors.push(
          `${shown(name)} must be a parameter and a value that pg knows: for TLS, sslmode is one of ${sslModes.join(', ')}`,
        )
      else if (!effectiveParameters.has(name)) warnings.push(`${shown(name)} has no effect`)
    }
  } catch (error) {
    const rule =
      error instanceof AddressError
        ? error.message
        : `be one that pg accepts, with files that can be read: ${readFailureOf(error)}`
    errors.push(`${variable} must ${rule}`)
  }
  return { errors, warnings }
}

/** Returns an address with `***` for its password and without parameters that may be secret, or `***` for an invalid one. */
export function withoutPassword(url: string): string {
  if (!SHAPE.test(url) || !URL.canParse(url)) return '***'
  const { protocol, username, host, pathname, searchParams } = new URL(url)
  const login = username === '' ? '' : `${username}:***@`
  const parameters = [...searchParams]
    .filter(([name]) => shownParameters.test(name))
    .map((pair) => pair.join('='))
  return `${protocol}//${login}${host}${pathname}${parameters.length > 0 ? `?${parameters.join('&')}` : ''}`
}
