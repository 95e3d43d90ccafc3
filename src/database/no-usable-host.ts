/** Returns the error if no host of an address can be used: the only error, or an AggregateError of all. */
export function noUsableHost(failed: readonly { readonly host: string; readonly error: unknown }[]): unknown {
  if (failed.length === 1) return failed[0]?.error
  const reasons = failed.map(
    ({ host, error }) => `${host}: ${error instanceof Error ? error.message : error}`,
  )
  return new AggregateError(
    failed.map(({ error }) => error),
    `no host can be used: ${reasons.join('; ')}`,
  )
}
