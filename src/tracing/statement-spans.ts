import { context, SpanKind, SpanStatusCode, type Tracer, trace } from '@opentelemetry/api'
import type { Pool } from '../database/pool.ts'
import { type Statement, toText } from '../database/statement.ts'
import { StatementError } from '../database/statement-error.ts'
import { findLinks } from './batches.ts'

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
    const requests = findLinks(context.active()).flatMap((request) => trace.getSpan(request) ?? [])
    const links = requests.map((request) => ({ context: request.spanContext() }))
    return tracer.startActiveSpan(name, { kind: SpanKind.CLIENT, attributes, links }, async (span) => {
      for (const request of requests) request.addLink({ context: span.spanContext() })
      try {
        return await work()
      } catch (error) {
        span.setAttribute('error.type', toErrorType(error instanceof StatementError ? error.cause : error))
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

/** Returns the code of an error, such as its SQLSTATE, or else its name. */
function toErrorType(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  return String(('code' in error && error.code) || error.name)
}
