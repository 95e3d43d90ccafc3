import { inTransaction, type Transaction } from '../database/admin/transaction.ts'
import { abortOnSignals } from './interruption.ts'

type Work<Result> = (transaction: Transaction, signal: AbortSignal) => Promise<Result>

/** Runs a command that changes nothing. Everything that it reads is from one snapshot. A signal ends it. */
export function read<Result>(url: string, work: Work<Result>): Promise<Result> {
  return change(url, work, true)
}

/** Runs a command in one transaction, which a signal rolls back. */
export function change<Result>(url: string, work: Work<Result>, readOnly = false): Promise<Result> {
  const options = abortOnSignals()
  return inTransaction({ url, readOnly, ...options }, (transaction) => work(transaction, options.signal))
}
