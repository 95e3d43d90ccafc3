import { type TSchema, Type } from '@sinclair/typebox'
import { addressWarnings, withoutPassword } from './addresses.ts'
import { loadConfig, loadOperatorDatabase, namedKey } from './config.ts'
import { errorsOf } from './errors.ts'
import { withSecretFiles } from './secret-files.ts'
import { Environment, OperatorEnvironment, readVariables, SECRETS, type Variables } from './variables.ts'

/** The effective value of a setting, with secrets removed. */
export interface Setting {
  readonly name: string
  /** Undefined if the setting has no value. */
  readonly value: string | undefined
  readonly isDefault: boolean
}

/** All settings, their errors, and warnings about what looks like a setting and has no effect. */
export interface Settings {
  readonly settings: readonly Setting[]
  readonly errors: readonly string[]
  readonly warnings: readonly string[]
}

/** Describes the effective settings of the server and the command line, with secrets removed. */
export function describeSettings(env: Variables): Settings {
  const known = { ...Environment.properties, ...OperatorEnvironment.properties }
  const values = readVariables(Type.Object(known), withSecretFiles(env, SECRETS, []))
  const settings = Object.entries<TSchema>(known).map(([name, schema]) => {
    const value = values[name]
    const shown = value ?? schema['default']
    const file = env[`${name}_FILE`]
    return {
      name: value !== undefined && isSecret(name) && file ? `${name}_FILE` : name,
      value: isEmptySetting(shown) ? undefined : withoutSecret(name, schema, shown),
      isDefault: value === undefined,
    }
  })
  const errors = new Set([...errorsOf(() => loadConfig(env)), ...errorsOf(() => loadOperatorDatabase(env))])
  const addresses = ['DATABASE_URL', 'OPERATOR_DATABASE_URL']
  return { settings, errors: [...errors], warnings: settingWarnings(env, addresses) }
}

/** Returns a warning for each variable, and for each parameter of the addresses in the variables `addresses`, without effect. */
export function settingWarnings(env: Variables, addresses: readonly string[]): string[] {
  const values = withSecretFiles(env, addresses, [])
  return [
    ...misspelledSettings(env),
    ...removedSettings(env),
    ...addresses.flatMap((name) => addressWarnings(name, values)),
  ]
}

function isSecret(name: string): boolean {
  return SECRETS.some((secret) => secret === name)
}

function isEmptySetting(value: unknown): boolean {
  return value === undefined || (Array.isArray(value) && value.length === 0)
}

function withoutSecret(name: string, schema: TSchema, value: unknown): string {
  if (name === 'API_KEYS' && Array.isArray(value)) {
    const names = value.map(String).map((entry, index) => namedKey(entry, index).name)
    return `${names.length} ${names.length === 1 ? 'key' : 'keys'}: ${names.join(', ')}`
  }
  const shown = (Array.isArray(value) ? value : [value]).map(String)
  return (schema['writeOnly'] ? shown.map(withoutPassword) : shown).join(',')
}

/** Returns a warning for each variable that looks like a misspelled setting and so has no effect. */
export function misspelledSettings(env: Variables): string[] {
  const names = Object.keys({ ...Environment.properties, ...OperatorEnvironment.properties })
  const known = [...names, ...SECRETS.map((name) => `${name}_FILE`), 'PUBLISH', 'REPLICAS']
  return Object.keys(env).flatMap((name) => {
    if (known.includes(name) || name.startsWith('OTEL_') || !env[name]) return []
    const similar = known.find((setting) => isSimilar(name, setting))
    return similar === undefined
      ? []
      : [`${name} is not a setting and has no effect; did you mean ${similar}?`]
  })
}

/** Returns a warning for each setting of an earlier version that no longer has an effect. */
function removedSettings(env: Variables): string[] {
  const processes = env['WEB_CONCURRENCY']?.trim() ?? ''
  return ['', '1'].includes(processes)
    ? []
    : [
        'WEB_CONCURRENCY has no effect: the service runs as one process; to use more cores, run several behind a load balancer, ' +
          'as docs/operating.md#scale-out describes',
      ]
}

/** Whether two names differ only in case, underscores and, depending on the length, up to two letters. */
function isSimilar(name: string, setting: string): boolean {
  const [one, other] = [name, setting].map((text) => text.toUpperCase().replaceAll('_', ''))
  if (one === undefined || other === undefined) return false
  return editDistance(one, other) <= (other.length >= 8 ? 2 : other.length > 4 ? 1 : 0)
}

/** Returns the number of letters to insert, delete or replace to turn one text into the other (Levenshtein). */
function editDistance(one: string, other: string): number {
  let above = Array.from({ length: other.length + 1 }, (_, index) => index)
  for (const [row, letter] of [...one].entries()) {
    const line = [row + 1]
    for (const [column, otherLetter] of [...other].entries()) {
      const replaced = (above[column] ?? 0) + (letter === otherLetter ? 0 : 1)
      line.push(Math.min(replaced, (above[column + 1] ?? 0) + 1, (line[column] ?? 0) + 1))
    }
    above = line
  }
  return above.at(-1) ?? 0
}
