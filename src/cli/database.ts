import { inTransaction, type Transaction } from '../database/admin/transaction.ts'
import { abortOnSignals } from '../process/signals.ts'
import { report } from '../process/terminal.ts'

type Work<Result> = (transaction: Transaction, signal: AbortSignal) => Promise<Result>

/** Runs a command that changes nothing. Everything that it reads is from one snapshot. */
export function read<Result>(url: string, work: Work<Result>): Promise<Result> {
  const options = commandOptions()
  return inTransaction({ url, readOnly: true, ...options }, (transaction) =>
    work(transaction, options.signal),
  )
}

/** Runs a command in one transaction. */
export function change<Result>(url: string, work: Work<Result>): Promise<Result> {
  const options = commandOptions()
  return inTransaction({ url, ...options }, (transaction) => work(transaction, options.signal))
}

/** The options of a command's transaction: a signal rolls it back, and the locks that it waits for are reported. */
export function commandOptions() {
  const onWait = (description: string): void => report(`inventory: ${description}`)
  return { ...abortOnSignals(), onWait }
}
