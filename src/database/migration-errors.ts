/** The newest migrations of the database are not this version's, so it does not know how to roll them back. */
export class UnknownMigrationError extends Error {
  override readonly name = 'UnknownMigrationError'

  constructor(migration: string) {
    super(
      `This version does not know the migration ${migration}. Roll it back with the version that brought it.`,
    )
  }
}

/** A migration is pending that is older than one that was applied. */
export class MigrationOrderError extends Error {
  override readonly name = 'MigrationOrderError'

  constructor(pending: string) {
    super(
      `The migration ${pending} is older than one that was applied, and would run out of order; nothing was changed. ` +
        'Give it a new name with "inventory migrate create", or restore the list of migrations that it is missing from.',
    )
  }
}

/** Other migrations of the same database run for longer than this one waits. */
export class MigrationsRunningError extends Error {
  override readonly name = 'MigrationsRunningError'

  constructor(pid: number | undefined, waitedMs: number) {
    super(
      `Other migrations of this database ran for longer than ${waitedMs / 1000} s${pid === undefined ? '' : `, as PID ${pid}`}; ` +
        'nothing was changed. Run it again when they have ended; "inventory migrate status" shows them.',
    )
  }
}

/** An index that PostgreSQL maintains and does not use, because building or dropping it was interrupted. */
export interface InvalidIndex {
  readonly name: string
  readonly table: string
}

/** A migration that failed, with what it has left behind. */
export interface MigrationFailure {
  readonly migration: string
  readonly direction: 'up' | 'down'
  /** Why, in words; undefined where a lock could not be had in time. */
  readonly reason: string | undefined
  /** The sessions that stand in the way of the lock, in words. */
  readonly holders: readonly string[]
  readonly isTransactional: boolean
  /** The migrations of this run that are applied, or rolled back, for good. */
  readonly done: readonly string[]
  /** The indexes of the migration that it has left invalid. */
  readonly invalidIndexes: readonly InvalidIndex[]
}

/** PostgreSQL refuses what a migration does; the message says why, what was changed, and what to do. */
export class MigrationFailedError extends Error {
  override readonly name = 'MigrationFailedError'
  /** True where something was changed, or may have been. */
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
  const verb = direction === 'up' ? 'Applied before it' : 'Rolled back before it'
  const before = done.length === 0 ? '' : `${verb}, for good: ${done.join(', ')}. `
  if (isTransactional)
    return done.length === 0 ? '; nothing was changed. ' : `; it changed nothing. ${before}`
  const left = invalidIndexes.map(describeInvalidIndex)
  return `. It runs outside a transaction, so what it changed before stays. ${[...left, before].join('')}`
}

/** A sentence about an invalid index, with a space at its end. */
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
