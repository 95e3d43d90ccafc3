import type { FastifyBaseLogger } from 'fastify'

/** How long no request must have failed before the outage counts as over. */
const RECOVERY_MS = 1000

/** Maximum different reasons that are logged for one outage. */
const MAX_REASONS = 20

/**
 * Logs why the database cannot serve requests. During an outage it logs each reason once, however many requests fail, and
 * logs once when the database serves requests again.
 */
export class OutageLog {
  readonly #log: FastifyBaseLogger
  readonly #reasons = new Set<string>()
  #failedRequests = 0
  #lastFailure = 0

  constructor(log: FastifyBaseLogger) {
    this.#log = log
  }

  /** Records a request that failed because of `cause`. */
  requestFailed(cause: unknown): void {
    this.#failedRequests++
    this.#lastFailure = performance.now()
    const reason = reasonOf(cause)
    if (this.#reasons.has(reason) || this.#reasons.size >= MAX_REASONS) return
    this.#reasons.add(reason)
    this.#log.warn({ err: cause }, 'the database cannot serve requests; answering 503')
  }

  /** Records a request that the database has served. */
  requestServed(): void {
    if (this.#failedRequests === 0 || performance.now() - this.#lastFailure < RECOVERY_MS) return
    this.#log.info({ refused: this.#failedRequests }, 'the database serves requests again')
    this.#reasons.clear()
    this.#failedRequests = 0
  }
}

function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  return `${'code' in cause ? cause.code : cause.name} ${cause.message}`
}
