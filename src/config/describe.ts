import type { TSchema } from '@sinclair/typebox'
import { addressWarnings, withoutPassword } from './addresses.ts'
import { checkSettings, namedKey } from './config.ts'
import { Environment, type Variables, variableOf } from './variables.ts'

/** Describes the effective settings of the server and the command line without secrets, their errors, and what has no effect. */
export function describeSettings(env: Variables) {
  const { given, errors } = checkSettings(env)
  const settings = Object.entries<TSchema>(Environment.properties).map(([name, schema]) => {
    const { [name]: value = schema['default'] } = given
    const entries = [value ?? []].flat().map(String)
    return {
      name: variableOf(env, name),
      /** Undefined if the setting has no value. */
      value: entries.length === 0 ? undefined : withoutSecrets(name, schema, entries),
      isDefault: given[name] === undefined,
    }
  })
  const warnings = ['DATABASE_URL', 'OPERATOR_DATABASE_URL'].flatMap((name) =>
    errors.length === 0 ? addressWarnings(name, String(given[name] ?? '')) : [],
  )
  return { settings, errors: errors.map(([, message]) => message), warnings }
}

function withoutSecrets(name: string, schema: TSchema, entries: readonly string[]): string {
  if (name !== 'API_KEYS') return (schema['writeOnly'] ? entries.map(withoutPassword) : entries).join(',')
  const names = entries.map((entry, index) => namedKey(entry, index).name)
  return `${names.length} ${names.length === 1 ? 'key' : 'keys'}: ${names.join(', ')}`
}
