import type { FastifyInstance, FastifyRequest } from 'fastify'
import { parse } from 'lossless-json'
import { ApiError } from '../contract/errors.ts'
import { readNumber } from '../contract/int64.ts'
import { CONTINUE, expectation } from './connections/protocol.ts'
import { hasContentCoding, isJson, unsupportedMediaType } from './media-type.ts'
import { describeFault } from './validation.ts'

/** The most bytes that a request body may have. The one body of the interface needs about 30. */
export const BODY_LIMIT = 4096

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/**
 * Makes `application/json` in UTF-8 the only body that is read (RFC 8259), in place of the framework's parsers:
 * those take text as well, replace broken UTF-8, let the last of two members of one name win, and round numbers.
 * What the head says of a body is checked before any of it is read, and a client that waits for `100 Continue` gets
 * it only then (RFC 9110, section 10.1.1). To be called before routes are added.
 */
export function readJsonBodies(app: FastifyInstance): void {
  app.addHook('onRoute', (route) => {
    if (route.schema?.body === undefined) return
    // After all other hooks of this kind, which refuse for other reasons.
    route.preParsing = [
      ...[route.preParsing ?? []].flat(),
      (request, reply, _payload, done) => {
        const isAwaited = expectation(request.raw) === CONTINUE && hasBody(request)
        const fault = bodyFault(request) ?? (isAwaited ? pathFault(request) : undefined)
        if (fault === undefined && isAwaited) reply.raw.writeContinue()
        done(fault)
      },
    ]
  })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer' },
    async (_request: FastifyRequest, body: Buffer) => {
      if (body.length === 0) throw new ApiError(400, 'The body is empty; it must be a JSON object.')
      try {
        return parse(utf8.decode(body), undefined, readNumber)
      } catch {
        throw new ApiError(400, 'The body must be UTF-8 JSON without a byte order mark or duplicate members.')
      }
    },
  )
}

/** 413 for a body that is longer than `BODY_LIMIT`. */
export function bodyTooLarge(): ApiError {
  return new ApiError(413, `The body is too large; at most ${BODY_LIMIT} bytes are accepted.`)
}

/** What makes a body unacceptable by the head alone. */
function bodyFault(request: FastifyRequest): ApiError | undefined {
  const { headers } = request
  const type = headers['content-type']
  const isAccepted = type === undefined ? !hasBody(request) : isJson(type)
  if (!isAccepted || hasContentCoding(headers)) return unsupportedMediaType(headers)
  return Number(headers['content-length']) > BODY_LIMIT ? bodyTooLarge() : undefined
}

/** What validation will find wrong with the path parameters. */
function pathFault(request: FastifyRequest): ApiError | undefined {
  const validate = request.getValidationFunction('params')
  if (validate === undefined || validate(request.params)) return undefined
  return describeFault(validate.errors ?? [], 'params')
}

function hasBody({ headers }: FastifyRequest): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}
