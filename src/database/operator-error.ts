/** What an operator can fix. The message is complete: what happened, what it means and what to do. It contains no secret. */
export class OperatorError extends Error {
  override readonly name = 'OperatorError'
}
