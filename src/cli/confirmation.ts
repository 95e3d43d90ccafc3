import { createInterface } from 'node:readline/promises'
import { exitCodes } from '../process/exit-codes.ts'
import { CommandFailure } from './failure.ts'

/** How long the operator may take to answer. */
export const CONFIRMATION_TIMEOUT_MS = 300_000

/**
 * Asks the operator to confirm a change that cannot be undone. Without a terminal to ask in, it fails and names the
 * option that confirms. `consequence` is a sentence without its period.
 *
 * @throws {CommandFailure} if the operator does not confirm
 * @throws the reason of `signal` when it aborts
 */
export async function confirm(consequence: string, option: string, signal?: AbortSignal): Promise<void> {
  // Standard input has ended if the command has read a file from it.
  if (!process.stdin.isTTY || !process.stderr.isTTY || !process.stdin.readable) {
    throw new CommandFailure(
      `${consequence}; nothing was changed. To confirm, add ${option}.`,
      exitCodes.unconfirmed,
    )
  }
  const terminal = createInterface({ input: process.stdin, output: process.stderr, terminal: false })
  const unanswered = new AbortController()
  const timeout = setTimeout(() => unanswered.abort(), CONFIRMATION_TIMEOUT_MS)
  // Ctrl-D closes the terminal, but leaves the question pending forever.
  terminal.once('close', () => unanswered.abort())
  try {
    const answer = await terminal.question(`${consequence}. Continue? (yes/no) `, {
      signal: AbortSignal.any([unanswered.signal, ...(signal === undefined ? [] : [signal])]),
    })
    if (answer.trim().toLowerCase() === 'yes') return
  } catch (error) {
    signal?.throwIfAborted()
    if (!unanswered.signal.aborted) throw error
  } finally {
    clearTimeout(timeout)
    terminal.close()
  }
  throw new CommandFailure('Not confirmed; nothing was changed.', exitCodes.unconfirmed)
}
