import type { FastifyBaseLogger } from 'fastify'

/** How long no request may have been refused before the outage counts as over, in milliseconds. */
const QUIET_MS = 1000

/** The most different reasons that are reported of one outage. */
const MAX_REASONS = 20

/**
 * Reports why PostgreSQL cannot serve requests: each reason once in an outage, however many requests it refuses, and
 * once that requests are served again.
 */
export class OutageLog {
  readonly #log: FastifyBaseLogger
  readonly #reasons = new Set<string>()
  #refused = 0
  #lastRefusal = 0

  constructor(log: FastifyBaseLogger) {
    this.#log = log
  }

  /** Notes a request that was refused because of `cause`. */
  refused(cause: unknown): void {
    this.#refused++
    this.#lastRefusal = performance.now()
    const reason = reasonOf(cause)
    if (this.#reasons.has(reason) || this.#reasons.size >= MAX_REASONS) return
    this.#reasons.add(reason)
    this.#log.warn({ err: cause }, 'requests are refused, because the database cannot serve them')
  }

  /** Notes a request that the database has served. */
  served(): void {
    if (this.#refused === 0 || performance.now() - this.#lastRefusal < QUIET_MS) return
    this.#log.info({ refused: this.#refused }, 'the database serves requests again')
    this.#reasons.clear()
    this.#refused = 0
  }
}

function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause)
  return `${'code' in cause ? cause.code : cause.name} ${cause.message}`
}
