import { withoutPassword } from './addresses.ts'
import { checkSettings, namedKey } from './config.ts'
import { Environment, type Variables, variableOf } from './variables.ts'

/** Describes the effective settings of the server and the command line without secrets, their errors, and what has no effect. */
export function describeSettings(env: Variables) {
  const { values, errors, warnings } = checkSettings(env, () => true)
  const shown: Readonly<Record<string, unknown>> = {
    ...values,
    DATABASE_URL: values.DATABASE_URL && withoutPassword(values.DATABASE_URL),
    OPERATOR_DATABASE_URL: values.OPERATOR_DATABASE_URL && withoutPassword(values.OPERATOR_DATABASE_URL),
    API_KEYS: values.API_KEYS.map(namedKey).map(({ name }) => name),
  }
  const settings = Object.keys(Environment.properties).map((name) => ({
    name: variableOf(env, name),
    /** Undefined if the setting has no value. An invalid one is not in effect. */
    value: [shown[name] ?? []].flat().join(', ') || undefined,
  }))
  return { settings, errors, warnings }
}
