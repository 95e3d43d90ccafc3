import type { Test } from 'tap'

/** Asserts that a response is the one error body and nothing else, with the status and code that it should have. */
export function isError(
  t: Test,
  answer: { status: number; contentType: string | undefined; body: string },
  status: number,
  code: string,
): void {
  t.equal(answer.status, status, 'the status')
  t.match(answer.contentType, /^application\/json(; charset=utf-8)?$/, 'the media type')
  const body: Record<string, unknown> = JSON.parse(answer.body)
  t.strictSame(Object.keys(body).sort(), ['code', 'message', 'status'], 'the members')
  t.equal(body['code'], code, 'the code')
  t.equal(body['status'], status, 'the status in the body')
  t.equal(typeof body['message'], 'string', 'the message')
}
