import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { Test } from 'tap'
import { until } from './eventually.ts'
import { listen } from './listen.ts'

/** A span as a collector gets it; ids are in hexadecimal. */
export interface ReceivedSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string
  readonly name: string
  /** 2 of a server, 3 of a client. */
  readonly kind: number
  readonly attributes: Readonly<Record<string, string | number | undefined>>
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[]
  readonly resource: Readonly<Record<string, string | number | undefined>>
  /** 2 where it failed. */
  readonly status: number
}

/** A collector that keeps what it gets. */
export interface OtlpReceiver {
  /** For OTEL_EXPORTER_OTLP_ENDPOINT. */
  readonly endpoint: string
  readonly spans: ReceivedSpan[]
  /** The headers of every request. */
  readonly headers: IncomingHttpHeaders[]
  /** Everything as it came, to search it for what must not be there. */
  readonly bytes: () => Buffer
  /** Waits for that many spans with a name. */
  received(name: string, count?: number): Promise<ReceivedSpan[]>
}

/** Starts a collector for OTLP over HTTP in protobuf. */
export async function startOtlpReceiver(t: Test): Promise<OtlpReceiver> {
  const spans: ReceivedSpan[] = []
  const headers: IncomingHttpHeaders[] = []
  const bodies: Buffer[] = []
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray())
    headers.push(request.headers)
    bodies.push(body)
    if (request.url === '/v1/traces') spans.push(...readSpans(body))
    response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
  })
  return {
    endpoint: `http://127.0.0.1:${await listen(t, server)}`,
    spans,
    headers,
    bytes: () => Buffer.concat(bodies),
    async received(name, count = 1) {
      const found = (): ReceivedSpan[] => spans.filter((span) => span.name === name)
      await until(`${count} spans ${name}`, () => found().length >= count)
      return found()
    },
  }
}

/** A field of a protobuf message: a number, or bytes that may be text or a message. */
type Field = number | Buffer

/** Reads the wire format of protobuf (protobuf.dev, Encoding). */
function fieldsOf(message: Buffer): Map<number, Field[]> {
  const fields = new Map<number, Field[]>()
  let at = 0
  const readVarint = (): number => {
    let value = 0n
    for (let shift = 0n; ; shift += 7n) {
      const byte = message.readUInt8(at++)
      value |= BigInt(byte & 0x7f) << shift
      if (byte < 0x80) return Number(value)
    }
  }
  const readField = (wireType: number): Field => {
    if (wireType === 0) return readVarint()
    const length = wireType === 2 ? readVarint() : wireType === 1 ? 8 : 4
    at += length
    return message.subarray(at - length, at)
  }
  while (at < message.length) {
    const tag = readVarint()
    const field = readField(tag & 7)
    fields.set(tag >> 3, [...(fields.get(tag >> 3) ?? []), field])
  }
  return fields
}

/** Field numbers are those of opentelemetry/proto/trace/v1/trace.proto. */
function readSpans(request: Buffer): ReceivedSpan[] {
  return messages(fieldsOf(request), 1).flatMap((resourceSpans) => {
    const resource = attributes(messages(resourceSpans, 1)[0] ?? new Map(), 1)
    return messages(resourceSpans, 2)
      .flatMap((scopeSpans) => messages(scopeSpans, 2))
      .map((span) => ({
        traceId: hex(span, 1),
        spanId: hex(span, 2),
        parentSpanId: hex(span, 4),
        name: text(span, 5),
        kind: number(span, 6),
        attributes: attributes(span, 9),
        links: messages(span, 13).map((link) => ({ traceId: hex(link, 1), spanId: hex(link, 2) })),
        resource,
        status: number(messages(span, 15)[0] ?? new Map(), 3),
      }))
  })
}

type Message = ReadonlyMap<number, readonly Field[]>

function messages(message: Message, field: number): Message[] {
  return (message.get(field) ?? []).filter((value) => Buffer.isBuffer(value)).map(fieldsOf)
}

function hex(message: Message, field: number): string {
  const value = message.get(field)?.[0]
  return Buffer.isBuffer(value) ? value.toString('hex') : ''
}

function text(message: Message, field: number): string {
  const value = message.get(field)?.[0]
  return Buffer.isBuffer(value) ? value.toString() : ''
}

function number(message: Message, field: number): number {
  return Number(message.get(field)?.[0] ?? 0)
}

function attributes(message: Message, field: number): Record<string, string | number | undefined> {
  return Object.fromEntries(
    messages(message, field).map((pair) => {
      const [value = new Map()] = messages(pair, 2)
      return [text(pair, 1), value.has(1) ? text(value, 1) : number(value, 3)]
    }),
  )
}
