import { createInterface } from 'node:readline/promises'
import { exitCodes } from '../process/exit-codes.ts'
import { CommandFailure } from './failure.ts'

/** How long a question waits for its answer, in milliseconds. */
export const ANSWER_TIMEOUT_MS = 300_000

/**
 * Has the operator confirm what cannot be undone: by a question where there is a terminal to ask in, elsewhere by an
 * option that they must have given. `consequence` is a sentence without its period.
 *
 * @throws {CommandFailure} where it is not confirmed
 * @throws the reason of `signal`
 */
export async function confirm(consequence: string, option: string, signal?: AbortSignal): Promise<void> {
  if (!process.stdin.isTTY || !process.stderr.isTTY) {
    throw new CommandFailure(
      `${consequence}; nothing was changed. If that is right, add ${option}.`,
      exitCodes.unconfirmed,
    )
  }
  const terminal = createInterface({ input: process.stdin, output: process.stderr, terminal: false })
  const unanswered = new AbortController()
  const timeout = setTimeout(() => unanswered.abort(), ANSWER_TIMEOUT_MS)
  // Ctrl-D; the question alone would wait for ever.
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
