import {
  context,
  createContextKey,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import type { Pool } from '../database/pool.ts'
import { type Statement, toText } from '../database/statement.ts'
import { StatementError } from '../database/statement-error.ts'
import type { BatchTracer } from '../inventory/updates/queue.ts'

/** The spans of the requests that a statement serves, if there are several. */
const REQUESTS = createContextKey('the requests that a statement serves')

/**
 * A statement that serves one request belongs to its trace. One that serves several starts a new trace, and it and each of the
 * requests link to each other. Only sampled requests count, unless none is sampled.
 */
export const batchTracer: BatchTracer = {
  current: () => context.active(),
  run(requests, work) {
    const sampled = requests.filter((request) => trace.getSpan(request)?.isRecording())
    const [only = requests[0] ?? ROOT_CONTEXT] = sampled
    const spans = sampled.map(trace.getSpan)
    return context.with(spans.length > 1 ? ROOT_CONTEXT.setValue(REQUESTS, spans) : only, work)
  },
}

/**
 * Returns the same database, with a span for each statement: its name or its first word, but no text or messages of PostgreSQL, which
 * may contain values.
 */
export function traceStatements(database: Pool, pool: string, tracer: Tracer): Pool {
  const traced = <Result>(statement: Statement, work: () => Promise<Result>): Promise<Result> => {
    const operation = /^\s*(\w+)/.exec(toText(statement))?.[1]?.toUpperCase() ?? 'UNKNOWN'
    const name = typeof statement === 'string' ? operation : statement.name
    const attributes = {
      'db.system.name': 'postgresql',
      'db.operation.name': operation,
      'db.query.summary': name,
      'db.client.connection.pool.name': pool,
    }
    const served = context.active().getValue(REQUESTS)
    const requests: readonly Span[] = Array.isArray(served) ? served : []
    const links = requests.map((request) => ({ context: request.spanContext() }))
    return tracer.startActiveSpan(name, { kind: SpanKind.CLIENT, attributes, links }, async (span) => {
      for (const request of requests) request.addLink({ context: span.spanContext() })
      try {
        return await work()
      } catch (error) {
        const { cause } = error instanceof StatementError ? error : { cause: error }
        // The code is, for example, an SQLSTATE.
        const type = cause instanceof Error && (('code' in cause && cause.code) || cause.name)
        span.setAttribute('error.type', String(type || 'unknown'))
        span.setStatus({ code: SpanStatusCode.ERROR })
        throw error
      } finally {
        span.end()
      }
    })
  }

  return {
    ...database,
    query: (statement, values) => traced(statement, () => database.query(statement, values)),
    readRows: (text, onRow) => traced(text, () => database.readRows(text, onRow)),
  }
}
