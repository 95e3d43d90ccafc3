import { readFileSync } from 'node:fs'
import { AddressError, parseAddress } from '../database/address.ts'
import { ineffectiveParameters, parameterErrors, parametersOf } from './address-parameters.ts'
import { readFailureOf } from './errors.ts'

/** Returns the errors in the database address in the variable `name`, and in the files that the address refers to. */
export function addressErrors(name: string, values: Readonly<Record<string, unknown>>): string[] {
  const { [name]: url } = values
  if (typeof url !== 'string') return []
  const errors = syntaxErrors(name, url)
  // The parameters of an address that cannot be parsed may be a part of its password.
  return errors.length > 0 ? errors : [...parameterErrors(name, url), ...certificateErrors(name, url)]
}

/** Returns a warning for each parameter without effect of the address in the variable `name`, if that is a valid address. */
export function addressWarnings(name: string, values: Readonly<Record<string, unknown>>): string[] {
  const { [name]: url } = values
  if (typeof url !== 'string' || addressErrors(name, values).length > 0) return []
  return ineffectiveParameters(url).map((parameter) => `${parameter} in ${name} has no effect`)
}

function syntaxErrors(name: string, url: string): string[] {
  try {
    parseAddress(url)
    return []
  } catch (error) {
    if (!(error instanceof AddressError)) throw error
    return [`${name} must ${error.message}`]
  }
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
      return [`${parameter} in ${name} must be a file that can be read: ${readFailureOf(error, file)}`]
    }
  })
}

/** Parameters of an address that contain no secret. An operator may have set the key itself as `sslkey`, instead of its file. */
const shownParameters =
  /^(sslmode|sslrootcert|sslcert|application_name|target_session_attrs|connect_timeout)$/

/**
 * Returns an address with `***` for its password and for each parameter that may contain a secret, or `***` for the whole address
 * if the password cannot be located.
 */
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
