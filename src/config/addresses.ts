import { readFileSync } from 'node:fs'
import { AddressError, parseAddress, type SessionTarget } from '../database/address.ts'
import { ineffectiveParameters, parameterErrors, parametersOf } from './address-parameters.ts'
import { readFailureOf } from './errors.ts'

/** The values of `target_session_attrs` that are valid for each server, and the reason. */
const purposes = {
  primary: {
    targets: ['any', 'read-write', 'primary'],
    reason: 'the service needs a server that accepts writes',
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
  return ineffectiveParameters(url).map((parameter) => `${parameter} in ${name} has no effect`)
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
