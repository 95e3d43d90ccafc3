import type { IncomingHttpHeaders } from 'node:http'
import Negotiator from 'negotiator'

/** What the package's types leave out: among codings of equal weight, those of `preferred` come first, in its order. */
interface Negotiation {
  encodings(available: readonly string[], options: { preferred: readonly string[] }): string[]
}

/**
 * The content coding that a caller prefers by the weights in its `Accept-Encoding`, and among those of equal weight the
 * first of `available`. Plain bytes where there is no such header, or where it accepts nothing that is available
 * (RFC 9110, section 12.5.3).
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
