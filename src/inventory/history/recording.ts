import type { StatementRunner } from '../../database/statement.ts'

/** The events that are recorded, and the transition tables of their triggers (PostgreSQL manual, CREATE TRIGGER). */
const events = {
  insert: 'REFERENCING NEW TABLE AS latest',
  update: 'REFERENCING OLD TABLE AS former NEW TABLE AS latest',
  delete: 'REFERENCING OLD TABLE AS former',
  truncate: '',
} as const

/** SQL condition for a row of `pg_trigger` which shows that updates of its table are recorded. */
export const IS_RECORDING = "(tgname = 'inventory_history_update' AND tgenabled <> 'D')"

/** Returns whether changes are recorded now. */
export async function isRecording(database: StatementRunner): Promise<boolean> {
  const rows = await database.query(
    `SELECT FROM pg_trigger WHERE tgrelid = to_regclass('inventory') AND ${IS_RECORDING}`,
  )
  return rows.length > 0
}

/**
 * Records all changes of the stock that are made after the transaction. Updates of servers name their callers once these have
 * noticed. Needs the owner of the tables. Waits for the writers of the table, for at most a second.
 */
export async function startRecording(transaction: StatementRunner): Promise<void> {
  await stopRecording(transaction)
  for (const [event, tables] of Object.entries(events)) {
    const trigger = `inventory_history_${event}`
    await transaction.query(
      `CREATE TRIGGER ${trigger} AFTER ${event} ON inventory ${tables}
       FOR EACH STATEMENT EXECUTE FUNCTION record_inventory_history()`,
    )
    // Also for a replication worker, and for a session that disables triggers by session_replication_role.
    await transaction.query(`ALTER TABLE inventory ENABLE ALWAYS TRIGGER ${trigger}`)
  }
}

/** Ends the recording and keeps what is recorded. Waits for the readers and writers of the table, for at most a second. */
export async function stopRecording(transaction: StatementRunner): Promise<void> {
  // Updates wait behind the lock, and are rejected after two seconds; see `UpdateTimes`.
  await transaction.query("SET LOCAL lock_timeout = '1s'")
  for (const event of Object.keys(events)) {
    await transaction.query(`DROP TRIGGER IF EXISTS inventory_history_${event} ON inventory`)
  }
}
