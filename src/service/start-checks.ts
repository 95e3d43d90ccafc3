import type { Logger } from 'pino'
import type { FixedKey } from '../api-keys/key.ts'
import { hasActiveKeys } from '../api-keys/stored-keys.ts'
import { OperatorError } from '../database/operator-error.ts'
import type { Pool } from '../database/pool.ts'
import type { Readiness } from '../database/readiness.ts'
import { hasReason } from '../database/statement-error.ts'

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
