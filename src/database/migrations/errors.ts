/** The migration to roll back was applied by another version, so this version does not know how to roll it back. */
export class UnknownMigrationError extends Error {
  override readonly name = 'UnknownMigrationError'

  constructor(migration: string) {
    super(
      `This version does not know the migration ${migration}. Roll it back with the version that brought it.`,
    )
  }
}

/** A pending migration is older than an applied one. */
export class MigrationOrderError extends Error {
  override readonly name = 'MigrationOrderError'

  constructor(pending: string) {
    super(
      `The migration ${pending} is older than one that was applied, and would run out of order; nothing was changed. ` +
        'Give it a new name with "inventory migrate create", or restore the list of migrations that it is missing from.',
    )
  }
}

/** Another session is still running migrations of the same database when the time to wait for it is over. */
export class MigrationsRunningError extends Error {
  override readonly name = 'MigrationsRunningError'

  constructor(pid: number | undefined, waitedMs: number) {
    super(
      `Other migrations of this database ran for longer than ${waitedMs / 1000} s${pid === undefined ? '' : `, as PID ${pid}`}; ` +
        'nothing was changed. Run it again when they have ended; "inventory migrate status" shows them.',
    )
  }
}

/** An index that PostgreSQL maintains but does not use, because `CREATE` or `DROP INDEX CONCURRENTLY` was interrupted. */
export interface InvalidIndex {
  readonly name: string
  readonly table: string
}

/** A failed migration, and what was changed nevertheless. */
export interface MigrationFailure {
  readonly migration: string
  readonly direction: 'up' | 'down'
  /** The error message of PostgreSQL; undefined if the migration did not get a lock in time. */
  readonly reason: string | undefined
  /** Descriptions of the sessions that hold conflicting locks. */
  readonly holders: readonly string[]
  readonly isTransactional: boolean
  /** The migrations of this run that were applied or rolled back, and committed. */
  readonly done: readonly string[]
  /** Indexes of the failed migration that are invalid now. */
  readonly invalidIndexes: readonly InvalidIndex[]
}

/** A migration failed. The message says why, what was changed nevertheless, and what to do. */
export class MigrationFailedError extends Error {
  override readonly name = 'MigrationFailedError'
  /** Whether something was, or may have been, changed. */
  readonly isPartial: boolean

  constructor(failure: MigrationFailure) {
    super(
      [describeCause(failure), describeChange(failure), describeHolders(failure), describeAdvice(failure)]
        .join('')
        .trim(),
    )
    this.isPartial = failure.done.length > 0 || !failure.isTransactional
  }
}

function describeCause({ migration, reason }: MigrationFailure): string {
  if (reason === undefined) return `The migration ${migration} failed to get a lock in time`
  return `The migration ${migration} failed: ${reason}`
}

function describeChange({ direction, isTransactional, done, invalidIndexes }: MigrationFailure): string {
  const verb = direction === 'up' ? 'Applied' : 'Rolled back'
  const before = done.length === 0 ? '' : `${verb} and committed before it: ${done.join(', ')}. `
  if (isTransactional)
    return done.length === 0 ? '; nothing was changed. ' : `; it changed nothing. ${before}`
  const left = invalidIndexes.map(describeInvalidIndex)
  return `. It runs outside a transaction, so its earlier changes remain. ${[...left, before].join('')}`
}

/** Returns a sentence about an invalid index, with a trailing space. */
export function describeInvalidIndex({ name, table }: InvalidIndex): string {
  return `The index ${name} on ${table} is INVALID: no query uses it, and every write maintains it. `
}

function describeHolders({ reason, holders }: MigrationFailure): string {
  if (reason !== undefined) return ''
  return holders.length === 0 ? 'The lock is free now. ' : `The lock is held by ${holders.join('; ')}. `
}

function describeAdvice({ direction, reason, isTransactional, holders }: MigrationFailure): string {
  const again = isTransactional
    ? 'Run it again'
    : `Run "inventory migrate ${direction}" again, which starts this migration from its beginning,`
  if (reason !== undefined) return isTransactional ? '' : `${again} once the cause is removed.`
  if (holders.length === 0) return `${again.replace(/,$/, '')}.`
  return `${again} when that has ended, or terminate it: SELECT pg_terminate_backend(PID).`
}
