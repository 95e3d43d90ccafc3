import { type Agent, type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from 'node:http'
import { Agent as SecureAgent } from 'node:https'
import { buffer } from 'node:stream/consumers'
import type { Test } from 'tap'

export interface Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  /** The body, byte for byte as it came. */
  readonly body: Buffer
  readonly text: string
}

export interface Message {
  readonly headers?: OutgoingHttpHeaders
  readonly body?: string | Buffer
}

export type Send = (method: string, path: string, message?: Message) => Promise<Answer>

/** Sends one request over a connection of its own, or one of an agent. */
export function createSender(port: number, common: OutgoingHttpHeaders = {}, agent?: Agent): Send {
  return (method, path, { headers = {}, body } = {}) =>
    new Promise((resolve, reject) => {
      const protocol = agent instanceof SecureAgent ? 'https:' : 'http:'
      const target = { protocol, host: '127.0.0.1', port, method, path, agent: agent ?? false }
      const outgoing = request({ ...target, headers: { ...common, ...headers } }, (incoming) => {
        const { statusCode: status = 0, headers } = incoming
        buffer(incoming).then((body) => resolve({ status, headers, body, text: body.toString() }), reject)
      })
      outgoing.on('error', reject)
      outgoing.end(body)
    })
}

/** A message with a JSON body, and with further headers. */
export function json(content: string | object, headers: OutgoingHttpHeaders = {}): Message {
  const body = typeof content === 'string' ? content : JSON.stringify(content)
  return { headers: { 'content-type': 'application/json', ...headers }, body }
}

/** Asserts that a response is the one error body and nothing else, with the status and code that it should have. */
export function isError(t: Test, answer: Omit<Answer, 'body'>, status: number, code: string, title = code) {
  t.equal(answer.status, status, `${title}: the status`)
  t.match(answer.headers['content-type'], /^application\/json(; charset=utf-8)?$/, `${title}: the media type`)
  const { message, ...rest }: Record<string, unknown> = JSON.parse(answer.text)
  t.strictSame(rest, { code, status }, `${title}: the members`)
  t.equal(typeof message, 'string', `${title}: the message`)
}
