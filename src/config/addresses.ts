import pg from 'pg'
import { nameOfAddress } from '../database/address.ts'
import { effectiveParameters } from '../database/session.ts'
import type { Variables } from './environment.ts'
import { readFailureOf } from './messages.ts'

const sslModes = ['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full']

/** The parameters for TLS that pg has, and those of their values that it knows. It ignores others. */
const TLS_PARAMETER = new RegExp(
  `^(sslmode=(${sslModes.join('|')})|ssl=(true|1|0|no-verify)|ssl(negotiation|rootcert|cert|key)=.*)$`,
  's',
)

/**
 * Returns the address for pg, which would take `sslrootcert=system` for the name of a file: with that in SSL_CERT_FILE, as OpenSSL and
 * libpq read it, or with the authorities that Node trusts. The name of the server is checked whatever else is set, because those
 * authorities have certified servers of everyone.
 *
 * Weaker modes than `verify-full` are `verify-full` for pg, unless the address asks for those of libpq. It warns of that.
 */
function addressForPg(url: string, env: Variables): string {
  if (!/[?&]sslrootcert=system(&|$)/.test(url))
    return url.includes('uselibpqcompat=true')
      ? url
      : url.replace(/(?<=[?&]sslmode=)(prefer|require|verify-ca)(?=&|$)/g, 'verify-full')
  const others = url.replace(/(?<=[?&])(ssl|sslmode|uselibpqcompat|sslrootcert)=[^&]*&?/g, '')
  const file = env['SSL_CERT_FILE']
  return `${others}&sslmode=verify-full${file ? `&sslrootcert=${encodeURIComponent(file)}` : ''}`
}

/**
 * Returns the address in a variable for pg, and what has no effect in it.
 *
 * @throws an error that says what the address must be, without secrets; also if a file that it names cannot be read
 */
export function readAddress(variable: string, text: string, env: Variables) {
  const url = addressForPg(text, env)
  const parameters = [...new URLSearchParams(/\?(.*)/s.exec(text)?.[1])]
  // With a password among the parameters, the name of another one may be the part behind its ampersand.
  const isShown = parameters.every(([name]) => name !== 'password')
  const shown = ([name]: readonly [string, string]): string => (isShown ? name : 'a parameter')
  nameOfAddress(url, variable)
  try {
    new pg.Client({ connectionString: url })
  } catch (error) {
    const reason = readFailureOf(error)
    throw new Error(`${variable} must be one that pg accepts, with files that can be read: ${reason}`)
  }
  // They would be less security than the address seems to ask for.
  const unknown = parameters.filter(
    ([name, value]) => /ssl|tls/i.test(name) && !TLS_PARAMETER.test(`${name}=${value}`),
  )
  if (unknown.length > 0)
    throw new Error(
      `${variable} must have only TLS parameters and values that pg knows, not ${unknown.map(shown).join(', ')}: sslmode is one of ${sslModes.join(', ')}`,
    )
  const ignored = parameters.filter(([name]) => !effectiveParameters.test(name))
  return { url, warnings: ignored.map((pair) => `${shown(pair)} in ${variable} has no effect`) }
}
