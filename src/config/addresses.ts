import pg from 'pg'
import { nameOfAddress } from '../database/address.ts'
import { effectiveParameters } from '../database/session.ts'
import type { Variables } from './environment.ts'
import { readFailureOf } from './messages.ts'

const sslModes = ['disable', 'no-verify', 'prefer', 'require', 'verify-ca', 'verify-full']

/** The parameters for TLS, and their values, that pg knows. It ignores others. */
const TLS_PARAMETER = new RegExp(
  `^(sslmode=(${sslModes.join('|')})|ssl=(true|1|0|no-verify)|ssl(negotiation|rootcert|cert|key)=.*)$`,
  's',
)

/**
 * Returns the address for pg, which would take `sslrootcert=system` for the name of a file: with that in SSL_CERT_FILE, as libpq reads
 * it, or with the authorities that Node trusts. They have certified servers of everyone, so the server's name is checked, too. Modes
 * weaker than `verify-full` are `verify-full` for pg, which warns of it, unless the address asks for those of libpq.
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
 * @throws an error that says what the address must be, without secrets, or that a file cannot be read
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
  // They would be less secure than they seem.
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
