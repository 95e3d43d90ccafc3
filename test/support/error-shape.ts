import type { IncomingHttpHeaders } from 'node:http'
import type { Test } from 'tap'

/** A response of either kind of client. */
interface Response {
  readonly status: number
  readonly headers: IncomingHttpHeaders | ReadonlyMap<string, string>
  readonly body: string | Buffer
}

/** Asserts that a response is the one error body and nothing else, with the status and code that it should have. */
export function isError(
  t: Test,
  { headers, ...answer }: Response,
  status: number,
  code: string,
  title = code,
): void {
  const type = headers instanceof Map ? headers.get('content-type') : Object(headers)['content-type']
  t.equal(answer.status, status, `${title}: the status`)
  t.match(type, /^application\/json(; charset=utf-8)?$/, `${title}: the media type`)
  const { message, ...rest }: Record<string, unknown> = JSON.parse(String(answer.body))
  t.strictSame(rest, { code, status }, `${title}: the members`)
  t.equal(typeof message, 'string', `${title}: the message`)
}
