import type { Logger } from 'pino'
import type { FixedKey } from '../api-keys/key.ts'
import { hasActiveKeys } from '../api-keys/stored-keys.ts'
import { OperatorError } from '../database/operator-error.ts'
import type { Pool } from '../database/pool.ts'
import type { Readiness } from '../database/readiness.ts'
import { hasReason } from '../database/statement-error.ts'
import { requestLimits } from '../database/time-limits.ts'

/**
 * Checks that the service can serve, and logs why it cannot yet.
 *
 * @throws {StatementError} if the database refuses the login, or its certificate cannot be trusted
 * @throws {OperatorError} if the server lacks a feature that the service needs
 */
export async function checkDatabase(readiness: Readiness, log: Logger): Promise<void> {
  const notReady = await readiness()
  if (notReady === undefined) return
  const { error } = notReady
  const err = error?.cause
  if (hasReason(error, 'login', 'settings', 'untrusted')) throw error
  if (notReady.kind === 'unsupported') throw new OperatorError(`${notReady.reason} See docs/limits.md.`)
  log.warn({ err }, `not ready: ${notReady.reason}`)
}

/**
 * Warns of settings of the role with which the service keeps less than it promises. Behind a connection pooler, only the role can have
 * the time limits.
 */
export async function warnOfSettings(database: Pool, behindPooler: boolean, log: Logger): Promise<void> {
  const settings = await database
    .query<{ name: string; value: string }>(
      `SELECT name, current_setting(name) AS value FROM pg_settings
       WHERE name = 'synchronous_commit' AND setting = 'off'
         OR ${behindPooler} AND name IN ('lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout')
           AND (setting = '0' OR name = 'lock_timeout' AND setting::integer > ${requestLimits.lock})
       ORDER BY name`,
    )
    .catch(() => [])
  for (const { name, value } of settings)
    log.warn(
      name === 'synchronous_commit'
        ? 'synchronous_commit is off for the role, its database or the server: a crash of PostgreSQL loses acknowledged updates; set it to on'
        : `the database role has ${name} = ${value}: updates may wait for longer than their callers, and a locked entry delays others; set the time limits of ops/roles.sql`,
    )
}

/** Warns if there are no API keys, or if one in API_KEYS may be guessed. */
export async function warnOfKeys(fixed: readonly FixedKey[], database: Pool, log: Logger): Promise<void> {
  if (fixed.length === 0 && !(await hasActiveKeys(database).catch(() => true))) {
    log.warn(
      'there is no API key, so every request under /v1 is refused; create one with "inventory keys create --name ops"',
    )
  }
  for (const { name, key } of fixed) {
    if (key.length < 32)
      log.warn(`the API key "${name}" is short enough to be guessed; use one of 32 random characters`)
  }
}
