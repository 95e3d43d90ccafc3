import type { IncomingHttpHeaders } from 'node:http'
import Negotiator from 'negotiator'

/** An option that the package's types lack: among codings of equal weight, `preferred` come first, in that order. */
interface Negotiation {
  encodings(available: readonly string[], options: { preferred: readonly string[] }): string[]
}

/**
 * Negotiates the content coding by the weights in `Accept-Encoding`; among codings of equal weight, the first of
 * `available` wins. Returns `identity` if the header is absent or accepts none of them (RFC 9110, section 12.5.3).
 */
export function preferredCoding<Coding extends string>(
  headers: IncomingHttpHeaders,
  available: readonly Coding[],
): Coding | 'identity' {
  if (headers['accept-encoding'] === undefined) return 'identity'
  const negotiation: Negotiation = new Negotiator({ headers })
  const [best] = negotiation.encodings([...available, 'identity'], { preferred: available })
  return available.find((coding) => coding === best) ?? 'identity'
}
