import type { IncomingHttpHeaders } from 'node:http'
import { parse as parseContentType } from 'content-type'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { parse } from 'lossless-json'
import { ApiError } from '../contract/errors.ts'
import { readNumber } from '../contract/int64.ts'

/** Maximum size of a request body. The only body of the interface takes about 30 bytes. */
export const MAX_BODY_BYTES = 4096

/** Maximum characters of a header value that an error message quotes. */
const MAX_QUOTED_LENGTH = 100

const JSON_TYPE = 'application/json'

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/**
 * Accepts only `application/json` in UTF-8 (RFC 8259), and replaces Fastify's parsers: those also accept text, replace
 * invalid UTF-8, keep the last of duplicate members and round numbers. The headers that describe the body are checked before
 * it is read, and a client that expects `100 Continue` gets it only after that check (RFC 9110, section 10.1.1). Call it
 * before routes are added.
 */
export function parseJsonBodies(app: FastifyInstance): void {
  app.addHook('onRoute', (route) => {
    if (route.schema?.body === undefined) return
    // Last of the preParsing hooks: the errors of the others take precedence.
    route.preParsing = [
      ...[route.preParsing ?? []].flat(),
      (request, reply, _payload, done) => {
        const error = bodyHeaderError(request)
        if (error === undefined && expectsContinue(request)) reply.raw.writeContinue()
        done(error)
      },
    ]
  })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body: Buffer, done) => {
    if (body.length === 0) {
      done(new ApiError(400, 'The body is empty. It must be a JSON object.'))
      return
    }
    let value: unknown
    try {
      value = parse(utf8.decode(body), undefined, readNumber)
    } catch {
      done(new ApiError(400, 'The body must be UTF-8 JSON without a byte order mark or duplicate members.'))
      return
    }
    done(null, value)
  })
}

/** Creates the 413 for a body of more than `MAX_BODY_BYTES`. */
export function bodyTooLarge(): ApiError {
  return new ApiError(413, `The body is too large. The maximum is ${MAX_BODY_BYTES} bytes.`)
}

/** Checks the headers that describe the body. */
function bodyHeaderError(request: FastifyRequest): ApiError | undefined {
  const { headers } = request
  const type = headers['content-type']
  const isAccepted = type === undefined ? !hasBody(request) : isJson(type)
  if (!isAccepted || hasContentCoding(headers)) return unsupportedMediaType(headers)
  return Number(headers['content-length']) > MAX_BODY_BYTES ? bodyTooLarge() : undefined
}

/** Whether the client waits for `100 Continue` before it sends the body. */
function expectsContinue(request: FastifyRequest): boolean {
  const { expect } = request.headers
  return (
    expect !== undefined &&
    /100-continue/i.test(expect) &&
    request.raw.httpVersion !== '1.0' &&
    hasBody(request)
  )
}

function hasBody({ headers }: FastifyRequest): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

/** Whether a Content-Type is `application/json` in UTF-8, with any other parameters. */
function isJson(contentType: string): boolean {
  if (contentType === JSON_TYPE) return true
  const { type, parameters } = parseContentType(contentType)
  return type === JSON_TYPE && /^utf-?8$/i.test(parameters['charset'] ?? 'utf-8')
}

/** Whether the body has a content coding, such as gzip (RFC 9110, section 8.4). */
export function hasContentCoding(headers: IncomingHttpHeaders): boolean {
  const codings = headers['content-encoding']?.split(',') ?? []
  return !codings.every((coding) => /^(identity)?$/i.test(coding.trim()))
}

/**
 * Creates the 415 for a body that is not JSON in UTF-8. The message quotes the headers of the request. A response header
 * names the accepted media type or, if the media type is right, the accepted content coding (RFC 5789, section 2.2;
 * RFC 9110, section 12.5.3).
 */
export function unsupportedMediaType(headers: IncomingHttpHeaders): ApiError {
  const type = headers['content-type']
  const coding = headers['content-encoding']
  const sent = [
    type === undefined ? 'no Content-Type' : `Content-Type: ${truncate(type)}`,
    ...(coding === undefined ? [] : [`Content-Encoding: ${truncate(coding)}`]),
  ]
  return new ApiError(
    415,
    `The body must be application/json in UTF-8, without a content coding. The request has ${sent.join(' and ')}.`,
    type !== undefined && isJson(type) && hasContentCoding(headers)
      ? { 'accept-encoding': 'identity' }
      : { 'accept-patch': JSON_TYPE },
  )
}

function truncate(value: string): string {
  return value.length <= MAX_QUOTED_LENGTH ? value : `${value.slice(0, MAX_QUOTED_LENGTH)}…`
}
