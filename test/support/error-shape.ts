import type { Test } from 'tap'
import type { Answer } from './http.ts'

/** Asserts that a response is the one error body and nothing else, with the status and code that it should have. */
export function isError(
  t: Test,
  answer: Omit<Answer, 'body'>,
  status: number,
  code: string,
  title = code,
): void {
  t.equal(answer.status, status, `${title}: the status`)
  t.match(answer.headers['content-type'], /^application\/json(; charset=utf-8)?$/, `${title}: the media type`)
  const { message, ...rest }: Record<string, unknown> = JSON.parse(answer.text)
  t.strictSame(rest, { code, status }, `${title}: the members`)
  t.equal(typeof message, 'string', `${title}: the message`)
}
